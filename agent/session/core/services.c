// SPDX-License-Identifier: Apache-2.0
/* The services that live now, which types they can be profiled by, and what a request's words mean.
 */
#include "agent/session/core/services.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>

#include "agent/session/core/demand.h"
#include "agent/session/core/read_choice.h"
#include "agent/session/core/sessions.h"
#include "agent/session/records/session_record.h"

#define CPUS_WAIT_NS (400 * NS_PER_MS) /* for the collector to read and the feed to arrive */

/* ---- types ----------------------------------------------------------------------------------- */
void services_type_state(const struct sessions *s, enum profile_type type, bool reads,
			 struct type_need *ret)
{
	const struct peers *peers = &s->peers;
	const char *reason = NULL;

	*ret = (struct type_need){ .wants = reads ? 0 : profile_type_info(type)->wants };
	if (!s->feed.ring)
		reason = "this profd runs with --no-collect: start it without to profile this host";
	else if (peers->collector_fd < 0)
		reason = "the collector process is not running; it is being restarted";
	else if (reads)
		reason = read_session_missing(s, type);
	else if (peers->has_status && peers->status.failure[0])
		reason = peers->status.failure;
	else if (peers->has_status && (ret->wants & ~peers->status.types))
		reason = profile_type_info(type)->needs;
	ret->available = !reason || !*reason;
	ret->returns = !ret->available && s->feed.ring && (peers->collector_fd < 0 || reads);
	(void)snprintf(ret->reason, sizeof(ret->reason), "%.255s", reason ? reason : "");
}

void services_session_need(const struct sessions *s, const struct session *session,
			   struct type_need *ret)
{
	const struct peers *peers = &s->peers;
	uint32_t extras = 0;

	services_type_state(s, session->info.type, session->reads, ret);
	if (!ret->wants)
		return; /* goroutines wait for each other, not for the kernel */
	if (session->info.kernel_locks)
		extras |= PROF_WANT_KERNEL_LOCKS;
	if (session->info.wakers)
		extras |= PROF_WANT_WAKERS;
	if (session->info.paths)
		extras |= PROF_WANT_PATHS;
	ret->wants |= extras;
	if (!ret->available || !peers->has_status || !(extras & ~peers->status.types))
		return;
	ret->available = false;
	(void)snprintf(ret->reason, sizeof(ret->reason), "%s",
		       "wakers take Linux 5.17 and kernelLocks 5.19; leave them out (`profd --features`)");
}

/* ---- listing --------------------------------------------------------------------------------- */
static bool is_shown(const struct live_process *process, const struct tenant_rule *rule)
{
	return !rule || service_tenant_allows(rule, &process->facts, &process->identity);
}

static bool is_listed(const struct live_process *process, const struct tenant_rule *rule)
{
	return !process->exited_ns && is_shown(process, rule);
}

static int by_service(const void *a, const void *b)
{
	const struct live_process *const *x = a, *const *y = b;
	int order = strcmp((*x)->identity.name, (*y)->identity.name);

	if (order)
		return order;
	return (*x)->facts.tgid < (*y)->facts.tgid ? -1 : (*x)->facts.tgid > (*y)->facts.tgid;
}

static void describe_service(const struct sessions *s, const struct live_process *process,
			     struct service_info *ret)
{
	const struct service_identity *identity = &process->identity;

	(void)snprintf(ret->name, sizeof(ret->name), "%s", identity->name);
	(void)snprintf(ret->source, sizeof(ret->source), "%s",
		       service_source_word(identity->source));
	ret->inferred = identity->source == SERVICE_SOURCE_EXE;
	(void)snprintf(ret->container_id, sizeof(ret->container_id), "%s", identity->container_id);
	service_container_value(&process->facts, "container.name", ret->container, sizeof(ret->container));
	service_container_value(&process->facts, "container.image.name", ret->image, sizeof(ret->image));
	service_container_value(&process->facts, "k8s.pod.name", ret->pod, sizeof(ret->pod));
	service_container_value(&process->facts, "k8s.namespace.name", ret->namespace,
				sizeof(ret->namespace));
	service_container_value(&process->facts, "k8s.workload.name", ret->workload,
				sizeof(ret->workload));
	(void)snprintf(ret->unit, sizeof(ret->unit), "%s", identity->unit);
	for (int type = 0; type < PROFILE_TYPE_MAX; type++) {
		struct type_need need;

		services_type_state(s, (enum profile_type)type,
				    read_session_takes((enum profile_type)type,
						       process->facts.flags),
				    &need);
		if (need.available && (process->facts.flags & FEED_PROC_EXCLUDED)) {
			need.available = false;
			(void)snprintf(need.reason, sizeof(need.reason),
				       "excluded by [collect] exclude of the configuration");
		}
		ret->types[type].available = need.available;
		(void)snprintf(ret->types[type].reason, sizeof(ret->types[type].reason), "%s",
			       need.reason);
	}
}

/* The service runs in what most of its processes run in; a tie goes to the first. */
static void choose_runtime(const struct live_process *const *processes, size_t count, char ret[16])
{
	size_t best = 0;

	for (size_t i = 0; i < count; i++) {
		const char *word = service_runtime_word(processes[i]->facts.flags);
		size_t same = 0;

		for (size_t j = 0; j < count; j++)
			same += service_runtime_word(processes[j]->facts.flags) == word;
		if (same > best) {
			best = same;
			(void)snprintf(ret, 16, "%s", word);
		}
		if (best * 2 > count || i > 64)
			return;
	}
}

static bool is_allocation(int type)
{
	return type == PROFILE_MEMORY || type == PROFILE_ALLOC;
}

#define NODE_MEMORY_HINT                                                                           \
	"native memory of Node, V8 and addons, by the JavaScript code that asks for it; objects in the " \
	"JavaScript heap are not counted"

/* The hints say how code that a runtime makes gets its names, and that a runtime's own heap is no
 * native memory. */
static const struct hint {
	const char *runtime;
	uint32_t flags; /* of the service's processes; 0 = any */
	const char *text;
	const char *memory_text; /* instead of it where native memory is counted */
} hints[] = {
	{ "jvm", 0,
	  "Java frames of HotSpot (JDK 11, 17, 21 and 25) need no flag; another virtual machine's are "
	  "[jit] unless it writes a map, as after `jcmd PID Compiler.perfmap`",
	  "native memory of the virtual machine and of native libraries, by the Java code that asks "
	  "for it; objects in the Java heap are not counted" },
	{ "node", FEED_PROC_V8_COMPRESSED,
	  "there are no frames of JavaScript: this V8 has compressed pointers, as Electron has; what "
	  "it compiles is [jit] unless V8 gets --perf-basic-prof",
	  NODE_MEMORY_HINT },
	{ "node", FEED_PROC_V8_UNDESCRIBED,
	  "there are no frames of JavaScript: the file of this V8 lacks symbols that describe them "
	  "(v8dbg_*); what it compiles is [jit] unless V8 gets --perf-basic-prof",
	  NODE_MEMORY_HINT },
	{ "node", 0,
	  "frames of JavaScript need no flag (Node 16 to 26); innermost Turbofan ones have exact "
	  "lines, and what is inlined there, with --detailed-line-info",
	  NODE_MEMORY_HINT },
	{ "php", 0,
	  "functions of PHP have no names here: frames are those of the interpreter and of the C "
	  "functions that PHP calls; PHP-FPM's slow log (`request_slowlog_timeout`) names them",
	  "memory of PHP is only seen if PHP has USE_ZEND_ALLOC=0 in its environment: PHP's own "
	  "allocator maps its memory" },
	{ "ruby", 0,
	  "functions of Ruby have no names here: frames are those of the interpreter and of the C "
	  "functions that Ruby calls; rbspy or stackprof names them",
	  "blocks that Ruby asks the C library for; small objects lie in the pages of Ruby's own heap, "
	  "which count where a page is made" },
	{ "perl", 0,
	  "functions of Perl have no names here: frames are those of the interpreter and of the C "
	  "functions that Perl calls; Devel::NYTProf names them",
	  "blocks that Perl asks the C library for, by the interpreter's functions" },
	{ "cpython", 0,
	  "frames of Python functions need no flag (CPython 3.8 to 3.14)",
	  "blocks that Python asks the C library for; objects of up to 512 bytes come from arenas, "
	  "which count where one is made (PYTHONMALLOC=malloc has each counted)" },
};

/* The first hint for @runtime that the @flags of its processes allow; NULL: there is none. */
static const struct hint *find_hint(const char *runtime, uint32_t flags)
{
	for (size_t i = 0; i < ARRAY_SIZE(hints); i++)
		if (!strcmp(runtime, hints[i].runtime) &&
		    (!hints[i].flags || flags & hints[i].flags))
			return &hints[i];
	return NULL;
}

static void add_hints(const struct live_process *const *processes, size_t count,
		      struct service_info *ret)
{
	const struct hint *hint;
	uint32_t flags = 0;

	for (size_t i = 0; i < count; i++)
		flags |= processes[i]->facts.flags;
	hint = find_hint(ret->runtime, flags);
	for (int type = 0; hint && type < PROFILE_TYPE_MAX; type++)
		if (profile_type_info((enum profile_type)type)->wants && ret->types[type].available)
			ret->types[type].hint = is_allocation(type) ? hint->memory_text : hint->text;
}

/* Adds the types that none of the service's processes can give. */
static void add_refusals(const struct live_process *const *processes, size_t count,
			 struct service_info *ret)
{
	for (int type = 0; type < PROFILE_TYPE_MAX; type++) {
		const char *refusal = "";

		if (!ret->types[type].available)
			continue;
		for (size_t i = 0; i < count && refusal; i++)
			refusal = read_session_refusal((enum profile_type)type,
						       processes[i]->facts.flags);
		if (!refusal)
			continue;
		ret->types[type].available = false;
		(void)snprintf(ret->types[type].reason, sizeof(ret->types[type].reason), "%s",
			       refusal);
	}
}

static int add_service(const struct sessions *s, const struct live_process *const *processes,
		       size_t count, struct service_info *ret)
{

	*ret = (struct service_info){ .processes = calloc(count, sizeof(*ret->processes)) };
	if (!ret->processes)
		return -ENOMEM;
	describe_service(s, processes[0], ret);
	choose_runtime(processes, count, ret->runtime);
	for (size_t i = 0; i < count; i++) {
		struct service_process *process = &ret->processes[ret->process_count++];

		process->pid = processes[i]->facts.tgid;
		process->started_at_ns = processes[i]->started_at_ns;
		(void)snprintf(process->exe, sizeof(process->exe), "%s",
			       *processes[i]->facts.exe ? processes[i]->facts.exe
							: processes[i]->facts.comm);
		(void)snprintf(process->runtime, sizeof(process->runtime), "%s",
			       service_runtime_word(processes[i]->facts.flags));
		ret->cpus += processes[i]->cpus;
	}
	add_refusals(processes, count, ret);
	add_hints(processes, count, ret);
	return 0;
}

static int list_services(const struct sessions *s, const struct live_process **sorted, size_t count,
			 struct service_list *ret)
{
	ret->items = calloc(count + 1, sizeof(*ret->items));
	if (!ret->items)
		return -ENOMEM;
	for (size_t first = 0, last; first < count; first = last) {
		int rc;

		for (last = first + 1; last < count && strcmp(sorted[first]->identity.name,
							      sorted[last]->identity.name) == 0;
		     last++)
			;
		rc = add_service(s, sorted + first, last - first, &ret->items[ret->count]);
		if (rc < 0)
			return rc;
		ret->count++;
	}
	return 0;
}

/* Has the collector read the CPU time of all processes, unless that was done a moment ago; a
 * collector that is away or slow leaves the figures of before. */
static void refresh_cpus(struct sessions *s)
{
	uint64_t now_ns = clock_monotonic_ns(), give_up_ns = now_ns + CPUS_WAIT_NS;
	bool waits;

	sessions_lock(s);
	waits = s->peers.collector_fd >= 0 && s->feed.lives_told_ns + LIVE_CPU_SPAN_NS < now_ns;
	sessions_unlock(s);
	while (waits && clock_monotonic_ns() < give_up_ns) {
		const uint64_t told = sessions_told(s);

		if (demand_lives_are_told(s, now_ns))
			break;
		sessions_await_told(s, told, CPUS_WAIT_NS / 20);
	}
}

/* A daemon that has just started is not to say that there is no service. */
static void await_processes(struct sessions *s)
{
	bool has_listed = s->options.feed_fd < 0;

	while (!has_listed && clock_monotonic_ns() < s->peers.patience_ns) {
		uint64_t told;

		sessions_lock(s);
		has_listed = s->peers.has_listed;
		told = s->told_count;
		sessions_unlock(s);
		if (!has_listed)
			sessions_await_told(s, told, CPUS_WAIT_NS);
	}
}

int sessions_services(struct sessions *s, const char *tenant, struct service_list *ret,
		      struct err *err)
{
	const struct tenant_rule *rule = sessions_tenant_rule(s, tenant);
	cleanup_free const struct live_process **sorted = NULL;
	struct service_list list = { 0 };
	size_t count = 0;
	int rc;

	await_processes(s);
	refresh_cpus(s);
	sessions_scope(s);
	sorted = calloc(s->tables.processes.count + 1, sizeof(struct live_process *));
	if (!sorted)
		return err_set(err, ENOMEM, NULL, NULL, "no memory to list services");
	for (size_t i = 0; i < s->tables.processes.count; i++)
		if (is_listed(s->tables.processes.data[i], rule))
			sorted[count++] = s->tables.processes.data[i];
	qsort(sorted, count, sizeof(struct live_process *), by_service);
	rc = list_services(s, sorted, count, &list);
	if (rc < 0) {
		service_list_deinit(&list);
		return err_set(err, -rc, NULL, NULL, "no memory to list services");
	}
	list.host_cpus = s->feed.cpu_count;
	*ret = list;
	return 0;
}

void service_list_deinit(struct service_list *list)
{
	for (uint32_t i = 0; i < list->count; i++)
		free(list->items[i].processes);
	free(list->items);
	*list = (struct service_list){ 0 };
}

/* ---- resolving ------------------------------------------------------------------------------- */
static bool is_own_address(const struct sockaddr *address, const char *host)
{
	char text[INET6_ADDRSTRLEN];
	const void *bytes;

	if (!address)
		return false;
	if (address->sa_family == AF_INET)
		bytes = &((const struct sockaddr_in *)(const void *)address)->sin_addr;
	else if (address->sa_family == AF_INET6)
		bytes = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
	else
		return false;
	return inet_ntop(address->sa_family, bytes, text, sizeof(text)) && strcmp(text, host) == 0;
}

/* Without asking a name server: our own host name and the addresses of our interfaces. */
static bool is_this_host(const char *host)
{
	struct ifaddrs *list = NULL;
	char name[256] = "";
	bool found = false;

	if (gethostname(name, sizeof(name) - 1) == 0 && strcmp(name, host) == 0)
		return true;
	if (getifaddrs(&list) < 0)
		return false;
	for (const struct ifaddrs *at = list; at && !found; at = at->ifa_next)
		found = is_own_address(at->ifa_addr, host);
	freeifaddrs(list);
	return found;
}

struct match {
	size_t count, excluded;
	const struct live_process *first;
	bool one_service, one_container;
};

static struct match match_live(const struct sessions *s, const struct tenant_rule *rule,
			       const struct selector *selector)
{
	struct match match = { .one_service = true, .one_container = true };

	for (size_t i = 0; i < s->tables.processes.count; i++) {
		const struct live_process *process = s->tables.processes.data[i];

		if (!is_listed(process, rule) ||
		    !selector_matches(selector, &process->facts, &process->identity))
			continue;
		match.excluded += (process->facts.flags & FEED_PROC_EXCLUDED) != 0;
		match.count++;
		if (!match.first) {
			match.first = process;
			continue;
		}
		match.one_service &=
			strcmp(match.first->identity.name, process->identity.name) == 0;
		match.one_container &= strcmp(match.first->identity.container_id,
					      process->identity.container_id) == 0;
	}
	return match;
}

/* Makes an alias definite: the process instance of a pid, the whole id of a container, the service
 * that the name of an executable leads to. Lock held. */
static int pin_alias(const struct match *match, struct selector *selector, struct err *err)
{
	if (selector->kind == SELECTOR_PID)
		selector->start_boottime_ns = match->first->facts.start_boottime_ns;
	if (selector->kind == SELECTOR_SERVICE && match->one_service)
		(void)snprintf(selector->name, sizeof(selector->name), "%s",
			       match->first->identity.name);
	if (selector->kind == SELECTOR_CONTAINER) {
		if (!match->one_container)
			return err_set(err, EINVAL, "InvalidParam", "service",
				       "several containers begin with '%.64s': give more digits",
				       selector->name);
		(void)snprintf(selector->name, sizeof(selector->name), "%s",
			       match->first->identity.container_id);
	}
	return 0;
}

uint64_t services_ended_ns(struct sessions *s, const char *tenant, const char *service)
{
	const struct tenant_rule *rule = sessions_tenant_rule(s, tenant);
	struct selector selector;
	uint64_t ended_ns = 0;
	sessions_scope(s);

	if (selector_parse(service, is_this_host, &selector) < 0)
		return 0;
	for (size_t i = 0; i < s->tables.processes.count; i++) {
		const struct live_process *process = s->tables.processes.data[i];

		if (process->exited_ns > ended_ns && is_shown(process, rule) &&
		    selector_matches(&selector, &process->facts, &process->identity))
			ended_ns = process->exited_ns;
	}
	return ended_ns;
}

enum found { FOUND_LIVE, FOUND_EXCLUDED, FOUND_NONE };

static int find_live(struct sessions *s, const struct tenant_rule *rule, const char *service,
		     struct selector *selector, char name[SERVICE_NAME_SIZE], enum found *ret,
		     struct err *err)
{
	struct selector exact = { .kind = SELECTOR_SERVICE };
	struct match match;
	int rc;
	sessions_scope(s);

	(void)snprintf(exact.name, sizeof(exact.name), "%s", service);
	if (selector->kind != SELECTOR_HOST) {
		match = match_live(s, rule, &exact);
		if (match.count)
			*selector = exact;
	}
	match = match_live(s, rule, selector);
	*ret = match.count == 0		       ? FOUND_NONE
	       : match.count == match.excluded ? FOUND_EXCLUDED
					       : FOUND_LIVE;
	if (selector->kind == SELECTOR_HOST)
		(void)snprintf(name, SERVICE_NAME_SIZE, "host");
	else if (match.first && match.one_service)
		(void)snprintf(name, SERVICE_NAME_SIZE, "%s", match.first->identity.name);
	else
		(void)snprintf(name, SERVICE_NAME_SIZE, "%.255s", service);
	if (!match.first)
		return 0;
	rc = pin_alias(&match, selector, err);
	return rc;
}

int sessions_service_is_stored(struct sessions *s, const char *tenant, const char *service,
			       struct err *err)
{
	static const char *const kinds[] = { SESSION_RECORD_KIND, "baseline", "continuous" };

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct store_query query = { .kind = kinds[i],
					     .tenant = tenant,
					     .service = service,
					     .every_host = true };
		uint64_t total = 0;
		int rc = store_list(s->store, &query, NULL, NULL, &total, err);

		if (rc < 0)
			return rc;
		if (total)
			return 1;
	}
	return 0;
}

/* The name that `ps` shows is often not that of the executable, which may have been found through a
 * link. Copies the service of a process that is called @comm. */
static bool find_called(struct sessions *s, const struct tenant_rule *rule, const char *comm,
			char ret[SERVICE_NAME_SIZE])
{
	sessions_scope(s);

	for (size_t i = 0; i < s->tables.processes.count; i++) {
		const struct live_process *process = s->tables.processes.data[i];

		if (!is_listed(process, rule) || strcmp(process->facts.comm, comm) != 0)
			continue;
		(void)snprintf(ret, SERVICE_NAME_SIZE, "%s", process->identity.name);
		return true;
	}
	return false;
}

static int refuse_unknown(struct sessions *s, const struct tenant_rule *rule, const char *service,
			  const struct selector *selector, struct err *err)
{
	char other[SERVICE_NAME_SIZE];

	if (selector->kind == SELECTOR_PID)
		return err_set(err, ENOENT, "UnknownService", "service",
			       "no process %u on this host", selector->tgid);
	if (selector->kind == SELECTOR_PORT)
		return err_set(err, ENOENT, "UnknownService", "service",
			       "no process of this host listens on TCP port %u", selector->port);
	if (selector->kind == SELECTOR_SERVICE && find_called(s, rule, service, other))
		return err_set(err, ENOENT, "UnknownService", "service",
			       "no service '%.128s' on this host; a process of that name belongs to service '%.128s'",
			       service, other);
	return err_set(err, ENOENT, "UnknownService", "service", "no service '%.128s' on this host",
		       service);
}

bool services_is_port(const char *service)
{
	struct selector selector;

	return selector_parse(service, is_this_host, &selector) == 0 && selector.kind == SELECTOR_PORT;
}

int services_resolve(struct sessions *s, const char *tenant, const char *service, bool may_wait,
		     struct selector *ret, char name[SERVICE_NAME_SIZE], struct err *err)
{
	const struct tenant_rule *rule = sessions_tenant_rule(s, tenant);
	struct selector selector;
	enum found found;
	int rc = selector_parse(service, is_this_host, &selector);

	if (rc < 0)
		return err_set(err, EINVAL, "InvalidParam", "service",
			       "expected a service name, pid:N, unit:NAME, container:ID, port:N, "
			       "host:port or host");
	rc = find_live(s, rule, service, &selector, name, &found, err);
	if (rc < 0)
		return rc;
	if (found == FOUND_EXCLUDED)
		return err_set(err, ENOTSUP, "ProfileTypeUnavailable", "service",
			       "'%.128s' is excluded by [collect] exclude of the configuration",
			       service);
	if (found == FOUND_LIVE || (may_wait && selector.kind != SELECTOR_PID)) {
		*ret = selector;
		return 0;
	}
	rc = sessions_service_is_stored(s, tenant, name, err);
	if (rc < 0)
		return rc;
	if (rc > 0 || selector.kind == SELECTOR_HOST)
		return err_set(err, ESRCH, "ServiceNotRunning", "service",
			       "no process of '%.128s' runs now; waitSeconds waits for one",
			       service);
	return refuse_unknown(s, rule, service, &selector, err);
}

void sessions_service_name(struct sessions *s, const char *tenant, const char *service,
			   char ret[SERVICE_NAME_SIZE])
{
	char name[SERVICE_NAME_SIZE];
	struct selector selector;
	struct err none = { 0 };

	/* Aliases have a colon. */
	if (!strchr(service, ':') ||
	    services_resolve(s, tenant, service, true, &selector, name, &none) < 0)
		(void)snprintf(ret, SERVICE_NAME_SIZE, "%s", service);
	else
		memcpy(ret, name, sizeof(name));
}
