// SPDX-License-Identifier: Apache-2.0
#include "api/render/colour.h"

#include "agent/profile/profile.h"

struct colour colour_of_module(const char *module, uint8_t frame_kind)
{
	static const struct colour hues[12] = {
		{ "#f9b1bb", "#ac6a75" }, { "#f8b59e", "#ac6e59" }, { "#ebbe8a", "#a17745" },
		{ "#d4c988", "#8c8142" }, { "#b5d398", "#6f8b53" }, { "#96d9b4", "#4f906f" },
		{ "#82d9d3", "#36908b" }, { "#86d5ee", "#3c8ca3" }, { "#9dccfd", "#5884b1" },
		{ "#bcc2fe", "#767bb2" }, { "#d8b8f1", "#9072a6" }, { "#eeb2d9", "#a26c90" },
	};
	static const struct colour kernel = { "#c9cdd4", "#7b818c" };
	static const struct colour nameless = { "#e3e3e3", "#8d8d8d" };
	uint32_t hash = 2166136261u; /* FNV-1a, 32 bits */

	if (frame_kind == PROFILE_FRAME_KERNEL)
		return kernel;
	if (frame_kind == PROFILE_FRAME_UNKNOWN || frame_kind == PROFILE_FRAME_MARKER)
		return nameless;
	for (; *module; module++)
		hash = (hash ^ (unsigned char)*module) * 16777619u;
	return hues[hash % 12];
}
