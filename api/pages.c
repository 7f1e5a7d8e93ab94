// SPDX-License-Identifier: Apache-2.0
#include "api/pages.h"

#include "api/api_internal.h"
#include "api/http/assets.h"

/* The page is one document for all addresses; its script reads the address and asks the API. */
int handle_page(struct http_call *call)
{
	buf_add_str(&call->answer->body, asset_ui_index_html);
	call->answer->literal = asset_ui_index_html;
	call->answer->content_type = "text/html; charset=utf-8";
	call->answer->no_store = true;
	http_answer_header(call->answer, "Content-Security-Policy",
			   "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
			   "connect-src 'self'; form-action 'self'; base-uri 'none'; "
			   "frame-ancestors 'none'; require-trusted-types-for 'script'; "
			   "trusted-types 'none'");
	http_answer_header(call->answer, "Referrer-Policy", "no-referrer");
	http_answer_header(call->answer, "Cross-Origin-Opener-Policy", "same-origin");
	return 0;
}
