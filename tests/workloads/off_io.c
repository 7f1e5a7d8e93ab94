// SPDX-License-Identifier: Apache-2.0
/* Reads and writes of known sizes in functions of known names, most of which never wait. Every line
 * of standard input is answered with {"function": [bytes, calls], …}. At the line "move" two
 * threads of their own, one that is there from the start and one that comes and goes, read and
 * write by every means there is, once; their totals are in the answer. The arguments are a folder
 * and, for a tenth of the calls in a turn, the milliseconds between two turns. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "aio.h"
#include "ring.h"

#define F __attribute__((noipa)) static long

enum { READ, WRITE, PIPE, SOCKET, COUNT };

static const char *const names[COUNT] = { "read_file", "write_file", "write_pipe", "send_socket" };
static unsigned long long bytes[COUNT], calls[COUNT];
static int file, pipes[2], sockets[2];
static char block[65536];
static int turn_ms;

F read_file(void)
{
	long n = pread(file, block, 65536, 0);

	__asm__ volatile("" : "+r"(n));
	return n;
}

F write_file(void)
{
	long n = pwrite(file, block, 3000, 0);

	__asm__ volatile("" : "+r"(n));
	return n;
}

F write_pipe(void)
{
	long n = write(pipes[1], block, 100);

	__asm__ volatile("" : "+r"(n));
	return n;
}

F send_socket(void)
{
	long n = send(sockets[1], block, 20000, 0);

	__asm__ volatile("" : "+r"(n));
	return n;
}

static long (*const functions[COUNT])(void) = { read_file, write_file, write_pipe, send_socket };

/* Often enough to be seen, seldom enough to leave the CPU to others. */
static void *run(void *argument)
{
	static const int turns[COUNT] = { 2, 40, 600, 6 };
	struct timespec nap = { .tv_nsec = turn_ms ? turn_ms * 1000000l : 3000000 };
	char sink[65536];

	(void)argument;
	for (;;) {
		for (int which = 0; which < COUNT; which++) {
			for (int i = 0; i < (turn_ms ? (turns[which] + 9) / 10 : turns[which]); i++) {
				long n = functions[which]();

				if (n <= 0)
					exit(1);
				__atomic_fetch_add(&bytes[which], n, __ATOMIC_RELAXED);
				__atomic_fetch_add(&calls[which], 1, __ATOMIC_RELAXED);
				if (which == SOCKET)
					(void)recv(sockets[0], sink, sizeof(sink), 0);
			}
			if (which == PIPE && read(pipes[0], sink, sizeof(sink)) <= 0)
				exit(1);
		}
		(void)nanosleep(&nap, NULL);
	}
	return NULL;
}

/* ---- by every means -------------------------------------------------------------------------- */

struct mover {
	unsigned long long bytes, by_ring;
	int pipes[2], sockets[2];
};

static sem_t move, moved;
static unsigned long long totals[2], by_ring[2]; /* the part of them that io_uring moved */
static const char *const movers[2] = { "steady", "passing" };

static void add(struct mover *m, long n)
{
	if (n <= 0)
		exit(2);
	m->bytes += (unsigned long long)n;
}

/* One request of io_uring after the other; nothing where the kernel refuses it. */
static long ring_move(struct ring *r, int code, int fd, unsigned bytes)
{
	struct io_uring_sqe *entry = ring_request(r, code, fd);
	struct io_uring_cqe done = { 0 };
	char buffer[8192] = "";

	entry->addr = (unsigned long long)(size_t)buffer;
	entry->len = bytes;
	ring_enter(r, 1, 1);
	(void)ring_next(r, &done);
	return done.res;
}

static void move_by_ring(struct mover *m)
{
	struct ring ring;

	if (ring_open(&ring, 1, 0, 0) == 0)
		for (int i = 0; i < 20; i++) {
			add(m, ring_move(&ring, IORING_OP_WRITE, file, 5000));
			add(m, ring_move(&ring, IORING_OP_READ, file, 4321));
			add(m, ring_move(&ring, IORING_OP_SEND, m->sockets[0], 77));
			add(m, ring_move(&ring, IORING_OP_RECV, m->sockets[1], 77));
		}
	(void)close(ring.fd);
}

/* Moves bytes by Linux AIO: three requests at two files in one batch, then one request alone. */
static void move_by_aio(struct mover *m)
{
	struct iocb requests[3] = { aio_request(IOCB_CMD_PWRITE, file, block, 7001, 1),
				    aio_request(IOCB_CMD_PREAD, file, block, 6001, 2),
				    aio_request(IOCB_CMD_PWRITE, m->pipes[1], block, 501, 3) };
	aio_context_t context = 0;
	char buffer[501];

	if (syscall(SYS_io_setup, AIO_MAX, &context) || aio_ask(context, requests, 3) != 3)
		exit(1);
	add(m, aio_collect(context, SYS_io_getevents, 3));
	if (aio_ask(context, requests, 1) != 1)
		exit(1);
	add(m, aio_collect(context, SYS_io_pgetevents, 1));
	add(m, read(m->pipes[0], buffer, sizeof(buffer)));
}

static long length_of(const struct mmsghdr *messages, int count)
{
	long n = 0;

	for (int i = 0; i < count; i++)
		n += messages[i].msg_len;
	return n;
}

static void __attribute__((noipa)) move_all(struct mover *m)
{
	char buffer[20000];
	struct iovec parts[2] = { { buffer, 1234 }, { buffer, 4321 } };
	struct mmsghdr messages[3];
	unsigned long long before;
	off_t at = 0;

	for (int i = 0; i < 100; i++) {
		add(m, pwrite(file, block, 12345, 0));
		add(m, pread(file, buffer, 11111, 0));
		add(m, pwritev(file, parts, 2, 0));
		add(m, preadv(file, parts, 2, 0));
		add(m, write(m->pipes[1], block, 100 + (size_t)i));
		add(m, read(m->pipes[0], buffer, sizeof(buffer)));
		add(m, send(m->sockets[0], block, 20000, 0));
		add(m, recv(m->sockets[1], buffer, sizeof(buffer), 0));
		add(m, write(m->sockets[0], block, 17));
		add(m, read(m->sockets[1], buffer, sizeof(buffer)));
	}
	for (int i = 0; i < 3; i++)
		messages[i].msg_hdr = (struct msghdr){ .msg_iov = parts, .msg_iovlen = 2 };
	add(m, length_of(messages, sendmmsg(m->sockets[0], messages, 3, 0)));
	add(m, length_of(messages, recvmmsg(m->sockets[1], messages, 3, MSG_WAITALL, NULL)));
	add(m, vmsplice(m->pipes[1], parts, 2, 0));
	add(m, read(m->pipes[0], buffer, sizeof(buffer)));
	add(m, sendfile(m->sockets[0], file, &at, 3000));
	add(m, splice(m->sockets[1], NULL, m->pipes[1], NULL, 3000, 0));
	add(m, read(m->pipes[0], buffer, sizeof(buffer)));
	before = m->bytes;
	move_by_ring(m);
	m->by_ring += m->bytes - before;
	move_by_aio(m);
	__asm__ volatile("");
}

static int connect_pair(int ret[2])
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	ret[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (listener < 0 || ret[0] < 0 || bind(listener, (struct sockaddr *)&address, len) ||
	    listen(listener, 1) || getsockname(listener, (struct sockaddr *)&address, &len) ||
	    connect(ret[0], (struct sockaddr *)&address, len))
		return -1;
	ret[1] = accept(listener, NULL, NULL);
	(void)close(listener);
	return ret[1];
}

static void *mover_main(void *argument)
{
	long which = (long)argument;
	struct mover m = { 0 };

	pthread_setname_np(pthread_self(), movers[which]);
	if (pipe(m.pipes) || connect_pair(m.sockets) < 0)
		exit(1);
	do {
		if (which == 0)
			(void)sem_wait(&move);
		m.bytes = m.by_ring = 0;
		move_all(&m);
		totals[which] += m.bytes;
		by_ring[which] += m.by_ring;
		(void)sem_post(&moved);
	} while (which == 0);
	return NULL;
}

static void move_once(void)
{
	pthread_t thread;

	(void)sem_post(&move);
	if (pthread_create(&thread, NULL, mover_main, (void *)1) || pthread_join(thread, NULL))
		exit(1);
	(void)sem_wait(&moved);
	(void)sem_wait(&moved);
}

int main(int argc, char **argv)
{
	char line[64], path[4096];
	pthread_t thread;

	turn_ms = argc > 2 ? atoi(argv[2]) : 0;
	(void)snprintf(path, sizeof(path), "%s/off_io.XXXXXX", argc > 1 ? argv[1] : "/var/tmp");
	file = mkstemp(path);
	if (file < 0 || unlink(path) < 0 || write(file, block, sizeof(block)) != sizeof(block) ||
	    pipe(pipes) < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) < 0 ||
	    sem_init(&move, 0, 0) || sem_init(&moved, 0, 0) || pthread_create(&thread, NULL, run, NULL) ||
	    pthread_create(&thread, NULL, mover_main, (void *)0))
		return 1;
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (strcmp(line, "move\n") == 0)
			move_once();
		for (int i = 0; i < COUNT; i++)
			printf("%s\"%s\": [%llu, %llu]", i ? ", " : "{", names[i],
			       __atomic_load_n(&bytes[i], __ATOMIC_RELAXED),
			       __atomic_load_n(&calls[i], __ATOMIC_RELAXED));
		for (int i = 0; i < 2; i++)
			printf(", \"%s\": %llu", movers[i], totals[i]);
		printf(", \"by_ring\": %llu", by_ring[0] + by_ring[1]);
		printf("}\n");
		fflush(stdout);
	}
	return 0;
}
