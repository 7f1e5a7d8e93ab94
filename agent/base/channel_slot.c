// SPDX-License-Identifier: Apache-2.0
#include "agent/base/channel_slot.h"

#include <errno.h>
#include <poll.h>

#include "agent/base/clock.h"

void channel_slot_init(struct channel_slot *slot)
{
	pthread_condattr_t attr;

	*slot = (struct channel_slot){ .fd = -1, .new_fd = -1 };
	(void)pthread_mutex_init(&slot->lock, NULL);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&slot->changed, &attr);
	(void)pthread_condattr_destroy(&attr);
}

void channel_slot_deinit(struct channel_slot *slot)
{
	cleanup_close_fn(&slot->fd);
	cleanup_close_fn(&slot->new_fd);
	(void)pthread_cond_destroy(&slot->changed);
	(void)pthread_mutex_destroy(&slot->lock);
}

void channel_slot_set(struct channel_slot *slot, int fd)
{
	(void)pthread_mutex_lock(&slot->lock);
	cleanup_close_fn(&slot->new_fd);
	slot->new_fd = fd;
	slot->has_new = true;
	slot->connected = fd >= 0;
	(void)pthread_cond_broadcast(&slot->changed);
	(void)pthread_mutex_unlock(&slot->lock);
}

bool channel_slot_wait(struct channel_slot *slot, uint64_t timeout_ns)
{
	uint64_t until_ns = clock_monotonic_ns() + timeout_ns;
	struct timespec until = { .tv_sec = (time_t)(until_ns / NS_PER_S),
				  .tv_nsec = (long)(until_ns % NS_PER_S) };
	bool connected;
	int rc = 0;

	(void)pthread_mutex_lock(&slot->lock);
	while (!slot->connected && timeout_ns && rc == 0)
		rc = pthread_cond_timedwait(&slot->changed, &slot->lock, &until);
	connected = slot->connected;
	(void)pthread_mutex_unlock(&slot->lock);
	return connected;
}

bool channel_slot_adopt(struct channel_slot *slot)
{
	bool is_new;

	(void)pthread_mutex_lock(&slot->lock);
	is_new = slot->has_new;
	if (is_new) {
		cleanup_close_fn(&slot->fd);
		slot->fd = slot->new_fd;
		slot->new_fd = -1;
		slot->has_new = false;
	}
	(void)pthread_mutex_unlock(&slot->lock);
	return is_new;
}

void channel_slot_lose(struct channel_slot *slot)
{
	cleanup_close_fn(&slot->fd);
	slot->fd = -1;
	(void)pthread_mutex_lock(&slot->lock);
	slot->connected = slot->has_new && slot->new_fd >= 0;
	(void)pthread_mutex_unlock(&slot->lock);
}

uint32_t channel_slot_number(struct channel_slot *slot)
{
	if (!++slot->request)
		slot->request = 1;
	return slot->request;
}

int channel_slot_receive(struct channel_slot *slot, uint64_t until_ns,
			 struct channel_message *message)
{
	for (;;) {
		int rc = channel_receive(slot->fd, message);
		struct pollfd wait = { .fd = slot->fd, .events = POLLIN };
		uint64_t now_ns = clock_monotonic_ns();

		if (rc == 1)
			channel_message_close(message);
		if (rc == 1 || (rc < 0 && rc != -EPROTO))
			return rc < 0 ? rc : 0;
		if (now_ns >= until_ns)
			return -ETIMEDOUT;
		(void)poll(&wait, 1, (int)((until_ns - now_ns) / NS_PER_MS) + 1);
	}
}
