/* SPDX-License-Identifier: Apache-2.0 */
/* One message to a receiver over HTTP, and what its answer means: done, try again later, or never.
 * Rules of the OpenTelemetry protocol (opentelemetry.io/docs/specs/otlp, "OTLP/HTTP Response"):
 * 429, 502, 503 and 504 and broken connections are tried again, with Retry-After where it is given;
 * a partial success is not. */
#ifndef PROFD_API_PUSH_HTTP_H
#define PROFD_API_PUSH_HTTP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "agent/base/cleanup.h"

enum push_result {
	PUSH_DONE,
	PUSH_LATER,   /* the receiver or the way to it is in trouble */
	PUSH_REFUSED, /* it will never take this message */
};

struct push_target {
	const char *url;	  /* complete */
	const char *content_type;
	const char *token_file;	  /* read for each message, so that it can be changed; NULL = none */
	bool packed;		  /* messages are gzip */
	bool otlp;		  /* the answer may be a partial success */
	bool public_only; /* @url was chosen by a caller: loopback, private and link-local addresses
			     are refused, whatever its name resolves to */
	unsigned limit_s; /* for all of it; 0 = 60 */
	atomic_bool *stop;	  /* ends a transfer */
};

struct push_answer {
	long status;	       /* 0 = no answer */
	uint64_t retry_after_s; /* 0 = not said */
	uint64_t rejected;     /* profiles of a partial success */
	char text[256];	       /* why, for people; "" = nothing to say */
};

#define PUSH_SHOWN_SIZE 160

/* The part of @url that may be shown, since a URL often is a secret: scheme, host and port. Pure.
 */
void push_show_url(const char *url, char ret[PUSH_SHOWN_SIZE]);

/* Whether @address is a public one. It is not if it is loopback, private (RFC 1918, 4193, 6598),
 * link-local (where clouds have their metadata), multicast or unspecified. An IPv6 address that
 * stands for such an IPv4 address is not public either. Pure. */
bool push_address_is_public(const struct sockaddr *address);

enum push_result push_send(const struct push_target *target, const void *data, size_t len,
			   struct push_answer *ret);

/* Reads ExportProfilesServiceResponse {partial_success = 1 {rejected_profiles = 1, error_message =
 * 2}}; what is no such message counts as full success, as an empty one does. Pure; the input is
 * hostile. */
void push_read_answer(const void *data, size_t len, struct push_answer *ret);

#endif
