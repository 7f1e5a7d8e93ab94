// SPDX-License-Identifier: Apache-2.0
#include "agent/session/records/session_record.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/session/records/record_json.h"

static const char *const statuses[] = { "running", "completed", "failed" };
static const char *const sources[PROFILE_SOURCE_MAX] = { "usual", "states", "unlockers" };

const char *session_status_word(enum session_status status)
{
	return statuses[status];
}

/* ---- encoding -------------------------------------------------------------------------------- */

static void add_i64(cJSON *to, const char *name, int64_t value)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%" PRId64, value);
	(void)cJSON_AddStringToObject(to, name, text);
}

static void add_double(cJSON *to, const char *name, double value)
{
	if (isfinite(value))
		(void)cJSON_AddNumberToObject(to, name, value);
}

static void add_grown(cJSON *to, const struct profile_probes *p)
{
	cJSON *list = cJSON_AddArrayToObject(to, "grown");

	for (uint32_t i = 0; i < p->grown_count; i++) {
		cJSON *json = cJSON_CreateObject();

		record_add_u64(json, "blockBytes", p->grown[i].block_bytes);
		record_add_u64(json, "before", p->grown[i].before);
		record_add_u64(json, "blocks", p->grown[i].blocks);
		(void)cJSON_AddItemToArray(list, json);
	}
}

static void add_probes(cJSON *to, const struct profile_probes *p)
{
	cJSON *json = cJSON_AddObjectToObject(to, "probes");

	(void)cJSON_AddStringToObject(json, "mode", p->mode);
	record_add_u64(json, "windows", p->windows);
	record_add_u64(json, "hits", p->hits);
	record_add_u64(json, "sampled", p->sampled);
	record_add_u64(json, "gapBytes", p->gap_bytes);
	record_add_u64(json, "sinceNs", p->observed_since_ns);
	(void)cJSON_AddBoolToObject(json, "pooled", p->pooled);
	record_add_u64(json, "faultedBytes", p->faulted_bytes);
	record_add_u64(json, "heapBytes", p->heap_bytes);
	record_add_u64(json, "heapBlocks", p->heap_blocks);
	record_add_u64(json, "residentBytes", p->resident_bytes);
	record_add_u64(json, "heapMappedBytes", p->heap_mapped_bytes);
	add_grown(json, p);
	add_double(json, "relErr", p->rel_err);
	add_double(json, "dutyPct", p->duty_pct);
	add_double(json, "costPct", p->cost_pct);
	add_double(json, "dilation", p->dilation);
}

static void add_quality(cJSON *to, const struct profile_quality *q)
{
	cJSON *json = cJSON_AddObjectToObject(to, "quality");
	cJSON *outcomes = cJSON_AddArrayToObject(json, "outcomes");
	cJSON *notes = cJSON_AddArrayToObject(json, "notes");
	cJSON *skipped = cJSON_AddArrayToObject(json, "skipped");

	add_i64(json, "samples", q->samples);
	add_i64(json, "lost", q->lost);
	add_double(json, "truncatedPct", q->truncated_pct);
	add_double(json, "unknownFramePct", q->unknown_frame_pct);
	add_double(json, "guessedFramePct", q->guessed_frame_pct);
	add_double(json, "effectiveRate", q->effective_rate);
	add_double(json, "overheadPct", q->overhead_pct);
	add_double(json, "typeOverheadPct", q->type_overhead_pct);
	if (q->probes.mode[0])
		add_probes(json, &q->probes);
	for (int i = 0; i < PROFILE_OUTCOMES_MAX; i++)
		(void)cJSON_AddItemToArray(outcomes, cJSON_CreateNumber((double)q->outcomes[i]));
	for (uint32_t i = 0; i < q->note_count; i++)
		(void)cJSON_AddItemToArray(notes, cJSON_CreateString(q->notes[i]));
	for (uint32_t i = 0; i < q->skipped_count; i++) {
		cJSON *item = cJSON_CreateObject();

		(void)cJSON_AddNumberToObject(item, "pid", q->skipped[i].pid);
		(void)cJSON_AddStringToObject(item, "reason", q->skipped[i].reason);
		(void)cJSON_AddItemToArray(skipped, item);
	}
}

static void add_lists(cJSON *to, const struct session_info *info)
{
	cJSON *processes = cJSON_AddArrayToObject(to, "processes");
	cJSON *labels = cJSON_AddArrayToObject(to, "labels");

	for (uint32_t i = 0; i < info->process_count; i++) {
		cJSON *item = cJSON_CreateObject();

		(void)cJSON_AddNumberToObject(item, "pid", info->processes[i].pid);
		record_add_u64(item, "startedNs", info->processes[i].started_at_ns);
		(void)cJSON_AddStringToObject(item, "exe", info->processes[i].exe);
		add_i64(item, "value", info->processes[i].value);
		(void)cJSON_AddItemToArray(processes, item);
	}
	for (uint32_t i = 0; i < info->label_count; i++) {
		cJSON *item = cJSON_CreateObject();

		(void)cJSON_AddStringToObject(item, "name", info->labels[i].name);
		(void)cJSON_AddStringToObject(item, "value", info->labels[i].value);
		(void)cJSON_AddItemToArray(labels, item);
	}
}

static void add_resume(cJSON *to, const struct session_resume *resume)
{
	cJSON *json = cJSON_AddObjectToObject(to, "resume");

	record_add_u64(json, "askedNs", resume->asked_ns);
	record_add_u64(json, "startNs", resume->start_ns);
	record_add_u64(json, "endNs", resume->end_ns);
	record_add_u64(json, "waitUntilNs", resume->wait_until_ns);
	record_add_u64(json, "seed", resume->seed);
	record_add_u64(json, "feedIdentity", resume->feed_identity);
	record_add_u64(json, "beginPosition", resume->begin_position);
	record_add_u64(json, "bootOffsetNs", resume->boot_offset_ns);
	record_add_u64(json, "requestHash", resume->request_hash);
	record_add_u64(json, "reads", resume->reads);
	(void)cJSON_AddStringToObject(json, "idempotencyKey", resume->idempotency_key);
}

char *session_record_encode(const struct session_info *info, const struct session_resume *resume)
{
	cleanup(json) cJSON *json = cJSON_CreateObject();

	(void)cJSON_AddNumberToObject(json, "version", 1);
	(void)cJSON_AddStringToObject(json, "id", info->id);
	(void)cJSON_AddStringToObject(json, "tenant", info->tenant);
	(void)cJSON_AddStringToObject(json, "service", info->service);
	(void)cJSON_AddStringToObject(json, "selector", info->selector);
	(void)cJSON_AddStringToObject(json, "host", info->host);
	(void)cJSON_AddStringToObject(json, "type", profile_type_info(info->type)->word);
	(void)cJSON_AddStringToObject(json, "source", sources[info->source]);
	(void)cJSON_AddStringToObject(json, "status", session_status_word(info->status));
	(void)cJSON_AddBoolToObject(json, "stoppedEarly", info->stopped_early);
	(void)cJSON_AddBoolToObject(json, "continuous", info->continuous);
	record_add_u64(json, "createdNs", info->created_at_ns);
	record_add_u64(json, "startedNs", info->started_at_ns);
	record_add_u64(json, "completedNs", info->completed_at_ns);
	record_add_u64(json, "durationNs", info->duration_ns);
	(void)cJSON_AddNumberToObject(json, "requestedSeconds", info->requested_duration_s);
	(void)cJSON_AddNumberToObject(json, "rateHz", info->rate_hz);
	if (info->retention_days)
		(void)cJSON_AddNumberToObject(json, "retentionDays", info->retention_days);
	(void)cJSON_AddBoolToObject(json, "kernelLocks", info->kernel_locks);
	(void)cJSON_AddBoolToObject(json, "wakers", info->wakers);
	(void)cJSON_AddBoolToObject(json, "paths", info->paths);
	(void)cJSON_AddBoolToObject(json, "tasks", info->tasks);
	record_add_u64(json, "samples", info->sample_count);
	add_i64(json, "value", info->total_value);
	record_add_u64(json, "bytes", info->raw_data_bytes);
	(void)cJSON_AddStringToObject(json, "failure", info->failure);
	add_quality(json, &info->quality);
	add_lists(json, info);
	if (resume)
		add_resume(json, resume);
	return json ? cJSON_PrintUnformatted(json) : NULL;
}

/* ---- decoding -------------------------------------------------------------------------------- */

static int64_t get_i64(const cJSON *from, const char *name)
{
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(from, name));

	return text ? strtoll(text, NULL, 10) : 0;
}

static double get_double(const cJSON *from, const char *name, double fallback)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(from, name);

	return cJSON_IsNumber(item) ? item->valuedouble : fallback;
}

static void get_grown(const cJSON *from, struct profile_probes *ret)
{
	const cJSON *json;

	cJSON_ArrayForEach(json, cJSON_GetObjectItemCaseSensitive(from, "grown"))
		if (ret->grown_count < ARRAY_SIZE(ret->grown))
			ret->grown[ret->grown_count++] =
				(struct profile_grown){ .block_bytes = (uint32_t)record_u64(json, "blockBytes"),
							.before = record_u64(json, "before"),
							.blocks = record_u64(json, "blocks") };
}

static void get_probes(const cJSON *from, struct profile_probes *ret)
{
	const cJSON *json = cJSON_GetObjectItemCaseSensitive(from, "probes");
	const char *mode = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "mode"));

	if (!mode)
		return;
	(void)snprintf(ret->mode, sizeof(ret->mode), "%s", mode);
	ret->windows = record_u64(json, "windows");
	ret->hits = record_u64(json, "hits");
	ret->sampled = record_u64(json, "sampled");
	ret->gap_bytes = record_u64(json, "gapBytes");
	ret->observed_since_ns = record_u64(json, "sinceNs");
	ret->pooled = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "pooled"));
	ret->faulted_bytes = record_u64(json, "faultedBytes");
	ret->heap_bytes = record_u64(json, "heapBytes");
	ret->heap_blocks = record_u64(json, "heapBlocks");
	ret->resident_bytes = record_u64(json, "residentBytes");
	ret->heap_mapped_bytes = record_u64(json, "heapMappedBytes");
	get_grown(json, ret);
	ret->rel_err = get_double(json, "relErr", 0);
	ret->duty_pct = get_double(json, "dutyPct", -1);
	ret->cost_pct = get_double(json, "costPct", -1);
	ret->dilation = get_double(json, "dilation", -1);
}

static void get_quality(const cJSON *from, struct profile_quality *ret)
{
	const cJSON *json = cJSON_GetObjectItemCaseSensitive(from, "quality"), *item;
	int at = 0;

	ret->samples = get_i64(json, "samples");
	ret->lost = get_i64(json, "lost");
	ret->truncated_pct = get_double(json, "truncatedPct", -1);
	ret->unknown_frame_pct = get_double(json, "unknownFramePct", -1);
	ret->guessed_frame_pct = get_double(json, "guessedFramePct", -1);
	ret->effective_rate = get_double(json, "effectiveRate", -1);
	ret->overhead_pct = get_double(json, "overheadPct", -1);
	ret->type_overhead_pct = get_double(json, "typeOverheadPct", -1);
	get_probes(json, &ret->probes);
	cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(json, "outcomes"))
	{
		if (at < PROFILE_OUTCOMES_MAX)
			ret->outcomes[at] = record_integer(item);
		at++;
	}
	cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(json, "notes"))
	{
		const char *note = cJSON_GetStringValue(item);

		if (note && ret->note_count < ARRAY_SIZE(ret->notes))
			(void)snprintf(ret->notes[ret->note_count++], sizeof(ret->notes[0]), "%s",
				       note);
	}
	cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(json, "skipped"))
	{
		struct profile_skipped *skipped = &ret->skipped[ret->skipped_count];

		if (ret->skipped_count >= PROFILE_SKIPPED_MAX)
			break;
		skipped->pid = record_u32(item, "pid");
		record_copy_text(item, "reason", skipped->reason, sizeof(skipped->reason));
		ret->skipped_count++;
	}
}

static int get_lists(const cJSON *from, struct session_info *ret)
{
	const cJSON *processes = cJSON_GetObjectItemCaseSensitive(from, "processes");
	const cJSON *labels = cJSON_GetObjectItemCaseSensitive(from, "labels"), *item;
	int process_count = cJSON_GetArraySize(processes), label_count = cJSON_GetArraySize(labels);

	ret->processes = calloc((size_t)process_count + 1, sizeof(*ret->processes));
	ret->labels = calloc((size_t)label_count + 1, sizeof(*ret->labels));
	if (!ret->processes || !ret->labels)
		return -ENOMEM;
	cJSON_ArrayForEach(item, processes)
	{
		struct session_process *process = &ret->processes[ret->process_count++];

		process->pid = record_u32(item, "pid");
		process->started_at_ns = record_u64(item, "startedNs");
		record_copy_text(item, "exe", process->exe, sizeof(process->exe));
		process->value = get_i64(item, "value");
	}
	cJSON_ArrayForEach(item, labels)
	{
		struct session_label *label = &ret->labels[ret->label_count++];

		record_copy_text(item, "name", label->name, sizeof(label->name));
		record_copy_text(item, "value", label->value, sizeof(label->value));
	}
	return 0;
}

static void get_resume(const cJSON *from, struct session_resume *ret)
{
	const cJSON *json = cJSON_GetObjectItemCaseSensitive(from, "resume");

	*ret = (struct session_resume){
		.asked_ns = record_u64(json, "askedNs"),
		.start_ns = record_u64(json, "startNs"),
		.end_ns = record_u64(json, "endNs"),
		.wait_until_ns = record_u64(json, "waitUntilNs"),
		.seed = record_u64(json, "seed"),
		.feed_identity = record_u64(json, "feedIdentity"),
		.begin_position = record_u64(json, "beginPosition"),
		.boot_offset_ns = record_u64(json, "bootOffsetNs"),
		.request_hash = record_u64(json, "requestHash"),
		.reads = record_u64(json, "reads"),
	};
	record_copy_text(json, "idempotencyKey", ret->idempotency_key, sizeof(ret->idempotency_key));
}

static int get_words(const cJSON *json, struct session_info *ret)
{
	char word[32];

	record_copy_text(json, "type", word, sizeof(word));
	if (profile_type_parse(word, &ret->type) < 0)
		return -EPROTO;
	record_copy_text(json, "source", word, sizeof(word));
	for (int i = 0; i < PROFILE_SOURCE_MAX; i++)
		if (strcmp(word, sources[i]) == 0)
			ret->source = (enum profile_source)i;
	record_copy_text(json, "status", word, sizeof(word));
	for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
		if (strcmp(word, statuses[i]) == 0) {
			ret->status = (enum session_status)i;
			return 0;
		}
	}
	return -EPROTO;
}

int session_record_decode(const char *body, size_t len, struct session_info *ret,
			  struct session_resume *resume)
{
	cleanup(json) cJSON *json = cJSON_ParseWithLength(body, len);
	struct session_info info = { 0 };
	int rc;

	if (!cJSON_IsObject(json) || get_words(json, &info) < 0)
		return -EPROTO;
	record_copy_text(json, "id", info.id, sizeof(info.id));
	record_copy_text(json, "tenant", info.tenant, sizeof(info.tenant));
	record_copy_text(json, "service", info.service, sizeof(info.service));
	record_copy_text(json, "selector", info.selector, sizeof(info.selector));
	record_copy_text(json, "host", info.host, sizeof(info.host));
	record_copy_text(json, "failure", info.failure, sizeof(info.failure));
	info.stopped_early = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "stoppedEarly"));
	info.continuous = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "continuous"));
	info.created_at_ns = record_u64(json, "createdNs");
	info.started_at_ns = record_u64(json, "startedNs");
	info.completed_at_ns = record_u64(json, "completedNs");
	info.duration_ns = record_u64(json, "durationNs");
	info.requested_duration_s = record_u32(json, "requestedSeconds");
	info.rate_hz = record_u32(json, "rateHz");
	info.retention_days = record_u32(json, "retentionDays");
	info.kernel_locks = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "kernelLocks"));
	info.wakers = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "wakers"));
	info.paths = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "paths"));
	info.tasks = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "tasks"));
	info.sample_count = record_u64(json, "samples");
	info.total_value = get_i64(json, "value");
	info.raw_data_bytes = record_u64(json, "bytes");
	get_quality(json, &info.quality);
	rc = get_lists(json, &info);
	if (rc < 0) {
		session_info_deinit(&info);
		return rc;
	}
	if (resume)
		get_resume(json, resume);
	*ret = info;
	return 0;
}

int session_record_put(struct store *store, const struct session_info *info,
		       const struct session_resume *resume, struct err *err)
{
	cleanup_free char *body = session_record_encode(info, resume);
	struct store_record record = {
		.kind = SESSION_RECORD_KIND,
		.tenant = info->tenant,
		.id = info->id,
		.service = info->service,
		.type = profile_type_info(info->type)->word,
		.status = session_status_word(info->status),
		.created_ns = info->created_at_ns,
		.body = body,
		.urgent = info->status != SESSION_RUNNING,
	};

	if (!body)
		return err_set(err, ENOMEM, "StoreUnavailable", NULL, "no memory for a record");
	record.body_len = strlen(body);
	return store_put(store, &record, err);
}

void session_info_deinit(struct session_info *info)
{
	free(info->processes);
	free(info->labels);
	info->processes = NULL;
	info->labels = NULL;
	info->process_count = info->label_count = 0;
}

unsigned session_left_s(const struct session_info *info)
{
	uint64_t end_ns = info->requested_duration_s * NS_PER_S;

	return end_ns > info->duration_ns
		       ? (unsigned)((end_ns - info->duration_ns + NS_PER_S - 1) / NS_PER_S)
		       : 1;
}
