// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/modules/module_index.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/base/channel.h"
#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/io.h"
#include "agent/base/log.h"
#include "agent/base/vec.h"
#include "agent/collect/modules/module_files.h"
#include "agent/collect/proc/mounts.h"
#include "agent/collect/modules/slow_files.h"
#include "agent/wire/control.h"
#include "agent/wire/module_key.h"

#define ANSWER_TIMEOUT_NS (30 * NS_PER_S)
#define TRIES_MAX	  3
#define QUEUED_FLIGHT_MAX 4 /* of the queue, so that an urgent one waits for few before it */
#define KEPT_MAX	  128
#define KEPT_NS                                                                                    \
	(3 * NS_PER_S) /* longer than the samples of a program that has ended are on their way */

VEC_DEFINE(u32, uint32_t);

struct wait {
	uint32_t module;
	int fd;		  /* owned; -1 = opened when it is sent */
	uint64_t sent_ns; /* 0 = not sent to the present symbolizer */
	uint8_t tries;	  /* symbolizers that died with it */
	bool names_later, rows_later; /* as it was sent */
};

VEC_DEFINE(wait, struct wait);

struct module_index {
	struct module_table *modules;
	struct module_index_sink sink;
	int channel_fd;
	struct wait_vec flight; /* sent, or to be sent first: urgent ones and those of a dead symbolizer */
	struct wait_vec kept; /* answered, without names: what is sampled may be gone when they are
				 wanted */
	struct u32_vec queue;	/* module ids, in order, from queue_at on */
	size_t queue_at;
	size_t queue_holes; /* 0 instead of an id: it has overtaken the rest */
	struct slow_files *slow; /* on the way into the flight */
	struct channel_message *message;
};

struct module_index *module_index_create(struct module_table *modules,
					 const struct module_index_sink *sink)
{
	struct module_index *index = calloc(1, sizeof(*index));

	if (!index)
		return NULL;
	index->modules = modules;
	index->sink = *sink;
	index->channel_fd = -1;
	index->message = malloc(sizeof(*index->message));
	index->slow = slow_files_create();
	if (!index->message || !index->slow) {
		module_index_destroy(index);
		return NULL;
	}
	return index;
}

static void wait_close(struct wait *wait)
{
	if (wait->fd >= 0)
		(void)close(wait->fd);
	wait->fd = -1;
}

static void drop_wait(struct wait_vec *waits, size_t at)
{
	wait_close(&waits->data[at]);
	waits->count--;
	memmove(&waits->data[at], &waits->data[at + 1], (waits->count - at) * sizeof(*waits->data));
}

void module_index_destroy(struct module_index *index)
{
	if (!index)
		return;
	while (index->flight.count)
		drop_wait(&index->flight, index->flight.count - 1);
	while (index->kept.count)
		drop_wait(&index->kept, index->kept.count - 1);
	wait_vec_deinit(&index->flight);
	wait_vec_deinit(&index->kept);
	u32_vec_deinit(&index->queue);
	if (index->channel_fd >= 0)
		(void)close(index->channel_fd);
	slow_files_destroy(index->slow);
	free(index->message);
	free(index);
}

int module_index_fd(const struct module_index *index)
{
	return index->channel_fd;
}

size_t module_index_pending(const struct module_index *index)
{
	return index->flight.count + index->queue.count - index->queue_at - index->queue_holes;
}

unsigned module_index_hung(const struct module_index *index)
{
	return slow_files_hung(index->slow);
}

bool module_index_is_due(const struct module_index *index, uint64_t now_ns)
{
	return module_index_pending(index) || slow_files_are_due(index->slow, now_ns);
}

/* ---- outcome of a module -----------------------------------------------------------------------
 */

static void give_up(struct module_index *index, struct module *module, int error)
{
	uint64_t key = hash_combine(hash_combine(module->file.inode, module->file.dev_major),
				    module->file.dev_minor);

	if (module->key) { /* it was read before, and that answer stands */
		module->rows_later = module->kind == FEED_MODULE_ELF && module_is_awaited(module);
		module->state = MODULE_READY;
		if (module->rows_later) /* until it is mapped again, or sampled where it still is */
			index->sink.indexed(index->sink.ctx, module, -1, 0);
		return;
	}
	log_debug("module %u %s is not readable: %s", module->id, module->path, strerror(-error));
	module->state = MODULE_FAILED;
	module->missed = !module->inode_changed_ns &&
			 (error == -ENOENT || error == -EMFILE || error == -ENFILE);
	if (module->kind == FEED_MODULE_ELF)
		module->kind = FEED_MODULE_UNREADABLE;
	module_table_set_key(index->modules, module,
			     hash_bytes(module->path, strlen(module->path), key));
	index->sink.indexed(index->sink.ctx, module, -1, 0);
}

/* Without memory for them the file counts as one without an allocator; so does one whose pages may
 * not be read. */
static void keep_alloc_sites(struct module *module, const struct control_indexed *answer)
{
	size_t bytes = answer->alloc_count * sizeof(*answer->alloc_sites);

	free(module->alloc_sites);
	module->alloc_sites = NULL;
	module->alloc_family = module->alloc_count = 0;
	if (!answer->alloc_count || module->slow || answer->alloc_count > ALLOC_SITES_MAX ||
	    answer->alloc_family >= ALLOC_FAMILY_MAX)
		return;
	module->alloc_sites = malloc(bytes);
	if (!module->alloc_sites)
		return;
	memcpy(module->alloc_sites, answer->alloc_sites, bytes);
	module->alloc_count = answer->alloc_count;
	module->alloc_family = answer->alloc_family;
}

static void keep_script(struct module *module, const struct control_indexed *answer)
{
	free(module->script);
	module->script = NULL;
	module->script_fits = false;
	if (answer->script.kind == SCRIPT_NONE || answer->script.kind >= SCRIPT_KIND_MAX)
		return;
	module->script = malloc(sizeof(*module->script));
	if (module->script)
		*module->script = answer->script;
}

static void accept_answer(struct module_index *index, struct module *module,
			  const struct control_indexed *answer, int table_fd)
{
	const uint32_t of_rows = INDEXED_ROWS | INDEXED_FP;
	uint32_t flags = answer->flags;

	if (module->table_bytes && table_fd < 0)
		flags |= module->flags & of_rows; /* not asked for again */
	module->state = MODULE_READY;
	module->changed |= module->flags != flags;
	module->flags = flags;
	if (module->kind == FEED_MODULE_JIT)
		return; /* its identity is the process, not what was read */
	module->runtime = answer->runtime;
	keep_alloc_sites(module, answer);
	keep_script(module, answer);
	module->build_id_len = answer->build_id_len;
	memcpy(module->build_id, answer->build_id, sizeof(module->build_id));
	module_table_set_key(index->modules, module, answer->key);
	index->sink.indexed(index->sink.ctx, module, table_fd, answer->table_bytes);
}

/* ---- asking ------------------------------------------------------------------------------------
 */

/* A copy tells nothing about whose file it is of. */
static uint64_t voucher_of(const struct module *module, const struct stat *st)
{
	if (module->kind != FEED_MODULE_ELF)
		return MODULE_VOUCHER_ROOT; /* profd's own words */
	return module->slow ? MODULE_VOUCHER_CONTENT : module_voucher_of(st);
}

static void push_wait(struct module_index *index, struct module *module, int fd)
{
	struct wait wait = { .module = module->id, .fd = fd };
	struct stat st;

	module->state = MODULE_ASKED;
	if (fstat(fd, &st) == 0) {
		module_opened(module, &st);
		module->voucher = voucher_of(module, &st);
		/* Nobody can open it again once its processes are gone; and a file is not copied
		 * for its names alone. */
		module->names_later = module->names_later &&
				      (module->slow ? module->rows_later : st.st_nlink != 0);
	}
	if (!module->file.generation) /* /proc does not say it */
		module->file.generation = module_files_generation(fd, &module->file);
	if (wait_vec_push(&index->flight, wait) < 0) {
		wait_close(&wait);
		module->state = MODULE_SEEN;
	}
}

/* Its file stays open for a while: the first stack through it may come when its process and its
 * name are gone. */
static void keep_file(struct module_index *index, const struct module *module, int fd_take,
		      uint64_t now_ns)
{
	struct wait kept = { .module = module->id, .fd = fd_take, .sent_ns = now_ns };

	if (index->kept.count == KEPT_MAX)
		drop_wait(&index->kept, 0);
	if (wait_vec_push(&index->kept, kept) < 0)
		wait_close(&kept);
}

/* -ENOENT: it is not kept. */
static int take_kept(struct module_index *index, const struct module *module)
{
	for (size_t i = 0; i < index->kept.count; i++) {
		int fd = index->kept.data[i].fd;

		if (index->kept.data[i].module != module->id)
			continue;
		index->kept.data[i].fd = -1;
		drop_wait(&index->kept, i);
		return fd;
	}
	return -ENOENT;
}

static void close_kept(struct module_index *index, uint64_t now_ns)
{
	while (index->kept.count && now_ns - index->kept.data[0].sent_ns >= KEPT_NS)
		drop_wait(&index->kept, 0);
}

/* JIT code has a device only if it is a mapped jitdump. */
static bool is_slow(const struct module *module)
{
	const struct module_file *file = &module->file;

	return file->inode &&
	       !mounts_device_is_local(module->origin.tgid, file->dev_major, file->dev_minor);
}

static void open_file(struct module_index *index, struct module *module)
{
	int fd = take_kept(index, module);

	module->slow = is_slow(module);
	module->state = MODULE_ASKED;
	if (fd < 0)
		fd = module->slow ? -EXDEV : module_files_open(module, false, index->sink.isolation);
	if (fd == -EXDEV)
		fd = slow_files_ask(index->slow, module, clock_monotonic_ns());
	else if (fd >= 0)
		push_wait(index, module, fd);
	if (fd < 0)
		give_up(index, module, fd);
}

static bool is_elf(int fd)
{
	char magic[SELFMAG];

	return io_pread_all(fd, magic, sizeof(magic), 0) == 0 && memcmp(magic, ELFMAG, SELFMAG) == 0;
}

/* Names of debug files come from files of others, and from whoever has taken over the symbolizer
 * that reads those: they must not be a way to whatever only root may read. */
static void send_debug(struct module_index *index, uint32_t request, int fd, bool is_copy)
{
	struct stat st;
	bool is_found = fd >= 0 && is_elf(fd) && fstat(fd, &st) == 0;
	struct control_debug answer = { .head = { .kind = CONTROL_DEBUG, .request = request },
					.status = is_found ? 0 : -ENOENT,
					.voucher = MODULE_VOUCHER_CONTENT };

	if (is_found && !is_copy)
		answer.voucher = module_voucher_of(&st);

	if (index->channel_fd < 0 ||
	    channel_send_wait(index->channel_fd, &answer, sizeof(answer), &fd, is_found, 20) < 0)
		log_debug("the symbolizer did not take a debug file in time");
}

static void take_slow_files(struct module_index *index, uint64_t now_ns)
{
	struct slow_file file;

	while (slow_files_take(index->slow, index->modules, now_ns, &file)) {
		struct module *module = module_table_get(index->modules, file.module);
		cleanup_close int fd = file.fd;

		if (file.is_debug) {
			send_debug(index, file.request, fd, file.is_copy);
			continue;
		}
		module->slow |= file.is_copy;
		if (fd < 0)
			give_up(index, module, fd);
		else
			push_wait(index, module, take_fd(&fd));
	}
}

/* Leaves a hole in the queue where @module waits; false if it does not. */
static bool leave_queue(struct module_index *index, const struct module *module)
{
	for (size_t i = index->queue_at; i < index->queue.count; i++) {
		if (index->queue.data[i] != module->id)
			continue;
		index->queue.data[i] = 0;
		index->queue_holes++;
		return true;
	}
	return false;
}

void module_index_ask(struct module_index *index, struct module *module, bool urgent)
{
	if (urgent && module->state == MODULE_ASKED && (!module->key || module_is_awaited(module)) &&
	    index->flight.count < MODULE_INDEX_FLIGHT_MAX && leave_queue(index, module))
		module->state = MODULE_SEEN;
	if (module->state != MODULE_SEEN)
		return;
	if (urgent && index->flight.count < MODULE_INDEX_FLIGHT_MAX) {
		open_file(index, module);
		return;
	}
	if (u32_vec_push(&index->queue, module->id) == 0)
		module->state = MODULE_ASKED;
}

/* False: its file cannot be opened any more. */
static bool send_again(struct module_index *index, struct module *module)
{
	module->names_later = false;
	if (module->state != MODULE_READY)
		return true; /* on its way */
	module->state = MODULE_SEEN;
	module_index_ask(index, module, true);
	return module->state != MODULE_READY;
}

bool module_index_name(struct module_index *index, struct module *module)
{
	if (!module->names_later)
		return true;
	return send_again(index, module);
}

static int send_request(struct module_index *index, struct wait *wait, uint64_t now_ns)
{
	const struct module *module = module_table_get(index->modules, wait->module);
	struct control_index request = {
		.head = { .kind = CONTROL_INDEX, .request = module->id },
		.kind = module->kind,
		.want_rows = module->kind != FEED_MODULE_KERNEL && module->kind != FEED_MODULE_JIT &&
			     !module->rows_later &&
			     !module_table_canonical(index->modules, module->id)->table_bytes,
		.names_later = module->names_later,
		.build_id_len = module->build_id_len,
		.voucher = module->voucher,
	};
	size_t path_len = strnlen(module->path, sizeof(request.path) - 1);
	int rc;

	memcpy(request.build_id, module->build_id, sizeof(request.build_id));
	if (module->kind == FEED_MODULE_JIT) {
		request.build_id_len = sizeof(module->key);
		memcpy(request.build_id, &module->key, sizeof(module->key));
	}
	memcpy(request.path, module->path, path_len);
	rc = channel_send(index->channel_fd, &request, sizeof(request), &wait->fd, 1);
	if (rc == 0) {
		wait->sent_ns = now_ns;
		wait->names_later = module->names_later;
		wait->rows_later = module->rows_later;
	}
	return rc;
}

/* Opens the next of the queue and puts it behind those on the way. False when the queue is empty.
 */
static bool take_from_queue(struct module_index *index)
{
	struct module *module;

	if (index->queue_at == index->queue.count) {
		index->queue.count = 0;
		index->queue_at = 0;
		return false;
	}
	module = module_table_get(index->modules, index->queue.data[index->queue_at++]);
	if (!module) {
		index->queue_holes--;
		return true;
	}
	open_file(index, module);
	return true;
}

/* The first request to send next, or the number of them: none may go now. One that was with a dead
 * symbolizer goes alone. */
static size_t next_to_send(const struct module_index *index)
{
	bool any_sent = false;

	for (size_t i = 0; i < index->flight.count; i++) {
		if (!index->flight.data[i].sent_ns)
			continue;
		if (index->flight.data[i].tries)
			return index->flight.count;
		any_sent = true;
	}
	for (size_t i = 0; i < index->flight.count; i++)
		if (!index->flight.data[i].sent_ns && !(index->flight.data[i].tries && any_sent))
			return i;
	return index->flight.count;
}

static void give_up_late_ones(struct module_index *index, uint64_t now_ns)
{
	for (size_t i = index->flight.count; i-- > 0;) {
		const struct wait *wait = &index->flight.data[i];
		struct module *module = module_table_get(index->modules, wait->module);

		if (!wait->sent_ns || now_ns - wait->sent_ns < ANSWER_TIMEOUT_NS)
			continue;
		drop_wait(&index->flight, i);
		give_up(index, module, -ETIMEDOUT);
	}
}

void module_index_pump(struct module_index *index, uint64_t now_ns)
{
	give_up_late_ones(index, now_ns);
	close_kept(index, now_ns);
	take_slow_files(index, now_ns);
	while (index->channel_fd >= 0) {
		size_t at;

		while (index->flight.count < QUEUED_FLIGHT_MAX && take_from_queue(index))
			;
		at = next_to_send(index);
		if (at == index->flight.count)
			return;
		if (send_request(index, &index->flight.data[at], now_ns) < 0)
			return; /* the queue is full, or receive will find the peer gone */
	}
}

static void ask_again(struct module_index *index)
{
	struct module *module;
	size_t at = 0;

	while ((module = module_table_next(index->modules, &at))) {
		if (module->kind == FEED_MODULE_JIT)
			module->flags = 0; /* asked for again while its process lives */
		else if (module->state == MODULE_READY && module->canonical == module->id &&
			 u32_vec_push(&index->queue, module->id) == 0)
			module->state = MODULE_ASKED;
	}
}

void module_index_set_peer(struct module_index *index, int channel_fd)
{
	if (index->channel_fd >= 0)
		(void)close(index->channel_fd);
	index->channel_fd = channel_fd;
	ask_again(index);
	for (size_t i = index->flight.count; i-- > 0;) {
		struct wait *wait = &index->flight.data[i];
		struct module *module = module_table_get(index->modules, wait->module);

		if (!wait->sent_ns)
			continue;
		wait->sent_ns = 0;
		if (++wait->tries < TRIES_MAX)
			continue;
		drop_wait(&index->flight, i);
		log_warn("the symbolizer died %d times with %s: its frames stay without names",
			 TRIES_MAX, module->path);
		give_up(index, module, -EIO);
	}
}

/* ---- answers -----------------------------------------------------------------------------------
 */

static void on_indexed(struct module_index *index, const struct channel_message *message)
{
	const struct control_indexed *answer = (const void *)message->data;
	struct module *module;
	struct wait *wait;
	bool wanted_since;
	int error;

	if (message->len != sizeof(*answer) || answer->build_id_len > FEED_BUILD_ID_MAX)
		return;
	module = module_table_get(index->modules, answer->head.request);
	for (size_t i = 0; i < index->flight.count; i++) {
		wait = &index->flight.data[i];
		if (wait->module != answer->head.request)
			continue;
		wanted_since = (wait->names_later && !module->names_later) ||
			       (wait->rows_later && !module->rows_later);
		if (module->names_later && !module->rows_later && !module->slow && answer->status >= 0)
			keep_file(index, module, take_fd(&wait->fd), clock_monotonic_ns());
		drop_wait(&index->flight, i);
		error = answer->status;
		if (error >= 0)
			error = answer->key || module->key ? 0 : -EPROTO;
		if (error)
			give_up(index, module, error);
		else
			accept_answer(index, module, answer, message->fds[0]);
		if (!error && wanted_since) {
			module->state = MODULE_SEEN;
			module_index_ask(index, module, true);
		}
		return;
	}
}

/* Somebody wants names that no stack of ours led to, of a reading of threads; or names that the
 * symbolizer has lost: of any copy of the file, best of that whose table is known. */
static void on_names_want(struct module_index *index, const struct channel_message *message)
{
	const struct channel_head *want = (const void *)message->data;
	struct module *module = module_table_get(index->modules, want->request), *canonical;

	if (!module || module->kind != FEED_MODULE_ELF)
		return;
	canonical = module_table_canonical(index->modules, module->id);
	if (module->names_later)
		(void)module_index_name(index, module);
	else if ((!canonical || !send_again(index, canonical)) && canonical != module)
		(void)send_again(index, module);
}

static void on_debug_want(struct module_index *index, const struct channel_message *message)
{
	const struct control_debug_want *want = (const void *)message->data;
	const struct module *module;
	struct debug_request wanted;
	cleanup_close int fd = -1;

	if (message->len != sizeof(*want) || want->build_id_len > FEED_BUILD_ID_MAX ||
	    !memchr(want->name, '\0', sizeof(want->name)))
		return;
	module = module_table_get(index->modules, want->index_request);
	wanted = module_files_debug_request(want, module);
	fd = module_files_open_debug(&wanted, false);
	/* Its answer comes when the child has one: what belongs to which request is checked where
	 * it is read. */
	if (fd != -EXDEV || slow_files_ask_debug(index->slow, want, module, clock_monotonic_ns()) < 0)
		send_debug(index, want->head.request, fd, false);
}

void module_index_receive(struct module_index *index, unsigned max)
{
	for (unsigned i = 0; i < max && index->channel_fd >= 0; i++) {
		const struct channel_head *head = (const void *)index->message->data;
		int rc = channel_receive(index->channel_fd, index->message);

		if (rc == 0)
			return;
		if (rc == -EPROTO)
			continue;
		if (rc < 0) {
			(void)close(index->channel_fd);
			index->channel_fd = -1;
			return;
		}
		if (head->kind == CONTROL_INDEXED)
			on_indexed(index, index->message);
		else if (head->kind == CONTROL_NAMES_WANT)
			on_names_want(index, index->message);
		else if (head->kind == CONTROL_DEBUG_WANT)
			on_debug_want(index, index->message);
		channel_message_close(index->message);
	}
}
