// SPDX-License-Identifier: Apache-2.0
/* Requests of Grafana, or of a stranger in its place: the first byte chooses between a label
 * selector, a request in protobuf or JSON and an answer's bytes on their way to JSON. Properties:
 * what is read is within its bounds, a matcher gives one verdict for a value and the opposite
 * matcher the other one, and JSON of an answer is JSON. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/grafana/messages.h"
#include "api/grafana/selector.h"
#include "api/http/json_in.h"

#define INPUT_MAX 65536u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_matcher(struct label_selector *selector, struct matcher *matcher, const char *value)
{
	struct err err = { 0 };
	int rc = matcher_test(selector, matcher, value, &err);

	if (rc > 1 || (rc >= 0 && rc != matcher_test(selector, matcher, value, &err)))
		abort();
	matcher->kind ^= 1; /* = and !=, =~ and !~ */
	if (rc >= 0 && rc == matcher_test(selector, matcher, value, &err))
		abort();
	matcher->kind ^= 1;
}

static void try_selector(const char *text)
{
	static const char *const values[] = { "", "a", "worker-17", "ns/web/nginx" };
	struct label_selector selector;
	struct err err = { 0 };

	if (selector_read(text, "selector", &selector, &err) < 0)
		return;
	for (size_t i = 0; i < selector.count; i++)
		for (size_t j = 0; j < ARRAY_SIZE(values); j++)
			try_matcher(&selector, &selector.items[i], values[j]);
	label_selector_deinit(&selector);
}

static void try_request(const struct querier_call *call, bool json, const char *text, size_t len)
{
	struct querier_request request;
	struct err err = { 0 };

	if (querier_request_read(call->request, json, text, len, &request, &err) < 0)
		return;
	if (request.matchers.count > QUERIER_LIST_MAX ||
	    request.group_by.count > QUERIER_LIST_MAX ||
	    (request.type_id && strlen(request.type_id) > QUERIER_TEXT_MAX))
		abort();
	querier_request_deinit(&request);
}

static void try_answer(const struct querier_call *call, const char *text, size_t len)
{
	struct buf out = { .max = 1u << 24 };
	struct err err = { 0 };

	if (querier_answer_json(call->answer, text, len, &out) == 0 && out.len < INPUT_MAX &&
	    json_in_check(out.data, out.len, &err) < 0 && !strstr(err.text, "values") &&
	    !strstr(err.text, "deep"))
		abort();
	buf_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct querier_call *call = querier_calls;
	char *text;

	if (size < 1 || size > INPUT_MAX)
		return 0;
	text = malloc(size);
	if (!text)
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	for (unsigned skip = data[0] >> 2; skip; skip--)
		call = call[1].name ? call + 1 : querier_calls;
	switch (data[0] & 3) {
	case 0:
		try_selector(text);
		break;
	case 1:
		try_request(call, false, text, size - 1);
		break;
	case 2:
		try_request(call, true, text, size - 1);
		break;
	default:
		try_answer(call, text, size - 1);
	}
	free(text);
	return 0;
}
