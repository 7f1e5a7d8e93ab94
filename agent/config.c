// SPDX-License-Identifier: Apache-2.0
/* One table names every key with its type, place and range; reading, overriding by drop-ins and
 * releasing all walk it. */
#include "agent/config.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <strings.h>

#include "agent/base/ini.h"
#include "agent/base/io.h"
#include "agent/base/parse.h"
#include "agent/base/text.h"
#include "agent/config_text.h"
#include "agent/session/services/service_rules.h"

#define CONFIG_FILE_MAX	   (1u << 20) /* bytes */
#define CONFIG_DROP_IN_MAX 256
#define EXPORT_SPOOL_BYTES (256ull << 20)

enum key_type { KEY_TEXT, KEY_BOOL, KEY_SIZE, KEY_DURATION, KEY_U32, KEY_DOUBLE, KEY_LIST };

struct key {
	const char *section, *name;
	enum key_type type;
	size_t offset;
	size_t count_offset; /* KEY_LIST */
	double min, max;     /* numbers, sizes in bytes, durations in ns */
	const char *initial;
};

#define AT(member)	offsetof(struct config, member)
#define SECOND		1e9
#define EXPECTED_SIZE	96
#define TEXT(s, n, m, d) { s, n, KEY_TEXT, AT(m), 0, 0, 0, d }

#define ENVIRONMENT_PREFIX "PROFD_"

static const struct key keys[] = {
	TEXT("server", "listen", listen, "127.0.0.1:8088"),
	TEXT("server", "socket", socket, "/run/profd/profd.sock"),
	TEXT("server", "public_url", public_url, ""),
	TEXT("server", "tls_certificate", tls_certificate, ""),
	TEXT("server", "tls_key", tls_key, ""),
	{ "server", "cleartext", KEY_BOOL, AT(cleartext), 0, 0, 0, "no" },
	{ "server", "metrics_open", KEY_BOOL, AT(metrics_open), 0, 0, 0, "no" },
	TEXT("store", "url", store_url, ""),
	TEXT("store", "data_dir", data_dir, "/var/lib/profd"),
	{ "store", "disk_budget", KEY_SIZE, AT(disk_budget_bytes), 0, 64 << 20, 1e15, "2G" },
	{ "store", "detail_budget", KEY_SIZE, AT(detail_budget_bytes), 0, 0, 1e15, "256M" },
	{ "store", "retention_days", KEY_U32, AT(retention_days), 0, 1, 3650, "30" },
	{ "collect", "exclude", KEY_LIST, AT(exclude), AT(exclude_count), 0, 0, NULL },
	{ "collect", "cpu_budget_pct", KEY_DOUBLE, AT(cpu_budget_pct), 0, 0.01, 100, "1" },
	{ "collect", "target_budget_pct", KEY_DOUBLE, AT(target_budget_pct), 0, 0.01, 100, "10" },
	{ "collect", "memory_budget", KEY_SIZE, AT(memory_budget_bytes), 0, 16 << 20, 1e12, "64M" },
	TEXT("collect", "cpu_event", cpu_event, "cpu-clock"),
	{ "collect", "native_memory", KEY_BOOL, AT(native_memory), 0, 0, 0, "yes" },
	TEXT("collect", "host_root", host_root, "/"),
	TEXT("collect", "debuginfod_urls", debuginfod_urls, ""),
	{ "continuous", "span", KEY_DURATION, AT(continuous_span_ns), 0, 60 * SECOND,
	  86400 * SECOND, "10m" },
	{ "continuous", "private_webhooks", KEY_BOOL, AT(private_webhooks), 0, 0, 0, "no" },
	{ "continuous", "open_webhooks", KEY_BOOL, AT(open_webhooks), 0, 0, 0, "no" },
	TEXT("auth", "jwt_algorithm", jwt_algorithm, ""),
	TEXT("auth", "jwt_key_file", jwt_key_file, ""),
	TEXT("auth", "jwt_jwks_file", jwt_jwks_file, ""),
	TEXT("auth", "jwt_issuer", jwt_issuer, ""),
	TEXT("auth", "jwt_audience", jwt_audience, ""),
	TEXT("auth", "jwt_tenant_claim", jwt_tenant_claim, "tenant"),
	TEXT("auth", "jwt_role_claim", jwt_role_claim, "role"),
	{ "limits", "body_bytes", KEY_SIZE, AT(limits.body_bytes), 0, 1024, 1 << 30, "1M" },
	{ "limits", "url_bytes", KEY_SIZE, AT(limits.url_bytes), 0, 256, 1 << 20, "8K" },
	{ "limits", "header_bytes", KEY_SIZE, AT(limits.header_bytes), 0, 1024, 1 << 20, "16K" },
	{ "limits", "header_timeout", KEY_DURATION, AT(limits.header_timeout_ns), 0, 0.1 * SECOND,
	  3600 * SECOND, "10s" },
	{ "limits", "body_timeout", KEY_DURATION, AT(limits.body_timeout_ns), 0, 0.1 * SECOND,
	  3600 * SECOND, "10s" },
	{ "limits", "answer_timeout", KEY_DURATION, AT(limits.answer_timeout_ns), 0, SECOND,
	  3600 * SECOND, "60s" },
	{ "limits", "connections", KEY_U32, AT(limits.connections), 0, 1, 65536, "256" },
	{ "limits", "requests_per_second", KEY_U32, AT(limits.requests_per_second), 0, 1, 1000000,
	  "1000" },
	{ "limits", "request_burst", KEY_U32, AT(limits.request_burst), 0, 1, 10000000, "5000" },
	{ "limits", "received_per_second", KEY_U32, AT(limits.received_per_second), 0, 1, 10000, "20" },
	{ "limits", "running_sessions", KEY_U32, AT(limits.running_sessions), 0, 1, 10000, "32" },
	{ "limits", "running_sessions_host", KEY_U32, AT(limits.running_sessions_host), 0, 1, 10000,
	  "128" },
	{ "limits", "stacks_per_session", KEY_U32, AT(limits.stacks_per_session), 0, 1000, 100000000,
	  "1000000" },
	{ "limits", "baselines", KEY_U32, AT(limits.baselines), 0, 1, 100000, "1000" },
};

static const char *const sections[] = {
	"server", "store", "collect", "continuous", "auth", "limits"
};

/* ---- values ------------------------------------------------------------------------------------
 */

/* Freed memory is copied into every process that is forked. */
static void forget_text(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
}

static int set_text(char **slot, const char *value)
{
	char *copy = strdup(value);

	if (!copy)
		return -ENOMEM;
	forget_text(*slot);
	free(*slot);
	*slot = copy;
	return 0;
}

/* Whitespace-separated words; each file that names the key replaces the list. */
static int set_list(char **slots, unsigned *count, unsigned max, const char *value)
{
	cleanup_free char *copy = strdup(value);
	char *rest = NULL;

	if (!copy)
		return -ENOMEM;
	while (*count)
		free(slots[--*count]);
	for (char *word = strtok_r(copy, " \t,", &rest); word; word = strtok_r(NULL, " \t,", &rest)) {
		if (*count == max)
			return -E2BIG;
		slots[*count] = strdup(word);
		if (!slots[*count])
			return -ENOMEM;
		(*count)++;
	}
	return 0;
}

static int check_range(const struct key *key, double value)
{
	return value < key->min || value > key->max ? -ERANGE : 0;
}

static int set_number(void *slot, const struct key *key, const char *value)
{
	uint64_t number = 0;
	double real = 0;
	int rc;

	if (key->type == KEY_DOUBLE)
		rc = parse_double(value, key->min, key->max, &real);
	else if (key->type == KEY_U32)
		rc = parse_u64(value, (uint64_t)key->min, (uint64_t)key->max, &number);
	else if (key->type == KEY_SIZE)
		rc = parse_size_bytes(value, &number);
	else
		rc = parse_duration_ns(value, &number);
	if (rc == 0 && key->type != KEY_DOUBLE)
		rc = check_range(key, (double)number);
	if (rc < 0)
		return rc;
	if (key->type == KEY_DOUBLE)
		*(double *)slot = real;
	else if (key->type == KEY_U32)
		*(uint32_t *)slot = (uint32_t)number;
	else
		*(uint64_t *)slot = number;
	return 0;
}

static int set_value(struct config *config, const struct key *key, const char *value)
{
	void *slot = (char *)config + key->offset;

	switch (key->type) {
	case KEY_TEXT:
		return config_text_expected(key->section, key->name, value) ? -EINVAL : set_text(slot, value);
	case KEY_BOOL:
		return parse_bool(value, slot);
	case KEY_LIST:
		return set_list(slot, (unsigned *)(void *)((char *)config + key->count_offset),
				CONFIG_LIST_MAX, value);
	default:
		return set_number(slot, key, value);
	}
}

static void say_expected(const struct key *key, const char *value, char out[EXPECTED_SIZE])
{
	const char *text = config_text_expected(key->section, key->name, value);

	switch (key->type) {
	case KEY_BOOL:
		(void)snprintf(out, EXPECTED_SIZE, "yes or no");
		break;
	case KEY_SIZE:
		(void)snprintf(out, EXPECTED_SIZE,
			       "a size such as 64M or 2G, of %.0f to %.0f bytes", key->min,
			       key->max);
		break;
	case KEY_DURATION:
		(void)snprintf(out, EXPECTED_SIZE, "a duration such as 10s, 5m or 7d, of %g to %g s",
			       key->min / SECOND, key->max / SECOND);
		break;
	case KEY_U32:
		(void)snprintf(out, EXPECTED_SIZE, "a whole number from %.0f to %.0f", key->min, key->max);
		break;
	case KEY_DOUBLE:
		(void)snprintf(out, EXPECTED_SIZE, "a number from %g to %g", key->min, key->max);
		break;
	case KEY_TEXT:
		(void)snprintf(out, EXPECTED_SIZE, "%s", text ? text : "text");
		break;
	case KEY_LIST:
		(void)snprintf(out, EXPECTED_SIZE, "at most %d words", CONFIG_LIST_MAX);
		break;
	}
}

/* ---- sections with names -----------------------------------------------------------------------
 */

struct reader {
	struct config *config;
	const char *file;
	struct err err;
};

/* "[service web]" -> "web" if @section is of @kind, else NULL. */
static const char *section_name(const char *section, const char *kind)
{
	size_t len = strlen(kind);

	if (strncmp(section, kind, len) || section[len] != ' ')
		return NULL;
	return section + len + strspn(section + len, " ");
}

static int read_service(struct reader *r, const char *name, const char *key, const char *value)
{
	struct config *c = r->config;
	struct config_service *s = NULL;

	if (!strcmp(key, "port") && !config_text_is_port_pattern(value))
		return err_set(&r->err, EINVAL, NULL, key,
			       "port = '%.64s' of [service %s] is not valid: expected a number "
			       "from 1 to 65535, or a pattern of "
			       "digits as 80*",
			       value, name);
	for (unsigned i = 0; i < c->service_count; i++)
		if (!strcmp(c->services[i].name, name))
			s = &c->services[i];
	if (!s) {
		if (c->service_count == CONFIG_LIST_MAX)
			return err_set(&r->err, E2BIG, NULL, key, "at most %d [service] sections",
				       CONFIG_LIST_MAX);
		s = &c->services[c->service_count++];
		(void)snprintf(s->name, sizeof(s->name), "%s", name);
	}
	const struct {
		const char *key;
		char **slot;
	} slots[] = { { "unit", &s->unit },	  { "cgroup", &s->cgroup }, { "exe", &s->exe },
		      { "cmdline", &s->cmdline }, { "user", &s->user },	    { "port", &s->port } };
	for (size_t i = 0; i < ARRAY_SIZE(slots); i++)
		if (!strcmp(slots[i].key, key))
			return set_text(slots[i].slot, value);
	return err_set(&r->err, EINVAL, NULL, key,
		       "unknown key '%s' in [service %s]; known: unit cgroup exe cmdline user port",
		       key, name);
}

static int read_tenant(struct reader *r, const char *name, const char *key, const char *value)
{
	struct config *c = r->config;
	struct config_tenant *t = NULL;

	for (unsigned i = 0; i < c->tenant_count; i++)
		if (!strcmp(c->tenants[i].name, name))
			t = &c->tenants[i];
	if (!t) {
		if (c->tenant_count == CONFIG_LIST_MAX)
			return err_set(&r->err, E2BIG, NULL, key, "at most %d [tenant] sections",
				       CONFIG_LIST_MAX);
		t = &c->tenants[c->tenant_count++];
		(void)snprintf(t->name, sizeof(t->name), "%s", name);
	}
	if (!strcmp(key, "services")) {
		if (set_list(t->services, &t->service_count, CONFIG_LIST_MAX, value) == 0)
			return 0;
		return err_set(&r->err, E2BIG, NULL, key, "services of [tenant %s]: at most %d patterns", name,
			       CONFIG_LIST_MAX);
	}
	return err_set(&r->err, EINVAL, NULL, key, "unknown key '%s' in [tenant %s]; known: services",
		       key, name);
}

/* NULL: there are too many. */
static struct config_export *export_named(struct config *c, const char *name)
{
	struct config_export *e;

	for (unsigned i = 0; i < c->export_count; i++)
		if (!strcmp(c->exports[i].name, name))
			return &c->exports[i];
	if (c->export_count == ARRAY_SIZE(c->exports))
		return NULL;
	e = &c->exports[c->export_count++];
	(void)snprintf(e->name, sizeof(e->name), "%s", name);
	e->spool_bytes = EXPORT_SPOOL_BYTES;
	return e;
}

/* @key is NULL where the section begins. */
static int read_export(struct reader *r, const char *name, const char *key, const char *value)
{
	struct config_export *e;

	if (!parse_is_name(name) || name[0] == '.')
		return err_set(&r->err, EINVAL, NULL, "export",
			       "export name '%.100s' must match [A-Za-z0-9_-][A-Za-z0-9._-]{0,63}", name);
	e = export_named(r->config, name);
	if (!e)
		return err_set(&r->err, E2BIG, NULL, "export", "at most %zu [export] sections",
			       ARRAY_SIZE(r->config->exports));
	if (!key)
		return 0;
	if (!strcmp(key, "kind")) {
		if (strcmp(value, "otlp") && strcmp(value, "pyroscope"))
			return err_set(&r->err, EINVAL, NULL, key,
				       "kind of [export %s] must be otlp or pyroscope", name);
		return set_text(&e->kind, value);
	}
	if (!strcmp(key, "url")) {
		if (!config_text_is_url(value))
			return err_set(&r->err, EINVAL, NULL, key,
				       "url = '%.100s' of [export %s] is not valid: expected http://host[:port] or "
				       "https://host[:port], and a path if it is another than usual",
				       value, name);
		return set_text(&e->url, value);
	}
	if (!strcmp(key, "token_file"))
		return set_text(&e->token_file, value);
	if (!strcmp(key, "spool_bytes")) {
		if (parse_size_bytes(value, &e->spool_bytes) < 0 || e->spool_bytes < 1 << 20)
			return err_set(&r->err, EINVAL, NULL, key,
				       "spool_bytes of [export %s] must be a size of at least 1M",
				       name);
		return 0;
	}
	return err_set(&r->err, EINVAL, NULL, key,
		       "unknown key '%s' in [export %s]; known: kind url token_file "
		       "spool_bytes", key, name);
}

/* ---- files -------------------------------------------------------------------------------------
 */

static int unknown_key(struct reader *r, const char *section, const char *name)
{
	char known[256] = "";
	size_t at = 0;

	for (size_t i = 0; i < ARRAY_SIZE(keys) && at < sizeof(known); i++)
		if (!strcmp(keys[i].section, section))
			at += (size_t)snprintf(known + at, sizeof(known) - at, " %s", keys[i].name);
	return err_set(&r->err, EINVAL, NULL, name, "unknown key '%.64s' in [%s]; known:%s", name,
		       section, known);
}

static int check_section(struct reader *r, const char *section)
{
	for (size_t i = 0; i < ARRAY_SIZE(sections); i++)
		if (!strcmp(sections[i], section))
			return 0;
	return err_set(&r->err, EINVAL, NULL, section,
		       "unknown section [%.64s]; known: server store collect continuous auth "
		       "limits, export NAME, tenant NAME, "
		       "service NAME",
		       section);
}

/* The line that begins a section, also one without keys. */
static int read_section(struct reader *r, const char *section)
{
	const char *name;

	if ((name = section_name(section, "service")))
		return service_name_is_free(name)
			       ? 0
			       : err_set(&r->err, EINVAL, NULL, section,
					 "[service %.64s]: a name has at most %zu bytes of printable UTF-8 and is none of *, host, "
					 "kernel, pid:…, unit:…, container:…, port:…, pod:…",
					 name, sizeof(r->config->services[0].name) - 1);
	if ((name = section_name(section, "tenant")))
		return parse_is_name(name) ? 0
					   : err_set(&r->err, EINVAL, NULL, section,
						     "tenant name '%.100s' must match [A-Za-z0-9._-]{1,64}", name);
	if ((name = section_name(section, "export")))
		return read_export(r, name, NULL, NULL); /* without kind and url it is refused, not forgotten */
	return check_section(r, section);
}

static int read_key(struct reader *r, const char *section, const char *name, const char *value)
{
	char expected[EXPECTED_SIZE];
	int rc = check_section(r, section);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		const struct key *key = &keys[i];

		if (strcmp(key->section, section) || strcmp(key->name, name))
			continue;
		if (!strcmp(section, "server") && !strcmp(name, "socket"))
			r->config->socket_asked = true;
		if (set_value(r->config, key, value) == 0)
			return 0;
		say_expected(key, value, expected);
		return err_set(&r->err, EINVAL, NULL, name,
			       "[%s] %s = '%.128s' is not valid: expected %s", section, name,
			       config_text_shown(section, name, value), expected);
	}
	return unknown_key(r, section, name);
}

static int on_line(void *ctx, const char *section, const char *name, const char *value)
{
	struct reader *r = ctx;
	const char *title;
	int rc;

	if (!name)
		rc = read_section(r, section);
	else if ((title = section_name(section, "service")))
		rc = read_service(r, title, name, value);
	else if ((title = section_name(section, "tenant")))
		rc = read_tenant(r, title, name, value);
	else if ((title = section_name(section, "export")))
		rc = read_export(r, title, name, value);
	else
		rc = read_key(r, section, name, value);
	if (rc < 0 && !r->err.code)
		(void)err_set(&r->err, -rc, NULL, name ? name : section, "%s", strerror(-rc));
	return rc;
}

static int read_text(struct config *config, const char *path, char *text, size_t len,
		     struct err *err)
{
	struct reader r = { .config = config, .file = path };
	unsigned line;

	if (strlen(text) != len)
		return err_set(err, EINVAL, NULL, NULL, "%s contains a NUL byte", path);
	line = ini_visit(text, on_line, &r);
	if (line && r.err.code)
		return err_set(err, EINVAL, NULL, r.err.field, "%s:%u: %s", path, line, r.err.text);
	if (line)
		return err_set(err, EINVAL, NULL, NULL,
			       "%s:%u: not a '[section]' or 'key = value' line", path, line);
	return 0;
}

static int read_file(struct config *config, const char *path, struct err *err)
{
	/* One piece, which is not grown: nothing of it is left behind in freed memory. */
	cleanup_free char *text = malloc(CONFIG_FILE_MAX + 2);
	ssize_t len = text ? io_read_small(AT_FDCWD, path, text, CONFIG_FILE_MAX + 2) : -ENOMEM;
	int rc;

	if (len > (ssize_t)CONFIG_FILE_MAX)
		len = -EFBIG;
	if (len < 0)
		return err_set(err, (int)-len, NULL, NULL, "cannot read %s: %s", path,
			       strerror((int)-len));
	rc = read_text(config, path, text, (size_t)len, err);
	explicit_bzero(text, (size_t)len);
	return rc;
}

static int is_drop_in(const struct dirent *entry)
{
	size_t len = strlen(entry->d_name);

	return entry->d_name[0] != '.' && len > 5 && !strcmp(entry->d_name + len - 5, ".conf");
}

/* conf.d beside the file, in the order of their names. */
static int read_drop_ins(struct config *config, const char *path, struct err *err)
{
	const char *slash = strrchr(path, '/');
	int folder_len = slash ? (int)(slash - path) : 1;
	struct dirent **entries = NULL;
	char folder[PATH_MAX], file[PATH_MAX + 256];
	int rc = 0, count;

	(void)snprintf(folder, sizeof(folder), "%.*s/conf.d", folder_len, slash ? path : ".");
	count = scandir(folder, &entries, is_drop_in, alphasort);
	if (count < 0)
		return errno == ENOENT ? 0
				       : err_set(err, errno, NULL, NULL, "cannot read %s: %s", folder,
						 strerror(errno));
	for (int i = 0; i < count; i++) {
		(void)snprintf(file, sizeof(file), "%s/%s", folder, entries[i]->d_name);
		if (rc == 0 && i < CONFIG_DROP_IN_MAX)
			rc = read_file(config, file, err);
		free(entries[i]);
	}
	free(entries);
	return rc;
}

int config_load(struct config *config, const char *path, bool path_given, struct err *err)
{
	int rc;

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (keys[i].initial && (rc = set_value(config, &keys[i], keys[i].initial)) < 0)
			return err_set(err, -rc, NULL, keys[i].name, "no memory for defaults");
	if (access(path, F_OK) < 0) {
		if (path_given)
			return err_set(err, errno, NULL, "config",
				       "cannot read %s: %s; give an existing file to --config", path,
				       strerror(errno));
	} else {
		rc = read_file(config, path, err);
		if (rc < 0)
			return rc;
	}
	return read_drop_ins(config, path, err);
}

/* ---- environment and command line --------------------------------------------------------------
 */

int config_set(struct config *config, const char *key, const char *value, struct err *err)
{
	struct reader r = { .config = config };
	const char *dot = strchr(key, '.');
	char section[64];
	int rc;

	if (!dot || (size_t)(dot - key) >= sizeof(section))
		return err_set(err, EINVAL, NULL, key, "'%s' must be SECTION.KEY, as store.data_dir", key);
	(void)snprintf(section, sizeof(section), "%.*s", (int)(dot - key), key);
	rc = read_key(&r, section, dot + 1, value);
	if (rc < 0 && r.err.code)
		return err_set(err, r.err.code, NULL, key, "%s", r.err.text);
	return rc;
}

/* "STORE_DATA_DIR" -> "store.data_dir"; false: no section begins like this. */
static bool key_of_variable(const char *name, size_t len, char *out, size_t size)
{
	if (len >= size)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(sections); i++) {
		size_t section_len = strlen(sections[i]);

		if (len <= section_len + 1 || strncasecmp(name, sections[i], section_len) != 0 ||
		    name[section_len] != '_')
			continue;
		for (size_t k = 0; k < len; k++)
			out[k] = (char)tolower((unsigned char)name[k]);
		out[section_len] = '.';
		out[len] = '\0';
		return true;
	}
	return false;
}

int config_apply_environment(struct config *config, char *const *environment, struct err *err)
{
	for (; *environment; environment++) {
		const char *name = *environment, *value = strchr(name, '=');
		size_t prefix = strlen(ENVIRONMENT_PREFIX);
		struct err why = { 0 };
		char key[128];
		int rc;

		if (!value || strncmp(name, ENVIRONMENT_PREFIX, prefix) != 0 ||
		    !key_of_variable(name + prefix, (size_t)(value - name) - prefix, key, sizeof(key)))
			continue;
		rc = config_set(config, key, value + 1, &why);
		if (rc < 0)
			return err_set(err, -rc, NULL, key, "environment %.*s: %s", (int)(value - name),
				       name, why.text);
	}
	return 0;
}

void config_forget_secrets(struct config *config, char *const *environment)
{
	forget_text(config->store_url);
	forget_text(config->debuginfod_urls);
	for (unsigned i = 0; i < config->export_count; i++)
		forget_text(config->exports[i].url);
	for (; *environment; environment++) {
		char *value = strchr(*environment, '=');

		if (value && text_begins(*environment, ENVIRONMENT_PREFIX))
			forget_text(value + 1);
	}
}

/* ---- two configurations -------------------------------------------------------------------------
 */

static const char *const fixed_keys[][2] = {
	{ "server", "listen" },
	{ "server", "socket" },
	{ "store", "url" },
	{ "store", "data_dir" },
};

static bool same_text(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool same_list(char *const *a, unsigned a_count, char *const *b, unsigned b_count)
{
	if (a_count != b_count)
		return false;
	for (unsigned i = 0; i < a_count; i++)
		if (!same_text(a[i], b[i]))
			return false;
	return true;
}

static bool same_value(const struct key *key, const struct config *a, const struct config *b)
{
	const char *x = (const char *)a + key->offset, *y = (const char *)b + key->offset;

	switch (key->type) {
	case KEY_TEXT:
		return same_text(*(char *const *)(const void *)x, *(char *const *)(const void *)y);
	case KEY_LIST:
		return same_list((char *const *)(const void *)x,
				 *(const unsigned *)(const void *)((const char *)a + key->count_offset),
				 (char *const *)(const void *)y,
				 *(const unsigned *)(const void *)((const char *)b + key->count_offset));
	case KEY_BOOL:
		return *(const bool *)x == *(const bool *)y;
	case KEY_U32:
		return memcmp(x, y, sizeof(uint32_t)) == 0;
	default:
		return memcmp(x, y, sizeof(uint64_t)) == 0; /* also a double: equal bytes, equal value */
	}
}

bool config_differs(const struct config *a, const struct config *b, const char *section)
{
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (!strcmp(keys[i].section, section) && !same_value(&keys[i], a, b))
			return true;
	return false;
}

int config_keep_fixed(struct config *config, const struct config *before,
		      config_changed_fn *changed)
{
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		const struct key *key = &keys[i];
		bool fixed = false;

		for (size_t k = 0; k < ARRAY_SIZE(fixed_keys); k++)
			fixed |= !strcmp(fixed_keys[k][0], key->section) &&
				 !strcmp(fixed_keys[k][1], key->name);
		if (!fixed || same_value(key, config, before))
			continue;
		changed(key->section, key->name);
		if (set_text((char **)(void *)((char *)config + key->offset),
			     *(char *const *)(const void *)((const char *)before + key->offset)) < 0)
			return -ENOMEM;
	}
	config->socket_asked = before->socket_asked;
	return 0;
}

/* ---- credentials ----------------------------------------------------------------------------- */

static int credential(char **path, const char *folder)
{
	char *full;

	if (!*path || !**path || strchr(*path, '/'))
		return 0;
	if (asprintf(&full, "%s/%s", folder, *path) < 0)
		return -ENOMEM;
	free(*path);
	*path = full;
	return 0;
}

int config_credentials(struct config *config, const char *folder)
{
	char **const paths[] = { &config->tls_certificate, &config->tls_key, &config->jwt_key_file,
				 &config->jwt_jwks_file };
	int rc = 0;

	if (!folder)
		return 0;
	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(paths); i++)
		rc = credential(paths[i], folder);
	for (unsigned i = 0; rc == 0 && i < config->export_count; i++)
		rc = credential(&config->exports[i].token_file, folder);
	return rc;
}

/* ---- checks ------------------------------------------------------------------------------------
 */

static int check_readable(const char *path, const char *key, struct err *err)
{
	if (!path || !*path || access(path, R_OK) == 0)
		return 0;
	return err_set(err, errno, NULL, key, "%s = %s cannot be read: %s", key, path,
		       strerror(errno));
}

static int check_exports(const struct config *config, struct err *err)
{
	for (unsigned i = 0; i < config->export_count; i++) {
		const struct config_export *e = &config->exports[i];

		if (!e->kind || !e->url)
			return err_set(err, EINVAL, NULL, "export", "[export %s] needs kind and url",
				       e->name);
	}
	return 0;
}

/* A verifier that is only half there must not leave the API open. */
static int check_verifier(const struct config *config, struct err *err)
{
	const char *algorithm = config->jwt_algorithm;

	if (!*algorithm && (*config->jwt_key_file || *config->jwt_jwks_file))
		return err_set(err, EINVAL, NULL, "jwt_algorithm",
			       "[auth] %s needs jwt_algorithm: HS256, RS256, ES256 or EdDSA",
			       *config->jwt_key_file ? "jwt_key_file" : "jwt_jwks_file");
	if (*algorithm && !*config->jwt_key_file && !*config->jwt_jwks_file)
		return err_set(err, EINVAL, NULL, "jwt_key_file",
			       "[auth] jwt_algorithm needs jwt_key_file or jwt_jwks_file");
	return 0;
}

int config_check(const struct config *config, struct err *err)
{
	int rc = check_verifier(config, err);

	if (rc < 0)
		return rc;
	if (!!*config->tls_certificate != !!*config->tls_key)
		return err_set(err, EINVAL, NULL, "tls_key",
			       "tls_certificate and tls_key must be given together");
	rc = check_exports(config, err);
	if (rc < 0)
		return rc;
	rc = check_readable(config->tls_certificate, "tls_certificate", err);
	rc = rc < 0 ? rc : check_readable(config->tls_key, "tls_key", err);
	rc = rc < 0 ? rc : check_readable(config->jwt_key_file, "jwt_key_file", err);
	return rc < 0 ? rc : check_readable(config->jwt_jwks_file, "jwt_jwks_file", err);
}

void config_deinit(struct config *config)
{
	config_forget_secrets(config, (char *[]){ NULL });
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (keys[i].type == KEY_TEXT)
			free(*(char **)(void *)((char *)config + keys[i].offset));
	for (unsigned i = 0; i < config->exclude_count; i++)
		free(config->exclude[i]);
	for (unsigned i = 0; i < config->service_count; i++) {
		struct config_service *s = &config->services[i];
		char *owned[] = { s->unit, s->cgroup, s->exe, s->cmdline, s->user, s->port };

		for (size_t k = 0; k < ARRAY_SIZE(owned); k++)
			free(owned[k]);
	}
	for (unsigned i = 0; i < config->tenant_count; i++)
		for (unsigned k = 0; k < config->tenants[i].service_count; k++)
			free(config->tenants[i].services[k]);
	for (unsigned i = 0; i < config->export_count; i++) {
		free(config->exports[i].kind);
		free(config->exports[i].url);
		free(config->exports[i].token_file);
	}
	for (unsigned i = 0; i < config->disabled_feature_count; i++)
		free(config->disabled_features[i]);
	free(config->replay_file);
	free(config->record_file);
	*config = (struct config){ 0 };
}
