// SPDX-License-Identifier: Apache-2.0
/* One self-contained page: viewer inline, data as base64 of gzip of format=flame. It makes no
 * request and opens from a file. Names reach it only inside base64 and are shown by textContent, so
 * none can become markup. */
#include "api/render/html.h"

#include <errno.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "api/http/assets.h"
#include "api/http/compress.h"
#include "api/render/page.h"
#include "api/render/render.h"

static char policy[512];

static void add_base64(struct buf *out, const void *data, size_t len)
{
	static const char letters[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const uint8_t *at = data;

	for (; len > 0 && !out->error; at += 3, len = len > 3 ? len - 3 : 0) {
		uint32_t bits = (uint32_t)at[0] << 16 | (len > 1 ? (uint32_t)at[1] << 8 : 0) |
				(len > 2 ? at[2] : 0);
		char four[4] = { letters[bits >> 18], letters[bits >> 12 & 63],
				 len > 1 ? letters[bits >> 6 & 63] : '=',
				 len > 2 ? letters[bits & 63] : '=' };

		buf_add(out, four, 4);
	}
}

static void add_source(struct buf *out, const char *text, const char *type)
{
	uint8_t digest[32];

	if (gnutls_hash_fast(GNUTLS_DIG_SHA256, text, strlen(text), digest) == 0) {
		buf_printf(out, "%s 'sha256-", type);
		add_base64(out, digest, sizeof(digest));
		buf_add_str(out, "'; ");
	}
}

static void make_policy(void)
{
	struct buf text = { .max = sizeof(policy) - 1 };

	buf_add_str(&text, "default-src 'none'; ");
	add_source(&text, asset_flame_page_js, "script-src");
	add_source(&text, asset_flame_page_css, "style-src");
	buf_add_str(&text, "base-uri 'none'; form-action 'none'; "
			   "require-trusted-types-for 'script'; trusted-types 'none'");
	if (!text.error)
		memcpy(policy, text.data, text.len + 1);
	buf_deinit(&text);
}

const char *html_content_policy(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, make_policy);
	return policy;
}

void markup_text(struct buf *out, const char *text, size_t max)
{
	for (size_t i = 0; text[i]; i++) {
		unsigned char c = (unsigned char)text[i];

		if (i >= max && (c & 0xc0) != 0x80) {
			buf_add_str(out, "…");
			return;
		}
		if (c == '<')
			buf_add_str(out, "&lt;");
		else if (c == '>')
			buf_add_str(out, "&gt;");
		else if (c == '&')
			buf_add_str(out, "&amp;");
		else if (c == '"')
			buf_add_str(out, "&quot;");
		else
			buf_add_char(out, c < 0x20 || c == 0x7f ? ' ' : (char)c);
	}
}

static int add_data(const struct buf *document, struct buf *out)
{
	struct buf packed = { .max = out->max };
	int rc = compress_gzip(document->data, document->len, 6, &packed);

	if (rc == 0)
		add_base64(out, packed.data, packed.len);
	buf_deinit(&packed);
	return rc;
}

static int add_part(const char *name, size_t len, const char *title, const struct buf *document,
		    struct buf *out)
{
	if (strncmp(name, "title", len) == 0) {
		markup_text(out, title, 300);
	} else if (strncmp(name, "csp", len) == 0) {
		buf_add_str(out, html_content_policy());
	} else if (strncmp(name, "css", len) == 0) {
		buf_add_str(out, asset_flame_page_css);
	} else if (strncmp(name, "js", len) == 0) {
		buf_add_str(out, asset_flame_page_js);
	} else if (strncmp(name, "data", len) == 0) {
		return add_data(document, out);
	}
	return 0;
}

int page_write(const char *title, const struct buf *document, struct buf *out)
{
	const char *at = asset_flame_page_html;
	int rc = 0;

	while (rc == 0 && *at) {
		const char *open = strstr(at, "{{");
		const char *end = open ? strstr(open, "}}") : NULL;

		if (!end) {
			buf_add_str(out, at);
			break;
		}
		buf_add(out, at, (size_t)(open - at));
		rc = add_part(open + 2, (size_t)(end - open - 2), title, document, out);
		at = end + 2;
	}
	return rc < 0 ? rc : out->error;
}

int render_html(const struct profile *p, const struct render_options *options, struct buf *out,
		struct err *err)
{
	struct buf document = { .max = out->max };
	char title[320];
	int rc = render_flame(p, options, &document, err);

	render_title(p, options, title, sizeof(title));
	if (rc == 0)
		rc = page_write(title, &document, out);
	buf_deinit(&document);
	return rc;
}
