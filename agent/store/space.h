/* SPDX-License-Identifier: Apache-2.0 */
/* Room on the file system. SQLite cannot free its own space once the disk is full. So data is
 * refused while a floor is still free. A ballast file is given up to let the last records through,
 * which say why. Thread-safe. */
#ifndef PROFD_STORE_SPACE_H
#define PROFD_STORE_SPACE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

#define SPACE_FLOOR_BYTES   (16u << 20) /* kept free for others; less on small file systems (2 %) */
#define SPACE_BALLAST_BYTES (1u << 20)	/* likewise 1 % */

struct space {
	int dir_fd; /* borrowed */
	pthread_mutex_t lock;
	uint64_t budget_bytes; /* 0 = none */
	bool has_ballast;
};

void space_init(struct space *space, int dir_fd);
void space_deinit(struct space *space);
#define SPACE_NO_BUDGET UINT64_MAX /* as @used: only the file system counts */
/* -ENOSPC when @len more bytes would pass the budget (@used so far) or the floor; @urgent halves
 * the floor, so that records of failures still fit when data does not. Lays the ballast again when
 * it is gone and there is room. */
int space_check(struct space *space, uint64_t used, uint64_t len, bool urgent) must_use;
/* Gives the ballast up: true if there was some. */
bool space_release_ballast(struct space *space);

#endif
