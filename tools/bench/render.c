// SPDX-License-Identifier: Apache-2.0
/* Memory and CPU time of writing a profile of a million distinct stacks in every format, to a
 * reader that keeps nothing. Prints a line for each: format, MiB of the profile in memory, MiB
 * written, MiB of resident memory more than before at the worst moment, seconds of CPU time. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <malloc.h>

#include "agent/base/hash.h"
#include "agent/base/io.h"
#include "api/render/render.h"

#define STACKS	  1000000u
#define FUNCTIONS 20000u
#define DEPTH	  24u /* of a stack; the inner half is its own */
#define MIB	  1048576.0

static uint64_t written;

static int count(struct buf_sink *sink, const void *data, size_t len)
{
	(void)sink;
	(void)data;
	written += len;
	return 0;
}

static uint32_t text(struct profile_builder *b, const char *value)
{
	return profile_builder_string(b, value, strlen(value));
}

static void make_frames(struct profile_builder *b, uint32_t *frames)
{
	const struct profile_mapping binary = { .path = text(b, "/usr/bin/program"), .key = 1 };
	uint32_t mapping = profile_builder_mapping(b, &binary), file = text(b, "/src/program.cc");

	for (uint32_t i = 0; i < FUNCTIONS; i++) {
		char name[96], symbol[96];
		struct profile_function function = { .file = file, .line = 10 * i };
		struct profile_frame frame = { .mapping = mapping, .offset = 64 * i, .line = 10 * i + 3 };

		(void)snprintf(name, sizeof(name),
			       "program::part%u::Checker<Type%u>::check(Node const*)", i % 97, i);
		(void)snprintf(symbol, sizeof(symbol),
			       "_ZN7program6part%u7CheckerI8Type%uE5checkEPK4Node", i % 97, i);
		function.name = text(b, name);
		function.symbol = text(b, symbol);
		frame.function = profile_builder_function(b, &function);
		frames[i] = profile_builder_frame(b, &frame);
	}
}

/* A few programs' worth of outer frames, and inner ones that part. */
static struct profile *make_profile(void)
{
	const struct profile_meta meta = { .type = PROFILE_CPU,
					   .duration_ns = 60000000000,
					   .sample_rate = 999 };
	const struct profile_quality quality = { .samples = STACKS };
	struct profile_builder *b = profile_builder_create(&meta, UINT32_MAX / 2);
	uint32_t *frames = calloc(FUNCTIONS, sizeof(*frames));
	struct profile *p = NULL;
	uint64_t random = 1;
	uint32_t attrs;

	if (!b || !frames)
		exit(1);
	make_frames(b, frames);
	attrs = profile_builder_attrs(b, &(struct profile_attrs){ .tid = 7 }, NULL);
	for (uint32_t i = 0; i < STACKS; i++) {
		uint32_t node = 0;

		for (uint32_t d = 0; d < DEPTH; d++) {
			uint64_t pick = d < DEPTH / 2 ? hash_mix64(i % 1000 * DEPTH + d) : hash_mix64(random + d / 2);

			node = profile_builder_node(b, node, frames[(pick + d) % FUNCTIONS]);
		}
		random += i % 3;
		profile_builder_sample(b, node, attrs, (int64_t[]){ 1, 1001001, 0 });
	}
	free(frames);
	if (profile_builder_finish(b, &quality, &p) < 0)
		exit(1);
	profile_builder_destroy(b);
	return p;
}

/* kB of a line of /proc/self/status */
static double status_mib(const char *name)
{
	char status[8192], *at;

	if (io_read_small(AT_FDCWD, "/proc/self/status", status, sizeof(status)) < 0)
		exit(1);
	at = strstr(status, name);
	return at ? strtod(at + strlen(name), NULL) / 1024 : 0;
}

/* proc(5): 5 sets the high-water mark back to what is resident now. */
static void forget_peak(void)
{
	int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, "5", 1) != 1)
		exit(1);
	(void)close(fd);
}

static int measure(const struct profile *p, const struct render_format *format, double profile_mib)
{
	const struct render_options options = { .value_index = profile_value_index(p) };
	struct buf_sink sink = { count, 1u << 16 };
	struct buf out = { .sink = &sink };
	struct err err = { 0 };
	struct timespec from, to;
	double before;
	int rc;

	written = 0;
	(void)malloc_trim(0);
	forget_peak();
	before = status_mib("VmRSS:");
	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
	rc = format->render(p, &options, &out, &err);
	buf_flush(&out);
	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
	if (rc == 0)
		(void)printf("%s %.1f %.1f %.1f %.2f\n", format->name, profile_mib, (double)written / MIB,
			     status_mib("VmHWM:") - before,
			     (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9);
	buf_deinit(&out);
	return rc;
}

int main(void)
{
	double before = status_mib("VmRSS:"), profile_mib;
	struct profile *p = make_profile();

	(void)malloc_trim(0);
	profile_mib = status_mib("VmRSS:") - before;
	for (const struct render_format *format = render_formats; format->name; format++)
		if (measure(p, format, profile_mib) < 0 && strcmp(format->name, "pgo") != 0)
			return 1;
	(void)profile_unref(p);
	return 0;
}
