// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/target_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#include "agent/base/clock.h"
#include "agent/base/io.h"
#include "agent/reader/watch.h"

/* /proc/PID/stat counts in USER_HZ, 100 on every Linux architecture that profd runs on (proc(5)).
 */
#define TICK_NS (NS_PER_S / 100)

/* Field 22 of /proc/PID/stat in clock ticks since boot; the second field may contain anything. */
static int target_start_ticks(int proc_fd, uint64_t *ret)
{
	char text[1024], *at;
	unsigned long long ticks;
	ssize_t len = io_read_small(proc_fd, "stat", text, sizeof(text));

	if (len < 0)
		return len == -ENOENT ? -ESRCH : (int)len;
	at = strrchr(text, ')');
	if (!at)
		return -ESRCH;
	if (sscanf(at + 1,
		   " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
		   "%*d %*d %llu",
		   &ticks) != 1)
		return -ESRCH;
	*ret = ticks;
	return 0;
}

int target_open(uint32_t tgid, uint64_t start_boottime_ns, struct target *ret)
{
	cleanup_close int fd = -1;
	char path[32];
	uint64_t ticks;
	int rc;

	(void)snprintf(path, sizeof(path), "/proc/%u", tgid);
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	rc = target_start_ticks(fd, &ticks);
	if (rc < 0)
		return rc;
	if (start_boottime_ns && start_boottime_ns / TICK_NS != ticks)
		return -ESRCH;
	*ret = (struct target){ .proc_fd = take_fd(&fd),
				.mem_fd = -1,
				.tgid = tgid,
				.start_boottime_ns =
					start_boottime_ns ? start_boottime_ns : ticks * TICK_NS };
	return 0;
}

void target_close(struct target *target)
{
	if (target->proc_fd >= 0)
		(void)close(target->proc_fd);
	if (target->mem_fd >= 0)
		(void)close(target->mem_fd);
	target->proc_fd = target->mem_fd = -1;
}

int target_check(const struct target *target)
{
	uint64_t ticks;
	int rc = target_start_ticks(target->proc_fd, &ticks);

	if (rc < 0)
		return -ESRCH;
	return ticks == target->start_boottime_ns / TICK_NS ? 0 : -ESRCH;
}

/* One piece through /proc/PID/mem, which belongs to the address space that it was opened for. */
static int mem_read_piece(struct target *target, struct target_piece *piece)
{
	while (piece->got < piece->len) {
		ssize_t got;

		watch_touch();
		got = pread(target->mem_fd, (char *)piece->buf + piece->got,
			    piece->len - piece->got, (off_t)(piece->va + piece->got));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && errno == ESRCH)
			return -ESRCH;
		if (got <= 0) /* EIO: not mapped; 0: the address space is gone */
			return 0;
		piece->got += (uint32_t)got;
		target->read_bytes += (uint64_t)got;
	}
	return 0;
}

/* After process_vm_readv failed with @error: seccomp and old containers refuse it where the file
 * works. */
static int mem_open(struct target *target, int error)
{
	if (target->mem_fd >= 0)
		return 0;
	if (error != ENOSYS && error != EPERM)
		return -error;
	target->mem_fd = openat(target->proc_fd, "mem", O_RDONLY | O_CLOEXEC);
	if (target->mem_fd >= 0)
		return 0;
	return errno == ENOENT || errno == ESRCH ? -ESRCH : -EPERM;
}

/* Up to TARGET_BATCH_MAX pieces by one call. Returns how many pieces are settled (read, or not
 * readable), at least 1, or a negative errno. */
static ssize_t vm_read_pieces(struct target *target, struct target_piece *pieces, size_t count)
{
	struct iovec local[TARGET_BATCH_MAX], remote[TARGET_BATCH_MAX];
	size_t settled = 0;
	ssize_t got;

	for (size_t i = 0; i < count; i++) {
		local[i] = (struct iovec){ pieces[i].buf, pieces[i].len };
		remote[i] = (struct iovec){ (void *)(uintptr_t)pieces[i].va, pieces[i].len };
	}
	watch_touch();
	got = process_vm_readv((pid_t)target->tgid, local, count, remote, count, 0);
	if (got < 0 && errno == EFAULT)
		got = 0;
	if (got < 0)
		return -errno;
	target->read_bytes += (uint64_t)got;
	while (settled < count && (size_t)got >= pieces[settled].len) {
		pieces[settled].got = pieces[settled].len;
		got -= pieces[settled++].len;
	}
	/* The first piece that is short is where the call stopped: it is settled too. */
	if (settled < count)
		pieces[settled++].got = (uint32_t)got;
	return (ssize_t)settled;
}

int target_read_batch(struct target *target, struct target_piece *pieces, size_t count)
{
	for (size_t i = 0; i < count; i++)
		pieces[i].got = 0;
	while (count && target->mem_fd < 0) {
		size_t batch = count < TARGET_BATCH_MAX ? count : TARGET_BATCH_MAX;
		ssize_t settled = vm_read_pieces(target, pieces, batch);

		if (settled < 0) {
			int rc = mem_open(target, (int)-settled);

			if (rc < 0)
				return rc;
			break;
		}
		pieces += settled;
		count -= (size_t)settled;
	}
	for (size_t i = 0; i < count; i++) {
		int rc = mem_read_piece(target, &pieces[i]);

		if (rc < 0)
			return rc;
	}
	return 0;
}

ssize_t target_read_some(struct target *target, uint64_t va, void *buf, size_t len)
{
	struct target_piece piece = { .va = va,
				      .buf = buf,
				      .len = len > INT32_MAX ? INT32_MAX : (uint32_t)len };
	int rc = target_read_batch(target, &piece, 1);

	if (rc < 0)
		return rc;
	return piece.got || !len ? (ssize_t)piece.got : -EFAULT;
}

int target_read(struct target *target, uint64_t va, void *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t got = target_read_some(target, va + done, (char *)buf + done, len - done);

		if (got < 0)
			return (int)got;
		done += (size_t)got;
	}
	return 0;
}
