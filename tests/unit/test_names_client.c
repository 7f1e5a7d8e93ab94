// SPDX-License-Identifier: Apache-2.0
/* Names of a module whose debug information is being read: what was answered before is asked for
 * again as soon as the symbolizer has better ones, and until then the profile says that they are
 * coming. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "agent/base/channel.h"
#include "agent/profile/quality.h"
#include "agent/recording/names_client.h"

#define MODULE 7

/* A symbolizer that answers "coarse" names @coming times, then "fine" ones. */
struct symbolizer {
	int fd, client_fd;
	int coming;
	bool nameless; /* knows where functions begin until then, not what they are called */
	bool forgets;  /* knows no module */
	bool changes;  /* odd offsets are a kernel module's */
	enum names_state settled; /* of fine names */
	pthread_t thread;
	struct names_client *client;
};

static void put(char **at, const void *data, size_t len)
{
	memcpy(*at, data, len);
	*at += len;
}

static void put_text(char **at, const char *text)
{
	uint16_t len = (uint16_t)strlen(text);

	put(at, &len, sizeof(len));
	put(at, text, len);
}

static void answer(struct symbolizer *s, const struct control_names *names, char *out)
{
	struct control_named head = { .head = { .kind = CONTROL_NAMED, .request = names->head.request },
				      .count = names->count,
				      .state = s->coming > 0 ? NAMES_COMING : s->settled };
	const bool is_coarse = s->coming-- > 0, nameless = is_coarse && s->nameless;
	const char *kind = is_coarse ? "coarse" : "fine";
	char *at = out;

	if (s->forgets)
		head = (struct control_named){ .head = head.head, .status = -ENOENT };
	put(&at, &head, sizeof(head));
	for (uint32_t i = 0; i < head.count; i++) {
		uint32_t changes = s->changes && names->offsets[i] % 2 ? NAMED_CHANGES : 0;
		uint32_t lines[2] = { nameless ? (uint32_t)names->offsets[i] : 1, (nameless ? 0 : 1) | changes };
		uint16_t count = 1;
		char name[32];

		(void)snprintf(name, sizeof(name), "%s_%llu", kind, (unsigned long long)names->offsets[i]);
		if (nameless)
			name[0] = '\0';
		put(&at, &count, sizeof(count));
		put(&at, lines, sizeof(lines));
		put_text(&at, name);
		put_text(&at, nameless ? "" : "a.c");
		put_text(&at, "");
	}
	assert_int_equal(channel_send_wait(s->fd, out, (size_t)(at - out), NULL, 0, 10000), 0);
}

static void *serve(void *ctx)
{
	struct channel_message *message = calloc(1, sizeof(*message));
	char *out = malloc(CHANNEL_MESSAGE_MAX);
	struct symbolizer *s = ctx;
	int rc = 0;

	while (rc >= 0) {
		(void)poll(&(struct pollfd){ .fd = s->fd, .events = POLLIN }, 1, -1);
		rc = channel_receive(s->fd, message);
		if (rc == 1)
			answer(s, (const void *)message->data, out);
	}
	free(message);
	free(out);
	return NULL;
}

static void start(struct symbolizer *s, int coming)
{
	int fds[2];

	*s = (struct symbolizer){ .coming = coming };
	assert_int_equal(channel_pair(fds), 0);
	s->fd = fds[0];
	assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
	assert_int_equal(names_client_create(&s->client), 0);
	names_client_set_channel(s->client, fds[1]);
}

static void stop(struct symbolizer *s)
{
	names_client_destroy(s->client);
	(void)pthread_join(s->thread, NULL);
}

/* Asks for all of @count offsets together, as a profile does. */
static const struct name_source *ask(struct symbolizer *s, const uint64_t *offsets, size_t count)
{
	const struct name_source *source = names_client_begin(s->client);

	source->prefetch(source->ctx, MODULE, offsets, count);
	return source;
}

static void expect(const struct name_source *source, uint64_t offset, const char *name)
{
	struct name_frame frames[NAMES_INLINE_MAX];

	assert_int_equal(source->find(source->ctx, MODULE, offset, frames), 1);
	assert_string_equal(frames[0].function, name);
}

static void test_better_names_of_a_module_are_asked_for_at_once(void **state)
{
	const struct name_source *source;
	struct profile_quality quality = quality_empty();
	struct symbolizer s;

	start(&s, 1);
	source = ask(&s, (uint64_t[]){ 1, 2 }, 2);
	expect(source, 1, "coarse_1");
	assert_int_equal(names_client_state(s.client), NAMES_COMING);
	names_client_note(s.client, &quality);
	assert_int_equal(quality.note_count, 1);
	names_client_end(s.client);

	/* Another profile asks for another place: the symbolizer is ready. */
	source = ask(&s, (uint64_t[]){ 2, 3 }, 2);
	expect(source, 3, "fine_3");
	expect(source, 2, "fine_2");
	expect(source, 1, "fine_1");
	assert_int_equal(names_client_state(s.client), NAMES_FINAL);
	names_client_note(s.client, &quality);
	assert_int_equal(quality.note_count, 1);
	names_client_end(s.client);
	stop(&s);
}

static void test_names_that_come_between_two_messages(void **state)
{
	const size_t count = 2 * CONTROL_NAMES_MAX;
	uint64_t *offsets = calloc(count, sizeof(*offsets));
	const struct name_source *source;
	struct symbolizer s;

	for (size_t i = 0; i < count; i++)
		offsets[i] = i;
	start(&s, 1);
	source = ask(&s, offsets, count);
	expect(source, 0, "fine_0");
	expect(source, CONTROL_NAMES_MAX - 1, "fine_1023");
	assert_int_equal(names_client_state(s.client), NAMES_FINAL);
	names_client_end(s.client);
	stop(&s);
	free(offsets);
}

/* A name wins over the begin of a nameless function, wherever the name comes from. */
static void test_functions_without_a_name(void **state)
{
	const struct name_frame nameless = { .function = "", .package = "", .file = "", .from_start = 3 };
	const struct name_frame kept = { .function = "kept", .package = "", .file = "" };
	struct name_frame frames[NAMES_INLINE_MAX];
	const struct name_source *source;
	struct symbolizer s;

	start(&s, 1);
	s.nameless = true;
	s.settled = NAMES_MAY_IMPROVE;
	source = ask(&s, (uint64_t[]){ 4, 5 }, 2);
	assert_int_equal(source->find(source->ctx, MODULE, 5, frames), 1);
	assert_string_equal(frames[0].function, "");
	assert_int_equal(frames[0].from_start, 5);
	assert_int_equal(names_keep(s.client, MODULE, 5, &kept, 1), 0);
	expect(source, 5, "kept");
	expect(source, 4, "");
	names_client_end(s.client);

	source = ask(&s, (uint64_t[]){ 6 }, 1);
	expect(source, 4, "fine_4");
	names_client_end(s.client);

	/* A stored session keeps its names when the symbolizer does not know the module any more.
	 * */
	source = names_client_begin(s.client);
	assert_int_equal(names_keep(s.client, 9, 5, &nameless, 1), 0);
	s.forgets = true;
	assert_int_equal(source->find(source->ctx, 9, 5, frames), 1);
	assert_int_equal(frames[0].from_start, 3);
	assert_int_equal(names_client_state(s.client), NAMES_MAY_IMPROVE);
	names_client_end(s.client);
	s.forgets = false;

	/* It reads the file again. */
	s.coming = 2;
	source = ask(&s, (uint64_t[]){ 7 }, 1);
	expect(source, 7, "");
	expect(source, 4, "fine_4");
	assert_int_equal(s.coming, 0);
	names_client_end(s.client);
	stop(&s);
}

/* Names that a session kept of kernel modules belong to its own boot. The modules at the same place
 * now may be others, so they get fresh names in the next profile. The kernel itself is the same in
 * every boot. */
static void test_names_of_kernel_modules(void **state)
{
	const struct name_frame kept = { .function = "kept [module]", .package = "", .file = "" };
	const struct name_source *source;
	struct name_frame frames[NAMES_INLINE_MAX];
	struct symbolizer s;

	start(&s, 2);
	s.changes = true;
	source = ask(&s, (uint64_t[]){ 1, 3 }, 2);
	expect(source, 1, "coarse_1");
	names_client_end(s.client);
	s.coming = 0; /* the same state as before, as a kernel has always */
	s.settled = NAMES_COMING;

	source = ask(&s, (uint64_t[]){ 1, 2, 3 }, 3);
	assert_int_equal(names_keep(s.client, MODULE, 1, &kept, 1), 0);
	assert_int_equal(names_keep(s.client, MODULE, 2, &kept, 1), 0);
	expect(source, 1, "kept [module]");
	expect(source, 2, "fine_2");
	expect(source, 3, "fine_3");
	assert_int_equal(source->find(source->ctx, MODULE, 3, frames), 1);
	assert_int_equal(frames[0].start_line, 1);
	names_client_end(s.client);

	s.settled = NAMES_FINAL;
	source = ask(&s, (uint64_t[]){ 2, 4 }, 2);
	assert_int_equal(names_client_state(s.client), NAMES_FINAL);
	expect(source, 4, "fine_4");
	assert_int_equal(names_client_state(s.client), NAMES_FINAL);
	expect(source, 3, "fine_3");
	assert_int_equal(names_client_state(s.client), NAMES_MAY_IMPROVE);
	names_client_end(s.client);
	stop(&s);
}

static void test_a_silent_symbolizer_is_told_of(void **state)
{
	struct profile_quality quality = quality_empty();
	struct name_frame frames[NAMES_INLINE_MAX];
	const struct name_source *source;
	struct symbolizer s;

	start(&s, 0);
	source = ask(&s, (uint64_t[]){ 1 }, 1);
	expect(source, 1, "fine_1");
	names_client_end(s.client);
	assert_int_equal(shutdown(s.fd, SHUT_RDWR), 0);

	/* Known names stay. */
	source = ask(&s, (uint64_t[]){ 1 }, 1);
	expect(source, 1, "fine_1");
	names_client_note(s.client, &quality);
	assert_int_equal(quality.note_count, 0);
	names_client_end(s.client);

	for (int i = 0; i < 2; i++) {
		quality = quality_empty();
		source = ask(&s, (uint64_t[]){ 1, 2 }, 2);
		assert_int_equal(source->find(source->ctx, MODULE, 2, frames), -EAGAIN);
		names_client_note(s.client, &quality);
		assert_int_equal(quality.note_count, 1);
		names_client_end(s.client);
	}
	stop(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_better_names_of_a_module_are_asked_for_at_once),
		cmocka_unit_test(test_a_silent_symbolizer_is_told_of),
		cmocka_unit_test(test_functions_without_a_name),
		cmocka_unit_test(test_names_of_kernel_modules),
		cmocka_unit_test(test_names_that_come_between_two_messages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
