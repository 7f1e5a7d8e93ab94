/* SPDX-License-Identifier: Apache-2.0 */
/* io_uring by its system calls, for workloads: one thread, which waits for what it asks. */
#include <linux/io_uring.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct ring {
	int fd;
	struct io_uring_params p;
	char *sq, *cq;
	struct io_uring_sqe *entries;
};

static inline unsigned *ring_word(char *at, unsigned offset)
{
	return (unsigned *)(void *)(at + offset);
}

/* Room for @requests and @completions (0: as the kernel has it). Not 0: the kernel refuses it. */
static inline int ring_open(struct ring *r, unsigned requests, unsigned completions, unsigned flags)
{
	size_t sq_bytes, cq_bytes;

	*r = (struct ring){ .p = { .flags = flags | (completions ? IORING_SETUP_CQSIZE : 0),
				   .cq_entries = completions } };
	r->fd = (int)syscall(SYS_io_uring_setup, requests, &r->p);
	if (r->fd < 0)
		return -1;
	sq_bytes = r->p.sq_off.array + r->p.sq_entries * sizeof(unsigned);
	cq_bytes = r->p.cq_off.cqes + r->p.cq_entries * sizeof(struct io_uring_cqe);
	r->sq = mmap(NULL, sq_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQ_RING);
	r->cq = mmap(NULL, cq_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_CQ_RING);
	r->entries = mmap(NULL, r->p.sq_entries * sizeof(*r->entries), PROT_READ | PROT_WRITE,
			  MAP_SHARED, r->fd, IORING_OFF_SQES);
	return r->sq == MAP_FAILED || r->cq == MAP_FAILED || r->entries == MAP_FAILED ? -1 : 0;
}

/* The next request, to be filled in before ring_enter(). There is room for it. */
static inline struct io_uring_sqe *ring_request(struct ring *r, int code, int fd)
{
	unsigned *tail = ring_word(r->sq, r->p.sq_off.tail), at = *tail & (r->p.sq_entries - 1);
	struct io_uring_sqe *entry = &r->entries[at];

	memset(entry, 0, sizeof(*entry));
	entry->opcode = (unsigned char)code;
	entry->fd = fd;
	ring_word(r->sq, r->p.sq_off.array)[at] = at;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	return entry;
}

/* Hands in @requests and waits for @completions. */
static inline void ring_enter(struct ring *r, unsigned requests, unsigned completions)
{
	while (syscall(SYS_io_uring_enter, r->fd, requests, completions, IORING_ENTER_GETEVENTS,
		       NULL, 0) < 0)
		;
}

static inline bool ring_next(struct ring *r, struct io_uring_cqe *ret)
{
	unsigned *head = ring_word(r->cq, r->p.cq_off.head);
	struct io_uring_cqe *completions = (void *)(r->cq + r->p.cq_off.cqes);

	if (*head == __atomic_load_n(ring_word(r->cq, r->p.cq_off.tail), __ATOMIC_ACQUIRE))
		return false;
	*ret = completions[*head & (r->p.cq_entries - 1)];
	__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	return true;
}
