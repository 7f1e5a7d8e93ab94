// SPDX-License-Identifier: Apache-2.0
#include "api/http/rate_limit.h"

#include <errno.h>
#include <pthread.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"

#define SETS 1024u /* power of two */
#define WAYS 8u	   /* places a caller may have; all taken: the fullest bucket goes */

struct bucket {
	uint64_t caller;
	uint64_t at_ns; /* when @tokens was true; 0 = free */
	double tokens;
};

struct rate_limit {
	double per_second, burst;
	pthread_mutex_t lock;
	struct bucket sets[SETS][WAYS];
};

int rate_limit_create(uint32_t per_second, uint32_t burst, struct rate_limit **ret)
{
	struct rate_limit *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->per_second = per_second;
	r->burst = burst;
	(void)pthread_mutex_init(&r->lock, NULL);
	*ret = r;
	return 0;
}

void rate_limit_destroy(struct rate_limit *r)
{
	if (!r)
		return;
	(void)pthread_mutex_destroy(&r->lock);
	free(r);
}

static void refill(const struct rate_limit *r, struct bucket *b, uint64_t now_ns)
{
	if (!b->at_ns || now_ns < b->at_ns)
		return;
	b->tokens += (double)(now_ns - b->at_ns) / (double)NS_PER_S * r->per_second;
	if (b->tokens > r->burst)
		b->tokens = r->burst;
	b->at_ns = now_ns;
}

/* The caller's bucket, or the one it costs least to forget: a free one, else the fullest. */
static struct bucket *find(struct rate_limit *r, uint64_t caller, uint64_t now_ns)
{
	struct bucket *set = r->sets[hash_mix64(caller) & (SETS - 1)], *best = NULL;

	for (unsigned i = 0; i < WAYS; i++) {
		struct bucket *b = &set[i];

		refill(r, b, now_ns);
		if (b->at_ns && b->caller == caller)
			return b;
		if (!best || (best->at_ns && (!b->at_ns || b->tokens > best->tokens)))
			best = b;
	}
	*best = (struct bucket){ caller, now_ns ? now_ns : 1, r->burst };
	return best;
}

unsigned rate_limit_take(struct rate_limit *r, uint64_t caller, uint64_t now_ns)
{
	struct bucket *b;
	unsigned wait_s = 0;

	(void)pthread_mutex_lock(&r->lock);
	b = find(r, caller, now_ns);
	if (b->tokens >= 1)
		b->tokens -= 1;
	else
		wait_s = (unsigned)((1 - b->tokens) / r->per_second) + 1;
	(void)pthread_mutex_unlock(&r->lock);
	return wait_s;
}
