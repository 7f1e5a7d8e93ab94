// SPDX-License-Identifier: Apache-2.0
/* Commands that look around: services, history, status. */
#include <stdlib.h>
#include <string.h>

#include "agent/base/buf.h"
#include "tools/profctl/browse.h"
#include "tools/profctl/command.h"
#include "tools/profctl/output.h"
#include "tools/profctl/sessions.h"

static int busier_first(const void *a, const void *b)
{
	const cJSON *x = *(const cJSON *const *)a, *y = *(const cJSON *const *)b;
	double difference = output_number(y, "cpus") - output_number(x, "cpus");

	return difference > 0	? 1
	       : difference < 0 ? -1
				: strcmp(output_text(x, "name"), output_text(y, "name"));
}

/* "all", or those that can be taken. */
static void list_types(const cJSON *service, struct buf *out)
{
	const cJSON *type, *types = cJSON_GetObjectItem(service, "profileTypes");
	bool all = true;

	cJSON_ArrayForEach(type, types)
		all = all && cJSON_IsTrue(cJSON_GetObjectItem(type, "available"));
	if (all)
		buf_printf(out, "all");
	cJSON_ArrayForEach(type, types)
		if (!all && cJSON_IsTrue(cJSON_GetObjectItem(type, "available")))
			buf_printf(out, "%s%s", out->len ? "," : "", output_text(type, "type"));
}

static int print_services(const cJSON *answer)
{
	struct table table = { .headings = { "service", "cpus", "procs", "runtime", "named by", "types" },
			       .right = { false, true, true, false, false, false },
			       .columns = 6 };
	const cJSON *item, *items = cJSON_GetObjectItem(answer, "items");
	size_t count = 0, all = (size_t)cJSON_GetArraySize(items);
	cleanup_free const cJSON **sorted = calloc(all + 1, sizeof(const cJSON *));

	if (!sorted)
		return 1;
	cJSON_ArrayForEach(item, items)
		sorted[count++] = item;
	qsort(sorted, count, sizeof(const cJSON *), busier_first);
	for (size_t i = 0; i < count; i++) {
		cleanup_buf struct buf types = { 0 };

		item = sorted[i];
		list_types(item, &types);
		table_add(&table, output_text(item, "name"));
		table_addf(&table, "%.2f", output_number(item, "cpus"));
		table_addf(&table, "%d", cJSON_GetArraySize(cJSON_GetObjectItem(item, "processes")));
		table_add(&table, output_text(item, "runtime"));
		table_add(&table, output_text(item, "source"));
		table_add(&table, types.len ? types.data : "");
	}
	return table_print(&table) < 0;
}

#define BUSY_CPUS 0.01
#define BUSY_MAX  8u

int browse_busy(const struct arguments *args)
{
	struct table table = { .headings = { "service", "cpus", "procs" },
			       .right = { false, true, true },
			       .columns = 3 };
	cleanup(json) cJSON *answer = NULL;
	cleanup_free const cJSON **sorted = NULL;
	const cJSON *item, *items;
	size_t count = 0;

	if (client_json(args->client, "GET", "/api/v1/observability/services", NULL, &answer) < 0)
		return -1;
	items = cJSON_GetObjectItem(answer, "items");
	sorted = calloc((size_t)cJSON_GetArraySize(items) + 1, sizeof(const cJSON *));
	if (!sorted)
		return -1;
	cJSON_ArrayForEach(item, items)
		if (output_number(item, "cpus") >= BUSY_CPUS)
			sorted[count++] = item;
	qsort(sorted, count, sizeof(const cJSON *), busier_first);
	if (count == 0) {
		(void)printf("The host is idle: no service uses a hundredth of a CPU. Profile a command "
			     "with\nprofctl record -- COMMAND, or watch the page until something "
			     "runs.\n\n");
		return 0;
	}
	for (size_t i = 0; i < count && i < BUSY_MAX; i++) {
		table_add(&table, output_text(sorted[i], "name"));
		table_addf(&table, "%.2f", output_number(sorted[i], "cpus"));
		table_addf(&table, "%d",
			   cJSON_GetArraySize(cJSON_GetObjectItem(sorted[i], "processes")));
	}
	if (table_print(&table) < 0)
		return -1;
	(void)printf("\nprofctl top SERVICE shows one of them. The whole host:\n\n");
	return 0;
}

int command_services(const struct arguments *args)
{
	cleanup(json) cJSON *answer = NULL;

	if (client_json(args->client, "GET", "/api/v1/observability/services", NULL, &answer) < 0)
		return 1;
	if (args->format == OUTPUT_JSON) {
		output_json(answer);
		return 0;
	}
	return print_services(answer);
}

/* The reason why a completed session of a type has no samples. */
static const char *nothing_of(const char *type)
{
	static const char *const words[][2] = {
		{ "cpu", "it used no CPU" },	   { "offcpu", "no wait" },
		{ "wall", "no thread was seen" },  { "block", "no wait for others" },
		{ "mutex", "no lock was waited for" }, { "io", "no read or write" },
		{ "faults", "no page fault" },	   { "memory", "nothing allocated" },
		{ "alloc", "nothing allocated" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (!strcmp(words[i][0], type))
			return words[i][1];
	return "nothing was seen";
}

static const char *samples_of(const cJSON *session, char *ret, size_t size)
{
	const double count = output_number(session, "sampleCount");

	if (count > 0 || strcmp(output_text(session, "status"), "completed") != 0)
		(void)snprintf(ret, size, "%.0f", count);
	else
		(void)snprintf(ret, size, "0: %s", nothing_of(output_text(session, "profileType")));
	return ret;
}

static int print_history(const cJSON *answer)
{
	struct table table = { .headings = { "profile", "created", "service", "type", "status", "total",
					     "samples" },
			       .right = { false, false, false, false, false, true, true },
			       .columns = 7,
			       .empty = "no profile found" };
	const cJSON *item;
	char value[64], samples[64];

	cJSON_ArrayForEach(item, cJSON_GetObjectItem(answer, "items")) {
		output_value(output_number(item, "totalValue"), output_text(item, "unit"), value,
			     sizeof(value));
		table_add(&table, output_text(item, "id"));
		table_add(&table, output_text(item, "startedAt"));
		table_add(&table, output_text(item, "service"));
		table_add(&table, output_text(item, "profileType"));
		table_add(&table, output_text(item, "status"));
		table_add(&table, value);
		table_add(&table, samples_of(item, samples, sizeof(samples)));
	}
	output_more(answer);
	return table_print(&table) < 0;
}

int command_history(const struct arguments *args)
{
	cleanup(json) cJSON *answer = NULL;
	cleanup_buf struct buf path = { 0 };

	buf_printf(&path, SESSIONS_PATH "/history?limit=%u", args->limit);
	client_add_parameter(args->client, &path, "from",
			     args->from ? args->from : "1970-01-01T00:00:00Z");
	client_add_parameter(args->client, &path, "to", args->to);
	client_add_parameter(args->client, &path, "service", args->service);
	client_add_parameter(args->client, &path, "status", args->status);
	client_add_parameter(args->client, &path, "profileType", args->type_given ? args->type : NULL);
	if (path.error || client_json(args->client, "GET", path.data, NULL, &answer) < 0)
		return 1;
	if (args->format == OUTPUT_JSON) {
		output_json(answer);
		return 0;
	}
	return print_history(answer);
}

/* One line a part of the daemon, then what it says is wrong. */
static void print_ready(const cJSON *ready)
{
	static const char *const parts[] = { "store", "collector", "symbolizer" };

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		bool works = cJSON_IsTrue(cJSON_GetObjectItem(ready, parts[i]));

		(void)printf("%-10s  %s%s%s\n", parts[i], output_paint(works ? PAINT_GOOD : PAINT_BAD),
			     works ? "works" : "does not work", output_paint(PAINT_NONE));
	}
	if (*output_text(ready, "reason"))
		(void)printf("%s\n", output_text(ready, "reason"));
}

int command_status(const struct arguments *args)
{
	cleanup(json) cJSON *version = NULL;
	cleanup(json) cJSON *ready = NULL;
	cleanup_free char *health = NULL;
	int status;

	if (client_json(args->client, "GET", "/version", NULL, &version) < 0)
		return 1;
	status = client_request(args->client, "GET", "/readyz", NULL, "application/json", &health, NULL);
	if (status < 0)
		return 1;
	ready = cJSON_Parse(health);
	if (args->format == OUTPUT_JSON) {
		if (ready)
			(void)cJSON_AddItemToObject(version, "ready", take_ptr(ready));
		output_json(version);
	} else {
		const char *address = client_address(args->client);

		(void)printf("profd %s at %s\n", output_text(version, "version"),
			     *address ? address : "its Unix socket");
		print_ready(ready);
	}
	return status != 200;
}
