// SPDX-License-Identifier: Apache-2.0
/* .incbin keeps the files as they are and needs no generator; paths are relative to the repository's root,
 * where make runs the compiler. The Makefile rebuilds this object when one of the files changes. */
#include "api/assets.h"

#define EMBED(name, file)                                                                          \
	__asm__(".pushsection .rodata\n"                                                           \
		".globl asset_" #name "\n"                                                         \
		"asset_" #name ":\n"                                                               \
		".incbin \"" file "\"\n"                                                           \
		".byte 0\n"                                                                        \
		".popsection\n")

EMBED(openapi_yaml, "api/openapi.yaml");
EMBED(home_plain_css, "api/ui/home/plain.css");
EMBED(flame_page_html, "api/ui/flame/page.html");
EMBED(flame_page_css, "api/ui/flame/page.css");
EMBED(flame_model_js, "api/ui/flame/model.js");
EMBED(flame_format_js, "api/ui/flame/format.js");
EMBED(flame_view_js, "api/ui/flame/view.js");
EMBED(flame_table_js, "api/ui/flame/table.js");
EMBED(flame_app_js, "api/ui/flame/app.js");
