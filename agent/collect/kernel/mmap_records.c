// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/kernel/mmap_records.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "agent/base/bytes.h"
#include "agent/base/io.h"
#include "agent/base/parse.h"
#include "agent/base/vec.h"

/* 64 KiB hold some 400 records a CPU; together with the header page far below perf_event_mlock_kb's
 * default of 516 KiB a CPU, which is what a user without CAP_IPC_LOCK may lock. */
#define RING_PAGES	   16u
#define CPU_MAX		   4096u
#define TEXT_BYTES_MAX	   (16u << 20)
#define SAMPLE_ID_BYTES	   16u /* pid, tid, time: PERF_SAMPLE_TID | PERF_SAMPLE_TIME */
#define RECORD_BYTES_MAX   65536u
#define ONLINE_PATH	   "/sys/devices/system/cpu/online"

struct cpu_ring {
	int fd; /* -1 = not open */
	struct perf_event_mmap_page *page;
	uint64_t enabled_ns; /* when it was last looked at: the event's own clock, which stands when
				it is dead */
};

struct mmap_records {
	struct cpu_ring *rings; /* by CPU number */
	unsigned ring_count;
	int poll_fd;
	size_t page_bytes;
	uint8_t *bounce; /* a record that wraps is put together here */
};

/* ---- parsing -----------------------------------------------------------------------------------
 */

void mmap_batch_deinit(struct mmap_batch *batch)
{
	free(batch->records);
	free(batch->texts);
	*batch = (struct mmap_batch){ 0 };
}

static int add_text(struct mmap_batch *batch, const char *text, size_t len, uint32_t *ret_at)
{
	void *data = batch->texts;
	int rc = vec_grow(&data, &batch->text_capacity, batch->text_bytes + len + 1, 1,
			  TEXT_BYTES_MAX);

	batch->texts = data;
	if (rc < 0)
		return rc;
	memcpy(batch->texts + batch->text_bytes, text, len);
	batch->texts[batch->text_bytes + len] = '\0';
	*ret_at = (uint32_t)batch->text_bytes;
	batch->text_bytes += len + 1;
	return 0;
}

static int add_record(struct mmap_batch *batch, struct mmap_record *record, const char *text,
		      size_t len)
{
	void *data = batch->records;
	int rc = vec_grow(&data, &batch->capacity, batch->count + 1, sizeof(*record),
			  MMAP_RECORDS_BATCH_MAX);

	batch->records = data;
	if (rc < 0)
		return rc;
	rc = add_text(batch, text, len, &record->path_at);
	if (rc < 0)
		return rc;
	batch->records[batch->count++] = *record;
	return 1;
}

/* The rest of @b is text padded with NULs to 8 bytes, then the sample id. */
static bool take_text_and_time(struct bytes *b, const char **text, size_t *text_len,
			       uint64_t *time_ns)
{
	size_t left = bytes_left(b);

	if (b->failed || left < SAMPLE_ID_BYTES)
		return false;
	*text = bytes_take(b, left - SAMPLE_ID_BYTES);
	*text_len = strnlen(*text, left - SAMPLE_ID_BYTES);
	(void)bytes_u64(b); /* pid and tid once more */
	*time_ns = bytes_u64(b);
	return !b->failed;
}

static int parse_map(struct mmap_batch *batch, struct bytes *b, uint16_t misc)
{
	struct mmap_record record = { .kind = MMAP_RECORD_MAP };
	const char *text;
	uint64_t bytes;
	uint32_t prot;
	size_t len;

	record.tgid = bytes_u32(b);
	record.tid = bytes_u32(b);
	record.start_va = bytes_u64(b);
	bytes = bytes_u64(b);
	record.pgoff_fo = bytes_u64(b);
	record.dev_major = bytes_u32(b);
	record.dev_minor = bytes_u32(b);
	record.inode = bytes_u64(b);
	record.inode_generation = bytes_u64(b);
	prot = bytes_u32(b);
	(void)bytes_u32(b);
	if (!take_text_and_time(b, &text, &len, &record.time_ns) || bytes == 0 ||
	    __builtin_add_overflow(record.start_va, bytes, &record.end_va))
		return -EPROTO;
	if (!(prot & PROT_EXEC) || (misc & PERF_RECORD_MISC_MMAP_BUILD_ID))
		return 0;
	return add_record(batch, &record, text, len);
}

static int parse_comm(struct mmap_batch *batch, struct bytes *b, uint16_t misc)
{
	struct mmap_record record = { .kind = MMAP_RECORD_EXEC };
	const char *text;
	size_t len;

	record.tgid = bytes_u32(b);
	record.tid = bytes_u32(b);
	if (!take_text_and_time(b, &text, &len, &record.time_ns))
		return -EPROTO;
	return misc & PERF_RECORD_MISC_COMM_EXEC ? add_record(batch, &record, text, len) : 0;
}

int mmap_batch_parse(struct mmap_batch *batch, const void *data, size_t len)
{
	struct bytes b = bytes_of(data, len);
	uint32_t type = bytes_u32(&b);
	uint16_t misc = bytes_u16(&b), size = bytes_u16(&b);
	uint64_t lost;

	if (b.failed || size != len)
		return -EPROTO;
	switch (type) {
	case PERF_RECORD_MMAP2:
		return parse_map(batch, &b, misc);
	case PERF_RECORD_COMM:
		return parse_comm(batch, &b, misc);
	case PERF_RECORD_LOST:
		(void)bytes_u64(&b); /* event id */
		lost = bytes_u64(&b);
		if (b.failed)
			return -EPROTO;
		batch->lost += lost;
		return 0;
	default:
		return 0;
	}
}

/* ---- rings -------------------------------------------------------------------------------------
 */

static void ring_close(struct cpu_ring *ring, size_t page_bytes)
{
	if (ring->page)
		(void)munmap(ring->page, (RING_PAGES + 1) * page_bytes);
	if (ring->fd >= 0)
		(void)close(ring->fd);
	*ring = (struct cpu_ring){ .fd = -1 };
}

static int ring_open(struct mmap_records *records, unsigned cpu)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_DUMMY,
		.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME,
		.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED,
		.exclude_kernel = 1,
		.mmap = 1,
		.mmap2 = 1,
		.comm = 1,
		.comm_exec = 1,
		.sample_id_all = 1,
		.watermark = 1,
		.wakeup_watermark = 1,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
	};
	struct cpu_ring *ring = &records->rings[cpu];
	struct epoll_event event = { .events = EPOLLIN };
	cleanup_close int fd = -1;
	void *page;

	fd = (int)syscall(SYS_perf_event_open, &attr, -1, (int)cpu, -1, PERF_FLAG_FD_CLOEXEC);
	if (fd < 0)
		return -errno;
	page = mmap(NULL, (RING_PAGES + 1) * records->page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
		    fd, 0);
	if (page == MAP_FAILED)
		return -errno;
	if (epoll_ctl(records->poll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
		int rc = -errno;

		(void)munmap(page, (RING_PAGES + 1) * records->page_bytes);
		return rc;
	}
	ring->page = page;
	ring->fd = take_fd(&fd);
	return 0;
}

/* Calls @each for every CPU of a list such as "0-3,8" (cpumap_print_to_pagebuf()). */
static int each_online_cpu(int (*each)(void *ctx, unsigned cpu), void *ctx)
{
	char text[4096], *save = NULL;
	ssize_t len = io_read_small(AT_FDCWD, ONLINE_PATH, text, sizeof(text));

	if (len < 0)
		return (int)len;
	for (char *part = strtok_r(text, ",\n", &save); part; part = strtok_r(NULL, ",\n", &save)) {
		char *dash = strchr(part, '-');
		uint64_t first, last;
		int rc;

		if (dash)
			*dash = '\0';
		rc = parse_u64(part, 0, CPU_MAX - 1, &first);
		if (rc < 0)
			return rc;
		last = first;
		if (dash && (rc = parse_u64(dash + 1, first, CPU_MAX - 1, &last)) < 0)
			return rc;
		for (uint64_t cpu = first; cpu <= last; cpu++) {
			rc = each(ctx, (unsigned)cpu);
			if (rc < 0)
				return rc;
		}
	}
	return 0;
}

static int highest_cpu(void *ctx, unsigned cpu)
{
	unsigned *count = ctx;

	if (cpu + 1 > *count)
		*count = cpu + 1;
	return 0;
}

static int open_cpu(void *ctx, unsigned cpu)
{
	struct mmap_records *records = ctx;

	if (cpu >= records->ring_count || records->rings[cpu].fd >= 0)
		return 0;
	return ring_open(records, cpu);
}

static int grow_rings(struct mmap_records *records)
{
	unsigned count = 0;
	struct cpu_ring *rings;
	int rc = each_online_cpu(highest_cpu, &count);

	if (rc < 0 || count <= records->ring_count)
		return rc;
	rings = realloc(records->rings, count * sizeof(*rings));
	if (!rings)
		return -ENOMEM;
	for (unsigned i = records->ring_count; i < count; i++)
		rings[i] = (struct cpu_ring){ .fd = -1 };
	records->rings = rings;
	records->ring_count = count;
	return 0;
}

int mmap_records_create(struct mmap_records **ret, struct err *err)
{
	cleanup(mmap_records) struct mmap_records *records = calloc(1, sizeof(*records));
	int rc;

	if (!records)
		return err_set(err, ENOMEM, NULL, NULL, "no memory for mapping records");
	records->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	records->bounce = malloc(RECORD_BYTES_MAX);
	records->poll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (!records->bounce || records->poll_fd < 0)
		return err_set(err, ENOMEM, NULL, NULL, "no memory for mapping records");
	rc = grow_rings(records);
	if (rc == 0)
		rc = each_online_cpu(open_cpu, records);
	if (rc < 0)
		return err_set(err, -rc, NULL, NULL,
			       "cannot follow mappings by perf_event_open: %s; run as root or with "
			       "CAP_PERFMON",
			       strerror(-rc));
	*ret = take_ptr(records);
	return 0;
}

void mmap_records_destroy(struct mmap_records *records)
{
	if (!records)
		return;
	for (unsigned i = 0; i < records->ring_count; i++)
		ring_close(&records->rings[i], records->page_bytes);
	if (records->poll_fd >= 0)
		(void)close(records->poll_fd);
	free(records->rings);
	free(records->bounce);
	free(records);
}

static int mark_online(void *ctx, unsigned cpu)
{
	uint8_t *online = ctx;

	online[cpu] = 1;
	return 0;
}

void mmap_records_follow_cpus(struct mmap_records *records, bool anew)
{
	cleanup_free uint8_t *online = calloc(1, CPU_MAX);

	if (!online || each_online_cpu(mark_online, online) < 0)
		return;
	for (unsigned i = 0; i < records->ring_count; i++)
		if (records->rings[i].fd >= 0 && (anew || !online[i]))
			ring_close(&records->rings[i], records->page_bytes);
	if (grow_rings(records) == 0)
		/* A CPU that goes while we open it is tried again next second. */
		(void)!each_online_cpu(open_cpu, records);
}

/* perf_event_exit_cpu_context() of the kernel takes the events of a CPU that goes out of its
 * context, for good. */
static bool has_died(struct cpu_ring *ring)
{
	const uint64_t before_ns = ring->enabled_ns;
	struct {
		uint64_t count, enabled_ns;
	} now;

	if (ring->fd < 0 || read(ring->fd, &now, sizeof(now)) != (ssize_t)sizeof(now))
		return false;
	ring->enabled_ns = now.enabled_ns;
	return now.enabled_ns == before_ns;
}

bool mmap_records_have_died(struct mmap_records *records)
{
	bool any = false;

	for (unsigned i = 0; i < records->ring_count; i++)
		any |= has_died(&records->rings[i]);
	return any;
}

int mmap_records_poll_fd(const struct mmap_records *records)
{
	return records->poll_fd;
}

/* ---- draining ----------------------------------------------------------------------------------
 */

/* @len bytes at @at of the ring, put together if they wrap. */
static const void *ring_bytes(struct mmap_records *records, const uint8_t *data, size_t size,
			      uint64_t at, size_t len)
{
	size_t offset = at & (size - 1), first = size - offset;

	if (len <= first)
		return data + offset;
	memcpy(records->bounce, data + offset, first);
	memcpy(records->bounce + first, data, len - first);
	return records->bounce;
}

static void drain_ring(struct mmap_records *records, struct cpu_ring *ring,
		       struct mmap_batch *batch)
{
	struct perf_event_mmap_page *page = ring->page;
	const uint8_t *data = (const uint8_t *)page + records->page_bytes;
	size_t size = RING_PAGES * records->page_bytes;
	_Atomic uint64_t *head_at = (_Atomic uint64_t *)&page->data_head;
	_Atomic uint64_t *tail_at = (_Atomic uint64_t *)&page->data_tail;
	uint64_t head = atomic_load_explicit(head_at, memory_order_acquire);
	uint64_t tail = page->data_tail;

	while (tail < head) {
		struct perf_event_header header;
		int rc;

		memcpy(&header, ring_bytes(records, data, size, tail, sizeof(header)),
		       sizeof(header));
		if (header.size < sizeof(header) || header.size > head - tail) {
			batch->lost++;
			tail = head;
			break;
		}
		rc = mmap_batch_parse(batch, ring_bytes(records, data, size, tail, header.size),
				      header.size);
		if (rc == -E2BIG)
			break; /* the rest stays for the next time */
		if (rc < 0)
			batch->lost++;
		tail += header.size;
	}
	atomic_store_explicit(tail_at, tail, memory_order_release);
}

static int by_time(const void *a, const void *b)
{
	const struct mmap_record *left = a, *right = b;

	if (left->time_ns != right->time_ns)
		return left->time_ns < right->time_ns ? -1 : 1;
	/* Stable for one CPU: texts are appended in the order of the ring. */
	return left->path_at < right->path_at ? -1 : 1;
}

void mmap_records_drain_more(struct mmap_records *records, struct mmap_batch *batch, size_t from)
{
	for (unsigned i = 0; i < records->ring_count; i++)
		if (records->rings[i].page)
			drain_ring(records, &records->rings[i], batch);
	if (batch->count > from + 1)
		qsort(batch->records + from, batch->count - from, sizeof(*batch->records), by_time);
}

void mmap_records_drain(struct mmap_records *records, struct mmap_batch *batch)
{
	batch->count = 0;
	batch->text_bytes = 0;
	batch->lost = 0;
	mmap_records_drain_more(records, batch, 0);
}
