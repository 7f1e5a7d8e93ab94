/* SPDX-License-Identifier: Apache-2.0 */
/* Text files that the binary carries, NUL-terminated. */
#ifndef PROFD_API_ASSETS_H
#define PROFD_API_ASSETS_H

/* api/openapi.yaml as JSON; the build converts it. */
extern const char asset_openapi_json[];
/* The page of format=html: its frame, style and the one script (tools/build_ui joins api/ui/flame).
 */
extern const char asset_flame_page_html[], asset_flame_page_css[], asset_flame_page_js[];
/* The product's page, and the files under /ui/ that it loads; the list ends with a NULL path. */
extern const char asset_ui_index_html[];
extern const struct ui_file {
	const char *path, *data;
} ui_files[];

#endif
