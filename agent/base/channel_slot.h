/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a channel whose other process comes and goes. When the other process is started again,
 * any thread may put the end of a new channel into the slot. The thread that talks over the channel
 * (or threads that exclude each other) adopts the new end before its next request. */
#ifndef PROFD_BASE_CHANNEL_SLOT_H
#define PROFD_BASE_CHANNEL_SLOT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/base/channel.h"

struct channel_slot {
	pthread_mutex_t lock; /* of new_fd, has_new, connected */
	pthread_cond_t changed; /* CLOCK_MONOTONIC */
	int new_fd;
	bool has_new, connected;

	int fd; /* of the user; -1 = none */
	uint32_t request; /* the last number given out */
};

void channel_slot_init(struct channel_slot *slot);
void channel_slot_deinit(struct channel_slot *slot);

/* Any thread may call it. Ownership of @fd passes on; -1 = there is no such process. */
void channel_slot_set(struct channel_slot *slot, int fd);
/* Waits until there is an end that nobody has seen closed, at most @timeout_ns. */
bool channel_slot_wait(struct channel_slot *slot, uint64_t timeout_ns);

/* The using thread calls it. Makes slot->fd the newest end; true if that is another one than
 * before. */
bool channel_slot_adopt(struct channel_slot *slot);
/* The other end is gone or talks nonsense: slot->fd is closed. */
void channel_slot_lose(struct channel_slot *slot);
/* A number for a request, never 0. */
uint32_t channel_slot_number(struct channel_slot *slot);
/* The next message into @message, whose descriptors are closed. -ETIMEDOUT at @until_ns
 * (monotonic), -EPIPE. */
int channel_slot_receive(struct channel_slot *slot, uint64_t until_ns,
			 struct channel_message *message) must_use;

#endif
