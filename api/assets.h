/* SPDX-License-Identifier: Apache-2.0 */
/* Text files of the source tree that the binary carries, NUL-terminated. */
#ifndef PROFD_API_ASSETS_H
#define PROFD_API_ASSETS_H

extern const char asset_openapi_yaml[], asset_home_plain_css[];
extern const char asset_flame_page_html[], asset_flame_page_css[];
/* Scripts of the flame graph page, in load order. */
extern const char asset_flame_model_js[], asset_flame_format_js[], asset_flame_view_js[],
	asset_flame_table_js[], asset_flame_app_js[];

#endif
