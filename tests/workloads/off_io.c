// SPDX-License-Identifier: Apache-2.0
/* Reads and writes of known sizes in functions of known names, most of which never wait. Every line of
 * standard input is answered with {"function": [bytes, calls], …}. The argument is a folder. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define F __attribute__((noipa)) static long

enum { READ, WRITE, PIPE, SOCKET, COUNT };

static const char *const names[COUNT] = { "read_file", "write_file", "write_pipe", "send_socket" };
static unsigned long long bytes[COUNT], calls[COUNT];
static int file, pipes[2], sockets[2];
static char block[65536];

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
	struct timespec nap = { .tv_nsec = 3000000 };
	char sink[65536];

	(void)argument;
	for (;;) {
		for (int which = 0; which < COUNT; which++) {
			for (int i = 0; i < turns[which]; i++) {
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

int main(int argc, char **argv)
{
	char line[64], path[4096];
	pthread_t thread;

	(void)snprintf(path, sizeof(path), "%s/off_io.XXXXXX", argc > 1 ? argv[1] : "/var/tmp");
	file = mkstemp(path);
	if (file < 0 || unlink(path) < 0 || write(file, block, sizeof(block)) != sizeof(block) ||
	    pipe(pipes) < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) < 0 ||
	    pthread_create(&thread, NULL, run, NULL))
		return 1;
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		for (int i = 0; i < COUNT; i++)
			printf("%s\"%s\": [%llu, %llu]", i ? ", " : "{", names[i],
			       __atomic_load_n(&bytes[i], __ATOMIC_RELAXED),
			       __atomic_load_n(&calls[i], __ATOMIC_RELAXED));
		printf("}\n");
		fflush(stdout);
	}
	return 0;
}
