// SPDX-License-Identifier: Apache-2.0
/* Requests of io_uring that post many completions: each in a thread of its own that moves bytes in
 * one function of the same name only. Some are handed in before it says `ready`, the others, and
 * what all of them receive, at the line "move", which is answered with {"function": bytes, ...}:
 * what each says to have moved, 0 where the kernel has no such request. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "ring.h"

#define F __attribute__((noipa)) static long

/* Newer than the headers here: include/uapi/linux/io_uring.h of 6.18. */
#define READ_MULTISHOT 49
#define BUNDLE	       0x10

#define BUFFERS	      8u
#define BUFFER_BYTES  65536u
#define CONTROL_BYTES 64u
#define ROUNDS	      3
#define PART_BYTES    40000u
#define ROOM_BYTES    212992 /* of sockets: nobody reads while they are fed */

/* A request, the ring of its own in which it is, and what it receives from. */
struct many {
	const char *name;
	long (*run)(struct many *);
	int code;
	bool armed;	      /* before anybody looks */
	unsigned completions; /* that there is room for, 0: enough */
	unsigned flags;	      /* IORING_SETUP_* */
	sem_t go;
	struct ring ring;
	int from, to;
	long fed, moved;
	struct msghdr header;
	char buffers[BUFFERS][BUFFER_BYTES];
};

static sem_t done;
static char sink[65536];

static void need(bool is_so)
{
	if (!is_so) {
		perror("ring_posts");
		exit(1);
	}
}

static void provide(struct many *m)
{
	struct io_uring_sqe *entry = ring_request(&m->ring, IORING_OP_PROVIDE_BUFFERS, BUFFERS);
	struct io_uring_cqe cqe;

	entry->addr = (unsigned long long)(size_t)m->buffers;
	entry->len = BUFFER_BYTES;
	ring_enter(&m->ring, 1, 1);
	need(ring_next(&m->ring, &cqe) && cqe.res >= 0);
}

static void ask(struct many *m)
{
	struct io_uring_sqe *entry = ring_request(&m->ring, m->code, m->from);

	entry->flags = IOSQE_BUFFER_SELECT;
	entry->ioprio = m->code == READ_MULTISHOT ? 0 : IORING_RECV_MULTISHOT;
	entry->user_data = 4711;
	if (m->code == IORING_OP_RECVMSG)
		entry->addr = (unsigned long long)(size_t)&m->header;
	ring_enter(&m->ring, 1, 0);
}

static void make_room(int fd)
{
	const int bytes = ROOM_BYTES;

	need(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) == 0 &&
	     setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)) == 0);
}

static void connect_pair(int type, int ret[2])
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(address);
	int listener = socket(AF_INET, type, 0);

	ret[1] = socket(AF_INET, type, 0);
	make_room(listener);
	make_room(ret[1]);
	need(bind(listener, (struct sockaddr *)&address, len) == 0 &&
	     getsockname(listener, (struct sockaddr *)&address, &len) == 0 &&
	     (type == SOCK_DGRAM || listen(listener, 1) == 0) &&
	     connect(ret[1], (struct sockaddr *)&address, len) == 0);
	ret[0] = type == SOCK_DGRAM ? listener : accept(listener, NULL, NULL);
	need(ret[0] >= 0);
}

static void prepare(struct many *m)
{
	int ends[2];

	if (m->code == READ_MULTISHOT)
		need(pipe(ends) == 0 && fcntl(ends[1], F_SETPIPE_SZ, 4 * PART_BYTES) > 0);
	else if (m->completions)
		need(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
	else
		connect_pair(m->code == IORING_OP_RECVMSG ? SOCK_DGRAM : SOCK_STREAM, ends);
	if (m->completions)
		make_room(ends[1]);
	m->from = ends[0];
	m->to = ends[1];
	m->header = (struct msghdr){ .msg_namelen = sizeof(struct sockaddr_storage),
				     .msg_controllen = CONTROL_BYTES };
	need(ring_open(&m->ring, 2, m->completions, m->flags) == 0);
	provide(m);
	if (m->armed)
		ask(m);
}

/* The bytes of the message itself, without the header that RECVMSG writes before them. */
static long payload(struct many *m, const struct io_uring_cqe *cqe)
{
	const struct io_uring_recvmsg_out *out = (void *)m->buffers[cqe->flags >> IORING_CQE_BUFFER_SHIFT];

	need(cqe->res > 0);
	if (m->code != IORING_OP_RECVMSG)
		return cqe->res;
	need(out->payloadlen + sizeof(*out) + sizeof(struct sockaddr_storage) + CONTROL_BYTES ==
	     (size_t)cqe->res);
	return out->payloadlen;
}

/* All of @bytes, in parts or as one. */
static long take(struct many *m, long bytes)
{
	struct io_uring_cqe cqe;
	long sum = 0;

	while (sum < bytes) {
		ring_enter(&m->ring, 0, 1);
		while (ring_next(&m->ring, &cqe)) {
			if (m->code == READ_MULTISHOT && cqe.res == -EINVAL)
				return 0;
			sum += payload(m, &cqe);
		}
	}
	return sum;
}

/* Asked for now, data is there already. */
static long receive(struct many *m)
{
	if (!m->armed)
		ask(m);
	return take(m, m->fed);
}

#define RECEIVES(name)                                                                             \
	F name(struct many *m)                                                                     \
	{                                                                                          \
		return receive(m);                                                                 \
	}

RECEIVES(recv_armed)
RECEIVES(recvmsg_armed)
RECEIVES(read_armed)
RECEIVES(recv_now)
RECEIVES(recvmsg_now)
RECEIVES(read_now)

/* Completed as the thread leaves the call that sends. */
F recv_at_once(struct many *m)
{
	long n = 0;

	ask(m);
	for (int i = 0; i < ROUNDS; i++) {
		need(write(m->to, sink, PART_BYTES) == PART_BYTES);
		n += PART_BYTES + take(m, PART_BYTES);
	}
	return n;
}

/* Many buffers in one request: half of them in its first completion. */
F send_bundle(struct many *m)
{
	static struct io_uring_buf ring_of_buffers[BUFFERS] __attribute__((aligned(4096)));
	struct io_uring_buf_reg registered = { .ring_addr = (unsigned long long)(size_t)ring_of_buffers,
					       .ring_entries = BUFFERS, .bgid = 1 };
	struct io_uring_sqe *entry;
	struct io_uring_cqe cqe;
	long n = 0;

	need(syscall(SYS_io_uring_register, m->ring.fd, IORING_REGISTER_PBUF_RING, &registered, 1) == 0);
	for (unsigned short i = 0; i < BUFFERS; i++) {
		ring_of_buffers[i].addr = (unsigned long long)(size_t)sink;
		ring_of_buffers[i].len = sizeof(sink) / BUFFERS;
		ring_of_buffers[i].bid = i;
	}
	/* the tail lies in the first one (struct io_uring_buf_ring) */
	__atomic_store_n(&ring_of_buffers[0].resv, BUFFERS, __ATOMIC_RELEASE);
	entry = ring_request(&m->ring, IORING_OP_SEND, m->to);
	entry->buf_group = 1;
	entry->flags = IOSQE_BUFFER_SELECT;
	entry->ioprio = BUNDLE;
	entry->len = sizeof(sink) / 2; /* of the first one */
	do {
		ring_enter(&m->ring, n == 0, 1);
		while (ring_next(&m->ring, &cqe) && cqe.res > 0)
			n += cqe.res;
	} while (cqe.res > 0 && cqe.flags & IORING_CQE_F_MORE);
	return n;
}

/* Two completions fit; the request ends with the third, which does not. Then nobody can say which
 * request it is that sends. */
F recv_full(struct many *m)
{
	struct io_uring_sqe *entry;

	ask(m);
	entry = ring_request(&m->ring, IORING_OP_SEND, m->to);
	entry->addr = (unsigned long long)(size_t)sink;
	entry->len = PART_BYTES;
	need(syscall(SYS_io_uring_enter, m->ring.fd, 1, 0, 0, NULL, 0) == 1);
	return m->fed;
}

/* completions come when the thread asks for them, so in the function that does */
#define ASKED (IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN)

#define THREAD(function, ...) { .name = #function, .run = function, __VA_ARGS__ }
static struct many threads[] = {
	THREAD(recv_armed, .code = IORING_OP_RECV, .armed = true, .flags = ASKED),
	THREAD(recvmsg_armed, .code = IORING_OP_RECVMSG, .armed = true, .flags = ASKED),
	THREAD(read_armed, .code = READ_MULTISHOT, .armed = true, .flags = ASKED),
	THREAD(recv_now, .code = IORING_OP_RECV, .flags = ASKED),
	THREAD(recvmsg_now, .code = IORING_OP_RECVMSG, .flags = ASKED),
	THREAD(read_now, .code = READ_MULTISHOT, .flags = ASKED),
	THREAD(recv_at_once, .code = IORING_OP_RECV),
	THREAD(send_bundle, .code = IORING_OP_RECV),
	THREAD(recv_full, .code = IORING_OP_RECV, .completions = 2, .flags = ASKED),
};
#define COUNT (sizeof(threads) / sizeof(threads[0]))

static void *thread_main(void *argument)
{
	struct many *m = argument;

	pthread_setname_np(pthread_self(), m->name);
	prepare(m);
	(void)sem_post(&done);
	(void)sem_wait(&m->go);
	m->moved = m->run(m);
	(void)sem_post(&done);
	(void)sem_wait(&m->go);
	return NULL;
}

/* Something to be seen from the start: a session begins when it sees the program. */
static void *ticker(void *argument)
{
	int zero = open("/dev/zero", O_RDONLY);
	char byte;

	while (read(zero, &byte, 1) == 1)
		(void)usleep(20000);
	return argument;
}

static void move(struct many *m)
{
	for (int i = 0; i < ROUNDS && m->flags; i++) {
		long n = write(m->to, sink, PART_BYTES + 37 * (size_t)i);

		need(n > 0);
		m->fed += n;
	}
	(void)sem_post(&m->go);
	(void)sem_wait(&done);
}

int main(void)
{
	pthread_t thread;
	char line[64];

	need(sem_init(&done, 0, 0) == 0 && pthread_create(&thread, NULL, ticker, NULL) == 0);
	for (size_t i = 0; i < COUNT; i++) {
		need(sem_init(&threads[i].go, 0, 0) == 0 &&
		     pthread_create(&thread, NULL, thread_main, &threads[i]) == 0);
		(void)sem_wait(&done);
	}
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		for (size_t i = 0; i < COUNT && strcmp(line, "move\n") == 0; i++)
			move(&threads[i]);
		for (size_t i = 0; i < COUNT; i++)
			printf("%s\"%s\": %ld", i ? ", " : "{", threads[i].name, threads[i].moved);
		printf("}\n");
		fflush(stdout);
	}
	return 0;
}
