/* SPDX-License-Identifier: Apache-2.0 */
/* Rules that name the service of a process and select the processes of a request, from the facts
 * that the collector sends. Pure: no I/O, no state. Facts are hostile text. */
#ifndef PROFD_SESSION_SERVICE_RULES_H
#define PROFD_SESSION_SERVICE_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/session/session.h"
#include "agent/session/sessions_run.h"

/* ---- naming ---------------------------------------------------------------------------------- */

/* Texts are borrowed, NUL-terminated, never NULL; formats as in struct feed_proc. */
struct service_facts {
	uint32_t tgid;
	uint64_t start_boottime_ns;
	uint32_t flags;		 /* enum feed_proc_flag */
	const char *comm;
	const char *exe;
	const char *cmdline;
	const char *cgroup;
	const char *environment; /* NAME=value lines */
	const char *ports;	 /* "80,8080" */
	const char *program;	 /* inferred name, "" = none better than the executable's */
	const char *user;	 /* name, or the uid in decimal */
};

enum service_source {
	SERVICE_SOURCE_CONFIG,
	SERVICE_SOURCE_OTEL, /* the process's own OpenTelemetry context mapping */
	SERVICE_SOURCE_ENV,
	SERVICE_SOURCE_KUBERNETES,
	SERVICE_SOURCE_CONTAINER,
	SERVICE_SOURCE_UNIT,
	SERVICE_SOURCE_EXE,
	SERVICE_SOURCE_KERNEL,
};

struct service_identity {
	char name[SERVICE_NAME_SIZE];
	enum service_source source;
	/* Below user.slice, where users name groups as they like, both begin with "user@UID/". */
	char container_id[SERVICE_CONTAINER_SIZE]; /* "" = none */
	char unit[256]; /* innermost systemd unit with .service, "" = none */
	char pod_uid[40]; /* "" = none; with '-'; never of a user's group */
	/* The executable's base name where the service is named after its program instead: such
	 * services are found by both names. "" = none. */
	char alias[SERVICE_NAME_SIZE];
};

/* A name that a person, a process or its manager chose may become a service's: printable UTF-8 that
 * does not look like one of our own words or aliases. */
bool service_name_is_free(const char *name);
/* Writes what the runtime of a process's container says under @name (k8s.pod.name, ...; struct
 * feed_proc), "" if nothing. */
void service_container_value(const struct service_facts *facts, const char *name, char *ret,
			     size_t size);
/* All of it as lines: a part of facts->environment. */
const char *service_container_lines(const struct service_facts *facts);
/* The word of struct service_info.source. */
const char *service_source_word(enum service_source source);
/* native, go, jvm, cpython, node or kernel, by enum feed_proc_flag. */
const char *service_runtime_word(uint32_t flags);
void service_identify(const struct service_rule *rules, unsigned rule_count,
		      const struct service_facts *facts, struct service_identity *ret);
/* One of @rule's patterns matches the process by unit, container, cgroup, executable or user, never
 * by a name it gave itself. Units, containers and groups of users match only patterns that name
 * users: user@1000/nginx.service, /user.slice/… A pattern may begin with one of these words and a
 * colon to mean only that. */
bool service_tenant_allows(const struct tenant_rule *rule, const struct service_facts *facts,
			   const struct service_identity *identity);

/* ---- selectors ------------------------------------------------------------------------------- */

enum selector_kind {
	SELECTOR_HOST,
	SELECTOR_SERVICE,
	SELECTOR_PID,
	SELECTOR_UNIT,
	SELECTOR_CONTAINER,
	SELECTOR_PORT,
};

struct selector {
	enum selector_kind kind;
	char name[SERVICE_NAME_SIZE]; /* service, unit with .service, container id (prefix until
					 resolved) */
	uint32_t tgid;
	uint64_t start_boottime_ns; /* PID: 0 until resolved to a process instance */
	bool children;		    /* PID: and all that descend from it */
	uint16_t port;
};

/* Parses @text as an alias; SELECTOR_SERVICE if it is none. An exact service name goes before an
 * alias: the caller looks there first. @is_local_host says whether a name in `host:port` is this
 * machine (NULL: only loopback's names). -EINVAL: an alias word with nonsense behind it (pid:x),
 * empty or over-long text. */
int selector_parse(const char *text, bool (*is_local_host)(const char *host), struct selector *ret)
	must_use;
bool selector_matches(const struct selector *selector, const struct service_facts *facts,
		      const struct service_identity *identity);
/* The canonical text, parsed back by selector_from_text(). */
void selector_to_text(const struct selector *selector, char out[SELECTOR_TEXT_SIZE]);
int selector_from_text(const char *text, struct selector *ret) must_use;

#endif
