// SPDX-License-Identifier: Apache-2.0
#include "api/auth/sign_in.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/text.h"
#include "api/api_internal.h"
#include "api/auth/auth.h"
#include "api/http/json_in.h"
#include "api/http/json_out.h"

#define SESSION_LIFE_S (12 * 3600)

static bool over_tls(const struct api *api)
{
	const char *url = api->options.public_url;

	return api->options.tls_certificate || (url && text_begins(url, "https:"));
}

static void set_cookie(struct http_call *call, const char *value, unsigned life_s)
{
	http_answer_header(call->answer, "Set-Cookie",
			   AUTH_COOKIE "=%s; Path=/; Max-Age=%u; HttpOnly; SameSite=Strict%s", value,
			   life_s, over_tls(call->api) ? "; Secure" : "");
}

int handle_sign_in(struct http_call *call)
{
	uint64_t now_s = clock_realtime_ns() / NS_PER_S;
	struct json_out json = json_out_to(&call->answer->body);
	struct auth_identity identity;
	struct json_warnings warnings = { 0 };
	cleanup(json) cJSON *body = NULL;
	const char *token = "";
	char text[TICKET_SIZE], ticket[TICKET_SIZE], who[64];
	int rc = json_in_object(call->request->body, call->request->body_len, &body, call->err);

	if (rc == 0)
		rc = json_in_text(body, "token", true, JWT_TEXT_MAX - 1, &token, call->err);
	if (rc == 0)
		rc = auth_token(call->api, token, &identity, call->err);
	if (rc < 0)
		return rc;
	if (identity.exp_s > now_s + SESSION_LIFE_S || !identity.exp_s)
		identity.exp_s = now_s + SESSION_LIFE_S;
	if (identity.key_id[0])
		(void)snprintf(who, sizeof(who), "%s", identity.key_id);
	else
		(void)snprintf(who, sizeof(who), "-%" PRIx64 ".%" PRIx64, identity.caller,
			       jwt_verifier_mark(call->api->jwt));
	(void)snprintf(text, sizeof(text), "%" PRIu64 " %u %s %s", identity.exp_s, identity.role, who,
		       identity.tenant);
	rc = ticket_make(call->api, text, ticket);
	if (rc < 0)
		return rc;
	set_cookie(call, ticket, (unsigned)(identity.exp_s - now_s));
	json_in_unknown(body, "token", &warnings);
	json_out_open(&json, NULL, '{');
	json_out_time(&json, "expiresAt", identity.exp_s * NS_PER_S);
	json_out_text(&json, "tenant", identity.tenant[0] ? identity.tenant : NULL);
	warnings_json(&json, &warnings);
	json_out_close(&json, '}');
	call->answer->content_type = "application/json";
	call->answer->no_store = true;
	return 0;
}

int handle_sign_out(struct http_call *call)
{
	set_cookie(call, "", 0);
	call->answer->status = 204;
	call->answer->no_store = true;
	return 0;
}
