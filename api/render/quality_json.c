// SPDX-License-Identifier: Apache-2.0
#include "api/render/quality_json.h"

#include <stddef.h>

#include "agent/base/clock.h"
#include "agent/profile/outcome.h"

static void known(struct json_out *json, const char *name, double value)
{
	if (value >= 0)
		json_out_real(json, name, value, 3);
}

static void probes_json(struct json_out *json, const struct profile_probes *probes)
{
	char since[CLOCK_RFC3339_SIZE];

	if (!probes->mode[0])
		return;
	clock_format_rfc3339(probes->observed_since_ns, since);
	json_out_text(json, "mode", probes->mode);
	json_out_text(json, "observedSince", since);
	json_out_uint(json, "windows", probes->windows);
	json_out_uint(json, "hits", probes->hits);
	json_out_uint(json, "sampled", probes->sampled);
	json_out_uint(json, "meanGapBytes", probes->gap_bytes);
	json_out_text(json, "granularity", probes->pooled ? "pool blocks" : "allocations");
	known(json, "dutyPct", probes->duty_pct);
	known(json, "costPct", probes->cost_pct);
	known(json, "dilation", probes->dilation);
	known(json, "relErrPct", 100 * probes->rel_err);
	json_out_uint(json, "faultedBytes", probes->faulted_bytes);
	if (probes->resident_bytes)
		json_out_uint(json, "residentBytes", probes->resident_bytes);
	if (!probes->heap_bytes)
		return;
	json_out_uint(json, "heapBytes", probes->heap_bytes);
	json_out_uint(json, "heapBlocks", probes->heap_blocks);
	json_out_uint(json, "heapMappedBytes", probes->heap_mapped_bytes);
}

/* Counts by name, then one sentence for each of these names. */
static void unwind_errors_json(struct json_out *json, const struct profile_quality *quality)
{
	for (int meanings = 0; meanings < 2; meanings++) {
		json_out_open(json, meanings ? "unwindErrorMeanings" : "unwindErrors", '{');
		for (unsigned i = 0; i < PROFILE_OUTCOMES_MAX; i++) {
			const struct outcome_info *outcome = outcome_info(i);

			if (!quality->outcomes[i] || !outcome || outcome->sample == OUTCOME_SAMPLE_WHOLE)
				continue;
			if (meanings)
				json_out_text(json, outcome->name, outcome->sentence);
			else
				json_out_uint(json, outcome->name, quality->outcomes[i]);
		}
		json_out_close(json, '}');
	}
}

void quality_json(struct json_out *json, const char *name, const struct profile_quality *quality)
{
	uint32_t notes = quality->note_count;

	json_out_open(json, name, '{');
	if (quality->samples >= 0)
		json_out_int(json, "samples", quality->samples);
	if (quality->lost >= 0)
		json_out_int(json, "lost", quality->lost);
	known(json, "truncatedPct", quality->truncated_pct);
	known(json, "unknownFramePct", quality->unknown_frame_pct);
	known(json, "guessedFramePct", quality->guessed_frame_pct);
	known(json, "effectiveRate", quality->effective_rate);
	known(json, "overheadPct", quality->overhead_pct);
	known(json, "typeOverheadPct", quality->type_overhead_pct);
	probes_json(json, &quality->probes);
	unwind_errors_json(json, quality);
	if (quality->names_pending)
		json_out_bool(json, "namesPending", true);
	json_out_open(json, "processesSkipped", '[');
	for (uint32_t i = 0; i < quality->skipped_count && i < PROFILE_SKIPPED_MAX; i++) {
		json_out_open(json, NULL, '{');
		json_out_uint(json, "pid", quality->skipped[i].pid);
		json_out_text(json, "reason", quality->skipped[i].reason);
		json_out_close(json, '}');
	}
	json_out_close(json, ']');
	json_out_open(json, "notes", '[');
	for (uint32_t i = 0; i < notes && i < sizeof(quality->notes) / sizeof(quality->notes[0]); i++)
		json_out_text(json, NULL, quality->notes[i]);
	json_out_close(json, ']');
	json_out_close(json, '}');
}
