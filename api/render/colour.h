/* SPDX-License-Identifier: Apache-2.0 */
/* Colours of frames, the same on the page and in pictures: a hue by module, grey for the kernel and
 * for what has no name. OKLCH lightness 0.83, chroma 0.085, twelve hues from 10 degrees. Text on it
 * has 9.97:1 contrast. The edge colour (lightness 0.60) has 3.8:1 against the page. */
#ifndef PROFD_API_RENDER_COLOUR_H
#define PROFD_API_RENDER_COLOUR_H

#include <stdint.h>

struct colour {
	const char *fill, *edge; /* "#rrggbb" */
};

struct colour colour_of_module(const char *module, uint8_t frame_kind);

#endif
