// SPDX-License-Identifier: Apache-2.0
#include "api/session_json.h"

#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/profile/memory/heap_leaks.h"
#include "agent/profile/memory/interval.h"
#include "agent/profile/own_functions.h"
#include "api/api_internal.h"
#include "api/breakdown.h"
#include "api/auth/links.h"
#include "api/render/quality_json.h"
#include "api/render/render.h"

#define LEAKS_SHOWN 20u

const char *session_status_text(enum session_status status)
{
	static const char *const words[] = {
		[SESSION_RUNNING] = "running",
		[SESSION_COMPLETED] = "completed",
		[SESSION_FAILED] = "failed",
	};

	return words[status];
}

int session_status_from(const char *word, int *ret)
{
	for (int i = SESSION_RUNNING; i <= SESSION_FAILED; i++) {
		if (strcmp(word, session_status_text((enum session_status)i)) == 0) {
			*ret = i;
			return 0;
		}
	}
	return -EINVAL;
}

static void module_json(struct json_out *json, const struct profile *p,
			const struct profile_frame *frame)
{
	const struct profile_mapping *mapping = &p->mappings[frame->mapping];
	char build_id[RENDER_BUILD_ID_SIZE];

	json_out_text(json, "module", profile_string(p, mapping->path));
	json_out_text(json, "buildId", render_build_id(mapping, build_id));
}

static void interval_json(struct json_out *json, const struct profile_interval *interval)
{
	json_out_open(json, "confidenceInterval", '[');
	json_out_real(json, NULL, interval->lo, 0);
	json_out_real(json, NULL, interval->hi, 0);
	json_out_close(json, ']');
}

int function_rows_json(struct json_out *json, const char *name, const struct profile *p,
		       unsigned value_index, const struct profile_function_row *rows, size_t count,
		       bool sample_count_as_text)
{
	cleanup_free uint32_t *frames = sample_count_as_text ? NULL : profile_function_frames(p);
	int64_t total = p->totals[value_index];
	double percent = total ? 100.0 / (double)total : 0;
	cleanup_free struct profile_interval *intervals = NULL;
	int rc = profile_intervals(p, value_index, &intervals);

	if (rc < 0 && rc != -ENODATA)
		return rc;
	json_out_open(json, name, '[');
	for (size_t i = 0; i < count; i++) {
		const struct profile_function *function = &p->functions[rows[i].function];
		char text[24];

		json_out_open(json, NULL, '{');
		json_out_text(json, "funcName", profile_string(p, function->name));
		json_out_text(json, "package", profile_string(p, function->package));
		json_out_text(json, "file", profile_string(p, function->file));
		json_out_uint(json, "line", function->line);
		if (frames)
			module_json(json, p, &p->frames[frames[rows[i].function]]);
		json_out_real(json, "selfPct", (double)rows[i].self * percent, 4);
		json_out_real(json, "cumulativePct", (double)rows[i].cumulative * percent, 4);
		json_out_int(json, "selfValue", rows[i].self);
		json_out_int(json, "cumulativeValue", rows[i].cumulative);
		if (intervals)
			interval_json(json, &intervals[rows[i].function]);
		(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)rows[i].count);
		if (sample_count_as_text)
			json_out_text(json, "sampleCount", text);
		else
			json_out_uint(json, "sampleCount", rows[i].count);
		json_out_close(json, '}');
	}
	json_out_close(json, ']');
	return 0;
}

int top_functions_json(struct json_out *json, const char *name, const struct profile *p,
		       unsigned value_index, uint32_t top, bool sample_count_as_text)
{
	cleanup_free struct profile_function_row *rows = NULL;
	size_t count = 0;
	int rc = profile_top_functions(p, value_index, &rows, &count);

	return rc < 0 ? rc
		      : function_rows_json(json, name, p, value_index, rows, count < top ? count : top,
					   sample_count_as_text);
}

static void process_json(struct json_out *json, uint32_t pid, uint64_t started_at_ns,
			 const char *exe, int64_t value)
{
	json_out_open(json, NULL, '{');
	json_out_uint(json, "pid", pid);
	json_out_time(json, "startedAt", started_at_ns);
	json_out_text(json, "exe", exe);
	json_out_int(json, "value", value);
	json_out_close(json, '}');
}

/* Nothing of a span is stored but its windows: its processes are those of its profile. */
static void processes_json(struct json_out *json, const struct session_info *info,
			   const struct profile *p)
{
	const bool of_profile = p && info->continuous && !info->process_count;

	json_out_open(json, "processes", '[');
	for (uint32_t i = 0; of_profile && i < p->process_count; i++)
		process_json(json, p->processes[i].pid, p->processes[i].started_at_ns,
			     profile_string(p, p->processes[i].exe), p->processes[i].value);
	for (uint32_t i = 0; !of_profile && i < info->process_count; i++)
		process_json(json, info->processes[i].pid, info->processes[i].started_at_ns,
			     info->processes[i].exe, info->processes[i].value);
	json_out_close(json, ']');
}

static void labels_json(struct json_out *json, const struct session_info *info)
{
	json_out_open(json, "labels", '{');
	for (uint32_t i = 0; i < info->label_count; i++) {
		json_out_key(json, info->labels[i].name);
		json_out_text(json, NULL, info->labels[i].value);
	}
	json_out_close(json, '}');
}

void options_json(struct json_out *json, uint32_t options)
{
	json_out_open(json, "options", '[');
	for (uint32_t bit = 1; bit < PROFILE_OPTION_MAX; bit <<= 1)
		if ((options & bit) && profile_option_name(bit))
			json_out_text(json, NULL, profile_option_name(bit));
	json_out_close(json, ']');
}

static void times_json(struct json_out *json, const struct session_info *info)
{
	bool running = info->status == SESSION_RUNNING;

	json_out_time(json, "createdAt", info->created_at_ns);
	json_out_time(json, "startedAt", info->started_at_ns);
	json_out_time(json, "completedAt", running ? 0 : info->completed_at_ns);
	json_out_uint(json, "durationSeconds", (info->duration_ns + NS_PER_S / 2) / NS_PER_S);
	json_out_uint(json, "durationNanos", info->duration_ns);
	json_out_uint(json, "requestedDurationSeconds", info->requested_duration_s);
}

#define WAYS_PCT  5.0 /* of the total, from which on a function's callers are told apart */
#define WAYS_ROWS 10u

static void ways_json(struct json_out *json, const struct profile *p, const struct own_ways *ways,
		      double percent)
{
	json_out_open(json, "callers", '[');
	for (uint32_t i = 0; i < ways->count; i++) {
		const struct own_way *way = &ways->ways[i];

		json_out_open(json, NULL, '{');
		json_out_real(json, "pct", (double)way->value * percent, 4);
		json_out_int(json, "value", way->value);
		json_out_open(json, "path", '[');
		for (uint32_t n = 0; n < way->callers_count; n++)
			json_out_text(json, NULL,
				      profile_string(p, p->functions[way->callers[n]].name));
		json_out_close(json, ']');
		json_out_close(json, '}');
	}
	json_out_close(json, ']');
}

static int own_functions_json(struct json_out *json, const struct profile *p, unsigned value_index,
			      uint32_t top)
{
	cleanup_free struct own_function *rows = NULL;
	cleanup_free struct own_ways *ways = NULL;
	const double percent = p->totals[value_index] ? 100.0 / (double)p->totals[value_index] : 0;
	size_t count = 0, large = 0;
	int rc = own_functions(p, value_index, &rows, &count);

	while (rc == 0 && large < count && large < WAYS_ROWS &&
	       (double)rows[large].value * percent >= WAYS_PCT)
		large++;
	rc = rc < 0 ? rc : own_ways(p, value_index, rows, large, &ways);
	if (rc < 0)
		return rc;
	json_out_open(json, NULL, '[');
	for (size_t i = 0; i < count && i < top; i++) {
		const struct profile_function *function = &p->functions[rows[i].function];

		json_out_open(json, NULL, '{');
		json_out_text(json, "funcName", profile_string(p, function->name));
		json_out_text(json, "package", profile_string(p, function->package));
		json_out_text(json, "file", profile_string(p, function->file));
		json_out_uint(json, "line", function->line);
		json_out_real(json, "pct", (double)rows[i].value * percent, 4);
		json_out_int(json, "value", rows[i].value);
		json_out_text(json, "wait", rows[i].wait ? profile_string(p, rows[i].wait) : NULL);
		json_out_text(json, "state", rows[i].state ? profile_string(p, rows[i].state) : NULL);
		if (i < large)
			ways_json(json, p, &ways[i], percent);
		json_out_close(json, '}');
	}
	json_out_close(json, ']');
	return 0;
}

static int all_functions_json(struct json_out *json, const struct profile *p, unsigned value_index,
			      uint32_t top)
{
	return top_functions_json(json, NULL, p, value_index, top, false);
}

/* Writes a list of a profile under @name. That of a large profile takes ten milliseconds, and the
 * same ones are shown again and again. */
static int kept_list_json(struct json_out *json, struct api *api, const struct profile *p,
			  const char *name,
			  int (*write)(struct json_out *json, const struct profile *p,
				       unsigned value_index, uint32_t top),
			  unsigned value_index, uint32_t top)
{
	struct buf text = { .max = json->buf->max };
	struct json_out own = json_out_to(&text);
	struct answer_key key;
	char number[24];
	int rc = 0;

	(void)snprintf(number, sizeof(number), "%u of %u", top, value_index);
	key = answer_key_of(p, (const char *const[]){ name, number }, 2);
	if (!answer_cache_get(api->answers, &key, &text)) {
		rc = write(&own, p, value_index, top);
		if (rc == 0 && !text.error)
			answer_cache_put(api->answers, &key, text.data, text.len);
	}
	buf_add(&text, "", 1);
	if (rc == 0 && !text.error) {
		json_out_key(json, name);
		json_out_raw(json, text.data);
	}
	rc = rc < 0 ? rc : text.error;
	buf_deinit(&text);
	return rc;
}

static void stack_names(struct json_out *json, const struct profile *p, uint32_t node)
{
	json_out_open(json, "stack", '[');
	for (; node; node = p->nodes[node].parent)
		json_out_text(json, NULL,
			      profile_string(p, p->functions[p->frames[p->nodes[node].frame].function].name));
	json_out_close(json, ']');
}

static void heap_leaks_json(struct json_out *json, const struct session_info *info,
			    const struct profile *p)
{
	cleanup_free struct heap_leak *leaks = NULL;
	char since[CLOCK_RFC3339_SIZE];
	uint32_t count = 0;

	if (info->type != PROFILE_MEMORY || !profile_is_probed(p) ||
	    heap_leaks_find(p, info->completed_at_ns, &leaks, &count) < 0)
		return;
	json_out_open(json, "suspectedLeaks", '[');
	for (uint32_t i = 0; i < count && i < LEAKS_SHOWN; i++) {
		json_out_open(json, NULL, '{');
		json_out_text(json, "funcName",
			      profile_string(p, p->functions[p->frames[p->nodes[leaks[i].node].frame].function].name));
		json_out_int(json, "value", leaks[i].bytes);
		json_out_real(json, "valuePerSecond", leaks[i].bytes_per_s, 1);
		json_out_uint(json, "stillInUse", leaks[i].followed);
		clock_format_rfc3339(leaks[i].since_ns, since);
		json_out_text(json, "since", since);
		stack_names(json, p, leaks[i].node);
		json_out_close(json, '}');
	}
	json_out_close(json, ']');
}

/* All values of a type that has several: io's operations, delay and bytes. */
static void totals_json(struct json_out *json, const struct profile_type_info *type,
			const struct profile *p)
{
	json_out_open(json, "totals", '{');
	for (unsigned i = 0; i < type->value_count; i++)
		json_out_int(json, type->values[i].name, p->totals[i]);
	json_out_close(json, '}');
}

/* Memory that the allocator handed out but that was not seen being allocated, mostly before the
 * observation began. */
static void unattributed_json(struct json_out *json, const struct session_info *info,
			      const struct profile_quality *quality)
{
	const uint64_t heap = quality->probes.heap_bytes;
	const uint64_t seen = info->total_value > 0 ? (uint64_t)info->total_value : 0;

	if (info->type == PROFILE_MEMORY && heap)
		json_out_uint(json, "unattributedValue", heap > seen ? heap - seen : 0);
}

void session_json(struct json_out *json, const char *name, struct api *api,
		  const struct session_info *info, const struct session_json_options *options)
{
	const struct profile_type_info *type = profile_type_info(info->type);
	const struct profile *p = options->profile;
	unsigned value = options->value ? options->value - 1 : type->value_index;
	char link[LINK_SIZE];

	json_out_open(json, name, '{');
	json_out_text(json, "id", info->id);
	json_out_text(json, "profileId", info->id);
	json_out_text(json, "sessionId", info->id);
	json_out_text(json, "service", info->service);
	json_out_text(json, "target", info->selector[0] ? info->selector : info->service);
	json_out_text(json, "profileType", type->word);
	json_out_text(json, "status", session_status_text(info->status));
	times_json(json, info);
	json_out_uint(json, "sampleCount", info->sample_count);
	json_out_uint(json, "sampleRate", info->rate_hz);
	json_out_text(json, "unit", type->values[value].unit);
	json_out_int(json, "totalValue",
		     value == type->value_index ? info->total_value
		     : p			? p->totals[value]
						: 0);
	if (p && type->value_count > 1)
		totals_json(json, type, p);
	unattributed_json(json, info, p ? &p->quality : &info->quality);
	if (info->type == PROFILE_MUTEX && info->started_at_ns)
		json_out_text(json, "stackRole",
			      info->source == PROFILE_SOURCE_UNLOCKERS ? "unlocker" : "waiter");
	if (!p || kept_list_json(json, api, p, "topFunctions", all_functions_json, value,
				 options->top) < 0) {
		json_out_open(json, "topFunctions", '[');
		json_out_close(json, ']');
	}
	if (p && options->top)
		(void)!kept_list_json(json, api, p, "ownFunctions", own_functions_json, value,
				      options->top);
	json_out_text(json, "flameGraphUrl",
		      info->status == SESSION_COMPLETED ? link_flame_graph(api, info, link) : NULL);
	json_out_text(json, "tenant", info->tenant);
	json_out_text(json, "host", info->host);
	json_out_bool(json, "continuous", info->continuous);
	json_out_bool(json, "stoppedEarly", info->stopped_early);
	json_out_text(json, "failureReason",
		      info->status == SESSION_FAILED ? info->failure : NULL);
	json_out_uint(json, "rawDataSizeBytes", info->raw_data_bytes);
	processes_json(json, info, p);
	if (p)
		heap_leaks_json(json, info, p);
	if (options->breakdown && p)
		breakdown_json(json, p, options->breakdown_extra);
	labels_json(json, info);
	options_json(json, (info->kernel_locks ? PROFILE_OPTION_KERNEL_LOCKS : 0) |
				   (info->wakers ? PROFILE_OPTION_WAKERS : 0) |
				   (info->paths ? PROFILE_OPTION_PATHS : 0) |
				   (info->tasks ? PROFILE_OPTION_TASKS : 0));
	quality_json(json, "quality", p ? &p->quality : &info->quality);
	warnings_json(json, options->warnings);
	json_out_close(json, '}');
}
