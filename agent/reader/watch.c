// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/base/channel.h"
#include "agent/base/clock.h"
#include "agent/base/io.h"
#include "agent/base/text.h"
#include "agent/wire/control.h"

#define SET_AGAIN_NS                                                                               \
	(500 * NS_PER_MS) /* a system call for every read would cost as much as the read */

static uint64_t until_ns, set_ns; /* until_ns 0 = off; the thread reads it */

static struct {
	int control_fd, server_fd;
	uint32_t request;
	pid_t main_tid;
} hang;

static void set(uint64_t now_ns)
{
	uint64_t left_s = until_ns > now_ns ? (until_ns - now_ns) / NS_PER_S + 1 : 1;

	set_ns = now_ns;
	(void)alarm(left_s < WATCH_HANG_S ? (unsigned)left_s : WATCH_HANG_S);
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* A thread that waits for a CPU, or for the whole machine, does not hang. */
static bool wants_to_run(void)
{
	char path[48], text[512];
	const char *name_end;

	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/stat", hang.main_tid);
	if (io_read_small(AT_FDCWD, path, text, sizeof(text)) < 0)
		return false;
	name_end = strrchr(text, ')');
	return name_end && text_begins(name_end, ") R");
}

static _Noreturn void end(void)
{
	static const char text[] =
		"its memory or its files do not answer (a userfaultfd or FUSE mapping?)";
	const struct channel_head hung = { .kind = CONTROL_HUNG };
	struct {
		struct control_read_chunk head;
		char text[sizeof(text)];
	} chunk = { .head = { .head = { .kind = CONTROL_READ_CHUNK, .request = hang.request },
			      .status = -EHOSTDOWN,
			      .len = sizeof(text) - 1 } };

	memcpy(chunk.text, text, sizeof(text));
	/* The supervisor's answer is SIGKILL: its turn is last. */
	(void)!channel_send(hang.server_fd, &chunk, sizeof(chunk.head) + sizeof(text) - 1, NULL, 0);
	(void)!channel_send(hang.control_fd, &hung, sizeof(hung), NULL, 0);
	/* Whoever reads what the daemon writes does not wait for the end of this process. */
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		(void)close(fd);
	_exit(1);
}

static void *await_alarm(void *unused)
{
	sigset_t alarms;
	int number;

	(void)unused;
	(void)sigemptyset(&alarms);
	(void)sigaddset(&alarms, SIGALRM);
	for (;;) {
		uint64_t until;

		if (sigwait(&alarms, &number) != 0)
			continue;
		until = __atomic_load_n(&until_ns, __ATOMIC_ACQUIRE);
		if (!until)
			continue; /* the read came back at the last moment */
		if (wants_to_run() && clock_monotonic_ns() < until)
			(void)alarm(WATCH_HANG_S);
		else
			end();
	}
}

int watch_init(int control_fd)
{
	sigset_t alarms;
	pthread_t thread;
	int rc;

	hang.control_fd = control_fd;
	hang.main_tid = getpid();
	(void)sigemptyset(&alarms);
	(void)sigaddset(&alarms, SIGALRM);
	rc = pthread_sigmask(SIG_BLOCK, &alarms, NULL);
	if (rc == 0)
		rc = pthread_create(&thread, NULL, await_alarm, NULL);
	return -rc;
}

/* ---- the reader ------------------------------------------------------------------------------ */

void watch_start(uint64_t until, int server_fd, uint32_t request)
{
	hang.server_fd = server_fd;
	hang.request = request;
	__atomic_store_n(&until_ns, until, __ATOMIC_RELEASE);
	set(clock_monotonic_ns());
}

void watch_stop(void)
{
	__atomic_store_n(&until_ns, 0, __ATOMIC_RELEASE);
	(void)alarm(0);
}

void watch_pause(void)
{
	uint64_t now_ns = clock_monotonic_ns();

	if (!until_ns)
		return;
	set_ns = 0;
	(void)alarm(until_ns > now_ns ? (unsigned)((until_ns - now_ns) / NS_PER_S + 1) : 1);
}

void watch_touch(void)
{
	uint64_t now_ns;

	if (!until_ns)
		return;
	now_ns = clock_monotonic_ns();
	/* Too late: the alarm that is set already ends it. */
	if (now_ns - set_ns > SET_AGAIN_NS && now_ns < until_ns)
		set(now_ns);
}
