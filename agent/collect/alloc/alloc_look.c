// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/alloc/alloc_look.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/io.h"
#include "agent/base/pidfd.h"

#define ANSWER_NS (5 * NS_PER_S) /* a busy machine is no hostile target */

static _Noreturn void read_all(const struct alloc_look_request *request, struct alloc_seen *seen,
			       int fd)
{
	(void)prctl(PR_SET_NAME, "profd-looks");
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	io_close_others(fd, fd);
	if (seen->header_count) {
		seen->headers_read = alloc_headers_read(request->headers, seen->headers, seen->header_count) == 0;
		seen->key = request->headers->key;
	}
	alloc_large_read(request->place->tgid, seen->blocks, seen->block_count);
	if (request->file)
		(void)!alloc_check_bytes(request->place, request->file, &seen->err);
	_exit(write(fd, "", 1) == 1 ? 0 : 1);
}

/* The questions, where the child writes the answers. */
static int share(struct alloc_look *look, const struct alloc_look_request *request)
{
	const size_t blocks = request->large ? request->large->blocks.count : 0;
	const size_t bytes = sizeof(struct alloc_seen) +
			     request->followed_count * sizeof(struct alloc_header) +
			     blocks * sizeof(struct alloc_large_block);
	struct alloc_seen *seen =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (seen == MAP_FAILED)
		return -ENOMEM;
	seen->headers = (struct alloc_header *)(seen + 1);
	seen->header_count = request->followed_count;
	for (size_t i = 0; i < request->followed_count; i++)
		seen->headers[i] = (struct alloc_header){
			.address = request->followed[i].address,
			.bytes = request->followed[i].bytes,
			.around = (hash_combine(request->followed[i].address, 0) + request->turn) %
					  (request->turns + !request->turns) ==
				  0,
		};
	seen->blocks = (struct alloc_large_block *)(seen->headers + seen->header_count);
	seen->block_count = blocks;
	if (blocks)
		memcpy(seen->blocks, request->large->blocks.data, blocks * sizeof(*seen->blocks));
	look->seen = seen;
	look->bytes = bytes;
	return 0;
}

int alloc_look_start(struct alloc_look *look, const struct alloc_look_request *request,
		     uint64_t now_ns)
{
	int fds[2], rc;

	*look = (struct alloc_look){ .fd = -1 };
	rc = share(look, request);
	if (rc < 0)
		return rc;
	look->seen->begun_ns = now_ns;
	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0) {
		rc = -errno;
		alloc_look_stop(look);
		return rc;
	}
	(void)signal(SIGCHLD, SIG_IGN); /* nobody waits for it */
	look->pid = fork();
	if (look->pid == 0)
		read_all(request, look->seen, fds[1]);
	(void)close(fds[1]);
	look->fd = fds[0];
	look->until_ns = now_ns + ANSWER_NS;
	if (look->pid > 0) {
		look->pidfd = pidfd_of_child(look->pid);
		return 0;
	}
	look->pid = 0;
	alloc_look_stop(look);
	return -EAGAIN;
}

int alloc_look_poll(struct alloc_look *look, uint64_t now_ns)
{
	char sign;
	ssize_t len = read(look->fd, &sign, 1);

	if (len < 0 && (errno == EAGAIN || errno == EINTR))
		return now_ns < look->until_ns ? -EAGAIN : -ETIMEDOUT;
	return len == 1 ? 0 : -EIO;
}

void alloc_look_stop(struct alloc_look *look)
{
	if (look->pid > 0) {
		pidfd_kill(look->pidfd);
		cleanup_close_fn(&look->pidfd);
	}
	if (look->seen && look->fd >= 0)
		(void)close(look->fd);
	if (look->seen)
		(void)munmap(look->seen, look->bytes);
	*look = (struct alloc_look){ .fd = -1 };
}
