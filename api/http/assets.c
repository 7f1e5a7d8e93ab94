// SPDX-License-Identifier: Apache-2.0
/* .incbin keeps the files as they are; paths are relative to the
 * repository's root, where make runs the compiler. The Makefile rebuilds this object when one of
 * the files changes. */
#include "api/http/assets.h"

#define EMBED(name, file)                                                                          \
	__asm__(".pushsection .rodata\n"                                                           \
		".globl asset_" #name "\n"                                                         \
		"asset_" #name ":\n"                                                               \
		".incbin \"" file "\"\n"                                                           \
		".byte 0\n"                                                                        \
		".popsection\n")

EMBED(openapi_json, GEN_DIR "/openapi.json");
EMBED(flame_page_html, "api/ui/flame/page.html");
EMBED(flame_page_css, "api/ui/flame/flame.css");
EMBED(flame_page_js, UI_DIR "/standalone.js");
EMBED(ui_index_html, UI_DIR "/files/index.html");

#define UI_FILE(number, path, file) EMBED(ui_##number, file);
#include "ui_files.h"
#undef UI_FILE

#define UI_FILE(number, path, file) extern const char asset_ui_##number[];
#include "ui_files.h"
#undef UI_FILE

const struct ui_file ui_files[] = {
#define UI_FILE(number, path, file) { path, asset_ui_##number },
#include "ui_files.h"
#undef UI_FILE
	{ 0 },
};
