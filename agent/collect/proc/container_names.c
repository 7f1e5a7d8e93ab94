// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/proc/container_names.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "agent/base/io.h"
#include "agent/base/parse.h"
#include "agent/base/text.h"
#include "agent/collect/proc/mounts.h"

#define ID_DIGITS     64u
#define FILE_MAX      (1u << 20) /* bytes: containers.json lists all containers */
#define LINKS_MAX     4096u	 /* entries of a folder that are looked at */
#define SPACES_MAX    16u	 /* containerd's namespaces */
#define CACHE_ENTRIES 256u
#define KNOWN_NS      (300 * NS_PER_S) /* a container can be renamed */
#define UNKNOWN_NS    NS_PER_S

static const char *host_root = "/";

void container_names_set_root(const char *root)
{
	host_root = root;
}

/* ---- control groups -------------------------------------------------------------------------- */

static bool is_hex(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

int container_names_id(const char *cgroup, char ret[65], long *ret_uid)
{
	static const char users[] = "/user.slice/user-";
	const char *found = NULL;
	size_t run = 0;

	for (const char *at = cgroup; *at; at++) {
		run = is_hex(*at) ? run + 1 : 0;
		if (run == ID_DIGITS && !is_hex(at[1]))
			found = at + 1 - ID_DIGITS; /* the innermost */
	}
	if (!found || strstr(cgroup, "conmon-"))
		return false;
	memcpy(ret, found, ID_DIGITS);
	ret[ID_DIGITS] = '\0';
	*ret_uid = text_begins(cgroup, users) ? strtol(cgroup + strlen(users), NULL, 10) : -1;
	return true;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static bool is_plain(const char *text, size_t size)
{
	size_t len = strnlen(text, size);

	if (len == 0 || len == size || !parse_is_utf8(text, len))
		return false;
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
			return false;
	return true;
}

static void keep(char *ret, size_t size, const char *text)
{
	if (!ret[0] && text && is_plain(text, size))
		memcpy(ret, text, strlen(text) + 1);
}

#define KEEP(member, text) keep(member, sizeof(member), text)

static const char *text_of(const cJSON *object, const char *name)
{
	return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
}

static void json_free(cJSON **json)
{
	cJSON_Delete(*json);
}
#define cleanup_json __attribute__((__cleanup__(json_free)))

/* Labels and annotations that say the same wherever they are. */
static void take_labels(const cJSON *labels, struct container_names *ret)
{
	KEEP(ret->project, text_of(labels, "com.docker.compose.project"));
	KEEP(ret->project, text_of(labels, "io.podman.compose.project"));
	KEEP(ret->service, text_of(labels, "com.docker.compose.service"));
	KEEP(ret->pod, text_of(labels, "io.kubernetes.pod.name"));
	KEEP(ret->namespace, text_of(labels, "io.kubernetes.pod.namespace"));
	KEEP(ret->container, text_of(labels, "io.kubernetes.container.name"));
}

int container_names_parse_docker(const char *json, size_t len, struct container_names *ret)
{
	cleanup_json cJSON *root = cJSON_ParseWithLength(json, len);
	const cJSON *config = cJSON_GetObjectItemCaseSensitive(root, "Config");
	const char *name = text_of(root, "Name");

	if (!cJSON_IsObject(root))
		return -EPROTO;
	KEEP(ret->runtime, "docker");
	KEEP(ret->name, name && *name == '/' ? name + 1 : name);
	KEEP(ret->image, text_of(config, "Image"));
	take_labels(cJSON_GetObjectItemCaseSensitive(config, "Labels"), ret);
	return 0;
}

int container_names_parse_oci(const char *json, size_t len, struct container_names *ret)
{
	cleanup_json cJSON *root = cJSON_ParseWithLength(json, len);
	const cJSON *notes = cJSON_GetObjectItemCaseSensitive(root, "annotations");

	if (!cJSON_IsObject(root))
		return -EPROTO;
	take_labels(notes, ret);
	/* containerd's CRI plugin */
	KEEP(ret->pod, text_of(notes, "io.kubernetes.cri.sandbox-name"));
	KEEP(ret->namespace, text_of(notes, "io.kubernetes.cri.sandbox-namespace"));
	KEEP(ret->container, text_of(notes, "io.kubernetes.cri.container-name"));
	KEEP(ret->image, text_of(notes, "io.kubernetes.cri.image-name"));
	/* CRI-O, nerdctl, Podman */
	KEEP(ret->image, text_of(notes, "io.kubernetes.cri-o.ImageName"));
	KEEP(ret->image, text_of(notes, "io.podman.annotations.image"));
	KEEP(ret->name, text_of(notes, "nerdctl/name"));
	KEEP(ret->name, ret->container);
	return 0;
}

static const cJSON *find_entry(const cJSON *list, const char *id)
{
	const cJSON *entry;

	cJSON_ArrayForEach(entry, list) {
		const char *text = text_of(entry, "id");

		if (text && strcmp(text, id) == 0)
			return entry;
	}
	return NULL;
}

int container_names_parse_storage(const char *json, size_t len, const char *id,
				  struct container_names *ret)
{
	cleanup_json cJSON *root = cJSON_ParseWithLength(json, len), *inner = NULL;
	const cJSON *entry = cJSON_IsArray(root) ? find_entry(root, id) : NULL;
	const char *metadata = text_of(entry, "metadata");

	if (!cJSON_IsArray(root))
		return -EPROTO;
	if (!entry)
		return -ENOENT;
	inner = metadata ? cJSON_Parse(metadata) : NULL;
	KEEP(ret->image, text_of(inner, "image-name"));
	KEEP(ret->pod, text_of(inner, "pod-name"));
	KEEP(ret->name, cJSON_GetStringValue(cJSON_GetArrayItem(
				cJSON_GetObjectItemCaseSensitive(entry, "names"), 0)));
	return 0;
}

/* ---- names of Kubernetes --------------------------------------------------------------------- */

static void copy_part(char *ret, size_t size, const char *text, size_t len)
{
	char part[CONTAINER_POD_SIZE];

	if (len >= sizeof(part))
		return;
	memcpy(part, text, len);
	part[len] = '\0';
	keep(ret, size, part);
}

int container_names_parse_link(const char *name, const char *id, struct container_names *ret)
{
	const char *space = strchr(name, '_'), *container = space ? strchr(space + 1, '_') : NULL;
	const char *end = container ? strrchr(container, '-') : NULL;

	if (!end || strlen(end) != 1 + ID_DIGITS + strlen(".log") ||
	    strncmp(end + 1, id, ID_DIGITS) != 0)
		return -ENOENT;
	copy_part(ret->pod, sizeof(ret->pod), name, (size_t)(space - name));
	copy_part(ret->namespace, sizeof(ret->namespace), space + 1,
		  (size_t)(container - space - 1));
	copy_part(ret->container, sizeof(ret->container), container + 1,
		  (size_t)(end - container - 1));
	return 0;
}

/* Length of the text without a last part of @least to @most characters of @set; @len: there is no
 * such part. */
static size_t without(const char *text, size_t len, const char *set, size_t least, size_t most)
{
	size_t run = 0;

	while (run < len && text[len - 1 - run] && strchr(set, text[len - 1 - run]))
		run++;
	return run >= least && run <= most && len > run + 1 && text[len - run - 1] == '-'
		       ? len - run - 1
		       : len;
}

void container_names_workload(const char *pod, char *ret, size_t size)
{
	/* Kubernetes makes names of these alone (apimachinery, util/rand). */
	static const char made[] = "bcdfghjklmnpqrstvwxz2456789";
	static const char digits[] = "0123456789";
	size_t len = strlen(pod), cut = without(pod, len, made, 5, 5);

	if (cut == len) /* a stateful set counts */
		cut = without(pod, len, digits, 1, 5);
	else if (without(pod, cut, digits, 8, 10) < cut) /* a cron job's: minutes since 1970 */
		cut = without(pod, cut, digits, 8, 10);
	else /* a deployment's: the hash of its replica set */
		cut = without(pod, cut, made, 6, 10);
	if (cut >= size)
		cut = size - 1;
	memcpy(ret, pod, cut);
	ret[cut] = '\0';
}

static size_t add_line(char *ret, size_t size, size_t at, const char *name, const char *value)
{
	size_t need = strlen(name) + strlen(value) + 2;

	if (!*value || at + need >= size)
		return at;
	(void)snprintf(ret + at, size - at, "%s=%s\n", name, value);
	return at + need;
}

size_t container_names_lines(const struct container_names *names, char *ret, size_t size)
{
	char workload[CONTAINER_POD_SIZE];
	size_t at = add_line(ret, size, 0, "container.runtime", names->runtime);

	container_names_workload(names->pod, workload, sizeof(workload));
	at = add_line(ret, size, at, "container.name", names->name);
	at = add_line(ret, size, at, "container.image.name", names->image);
	at = add_line(ret, size, at, "k8s.namespace.name", names->namespace);
	at = add_line(ret, size, at, "k8s.pod.name", names->pod);
	at = add_line(ret, size, at, "k8s.container.name", names->container);
	at = add_line(ret, size, at, "k8s.workload.name", workload);
	at = add_line(ret, size, at, "compose.project", names->project);
	at = add_line(ret, size, at, "compose.service", names->service);
	ret[at] = '\0';
	return at;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int open_below(int root_fd, const char *path, uint64_t flags)
{
	const struct open_how how = { .flags = flags | O_CLOEXEC,
				      .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	long fd = syscall(SYS_openat2, root_fd, *path == '/' ? path + 1 : path, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

/* The file's bytes. @uid: whose it must be, -1 = anybody's. */
static int read_below(int root_fd, const char *path, long uid, char **ret, size_t *ret_len)
{
	cleanup_close int look_fd = open_below(root_fd, path, O_PATH);
	struct stat st;
	char link[32];

	if (look_fd < 0)
		return look_fd;
	if (fstat(look_fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > (off_t)FILE_MAX ||
	    (uid >= 0 && st.st_uid != (uid_t)uid) ||
	    !mounts_file_is_local((uint32_t)getpid(), look_fd))
		return -EACCES;
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", look_fd);
	return io_read_file(AT_FDCWD, link, FILE_MAX, ret, ret_len);
}

struct lookup {
	int root_fd;
	const char *id;
	long uid; /* of a rootless container, -1 = the system's */
	struct container_names *names;
};

static bool take_docker(const struct lookup *l, const char *folder)
{
	cleanup_free char *json = NULL;
	char path[512];
	size_t len;

	(void)snprintf(path, sizeof(path), "%s/containers/%s/config.v2.json", folder, l->id);
	return read_below(l->root_fd, path, l->uid, &json, &len) == 0 &&
	       container_names_parse_docker(json, len, l->names) == 0;
}

static bool take_oci(const struct lookup *l, const char *runtime, const char *path)
{
	cleanup_free char *json = NULL;
	size_t len;

	if (read_below(l->root_fd, path, l->uid, &json, &len) < 0 ||
	    container_names_parse_oci(json, len, l->names) < 0)
		return false;
	KEEP(l->names->runtime, runtime);
	return true;
}

/* A folder of containers/storage: CRI-O's and Podman's. */
static bool take_storage(const struct lookup *l, const char *folder)
{
	cleanup_free char *json = NULL;
	char path[1024];
	size_t len;

	(void)snprintf(path, sizeof(path), "%s/overlay-containers/containers.json", folder);
	if (read_below(l->root_fd, path, l->uid, &json, &len) < 0 ||
	    container_names_parse_storage(json, len, l->id, l->names) < 0)
		return false;
	(void)snprintf(path, sizeof(path), "%s/overlay-containers/%s/userdata/config.json", folder,
		       l->id);
	(void)take_oci(l, "", path);
	KEEP(l->names->runtime, l->names->pod[0] ? "cri-o" : "podman");
	return true;
}

/* Each namespace of containerd has a folder. */
static bool take_containerd(const struct lookup *l, const char *folder)
{
	int fd = open_below(l->root_fd, folder, O_RDONLY | O_DIRECTORY);
	DIR *spaces = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	bool found = false;

	if (!spaces && fd >= 0)
		(void)close(fd);
	for (unsigned i = 0; spaces && !found && i < SPACES_MAX && (entry = readdir(spaces)); i++) {
		char path[1024];

		if (entry->d_name[0] == '.')
			continue;
		(void)snprintf(path, sizeof(path), "%s/%s/%s/config.json", folder, entry->d_name,
			       l->id);
		found = take_oci(l, "containerd", path);
	}
	if (spaces)
		(void)closedir(spaces);
	return found;
}

static void take_links(const struct lookup *l)
{
	int fd = open_below(l->root_fd, "/var/log/containers", O_RDONLY | O_DIRECTORY);
	DIR *links = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!links && fd >= 0)
		(void)close(fd);
	for (unsigned i = 0; links && i < LINKS_MAX && (entry = readdir(links)); i++)
		if (container_names_parse_link(entry->d_name, l->id, l->names) == 0)
			break;
	if (links)
		(void)closedir(links);
}

/* The home of @uid by the host's /etc/passwd. */
static bool find_home(const struct lookup *l, char *ret, size_t size)
{
	cleanup_free char *text = NULL;
	char *rest = NULL;
	size_t len;

	if (read_below(l->root_fd, "/etc/passwd", -1, &text, &len) < 0)
		return false;
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		char uid[16], home[384];

		if (sscanf(line, "%*[^:]:%*[^:]:%15[0-9]:%*[^:]:%*[^:]:%383[^:]", uid, home) == 2 ||
		    sscanf(line, "%*[^:]:%*[^:]:%15[0-9]:%*[^:]::%383[^:]", uid, home) == 2)
			if (strtol(uid, NULL, 10) == l->uid)
				return (size_t)snprintf(ret, size, "%s", home) < size;
	}
	return false;
}

static void take_of_user(const struct lookup *l)
{
	char home[384], folder[512];

	if (!find_home(l, home, sizeof(home)))
		return;
	(void)snprintf(folder, sizeof(folder), "%s/.local/share/containers/storage", home);
	if (take_storage(l, folder))
		return;
	(void)snprintf(folder, sizeof(folder), "%s/.local/share/docker", home);
	(void)take_docker(l, folder);
}

static void take_of_system(const struct lookup *l)
{
	static const char *const containerds[] = {
		"/run/containerd/io.containerd.runtime.v2.task",
		"/run/k3s/containerd/io.containerd.runtime.v2.task",
	};
	bool found =
		take_docker(l, "/var/lib/docker") || take_storage(l, "/var/lib/containers/storage");

	for (size_t i = 0; !found && i < ARRAY_SIZE(containerds); i++)
		found = take_containerd(l, containerds[i]);
	/* The kubelet's links name what a runtime that is not known here runs, too. */
	if (!l->names->pod[0] || !l->names->container[0] || !l->names->namespace[0])
		take_links(l);
}

static void look_up(const char *id, long uid, struct container_names *ret)
{
	cleanup_close int root_fd = open(host_root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	const struct lookup l = { root_fd, id, uid, ret };

	if (root_fd < 0)
		return;
	if (uid >= 0)
		take_of_user(&l);
	else
		take_of_system(&l);
}

/* ---- kept ------------------------------------------------------------------------------------ */

static struct {
	pthread_mutex_t lock;
	struct kept {
		char id[65];
		long uid;
		uint64_t until_ns; /* monotonic; 0 = free */
		char lines[CONTAINER_LINES_SIZE];
	} entries[CACHE_ENTRIES];
} cache = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct kept *entry_of(const char *id)
{
	unsigned n = 0;

	(void)sscanf(id, "%8x", &n);
	return &cache.entries[n % CACHE_ENTRIES];
}

static bool find_kept(const char *id, long uid, char *ret, size_t size)
{
	const struct kept *kept = entry_of(id);
	bool found;

	(void)pthread_mutex_lock(&cache.lock);
	found = kept->until_ns > clock_monotonic_ns() && kept->uid == uid &&
		strcmp(kept->id, id) == 0;
	if (found)
		(void)snprintf(ret, size, "%s", kept->lines);
	(void)pthread_mutex_unlock(&cache.lock);
	return found;
}

static void keep_lines(const char *id, long uid, const char *lines)
{
	struct kept *kept = entry_of(id);

	(void)pthread_mutex_lock(&cache.lock);
	(void)snprintf(kept->id, sizeof(kept->id), "%s", id);
	kept->uid = uid;
	kept->until_ns = clock_monotonic_ns() + (*lines ? KNOWN_NS : UNKNOWN_NS);
	(void)snprintf(kept->lines, sizeof(kept->lines), "%s", lines);
	(void)pthread_mutex_unlock(&cache.lock);
}

void container_names_read(const char *cgroup, char *ret, size_t size)
{
	cleanup_free struct container_names *names = NULL;
	char lines[CONTAINER_LINES_SIZE], id[65];
	long uid;

	*ret = '\0';
	if (!container_names_id(cgroup, id, &uid) || find_kept(id, uid, ret, size))
		return;
	names = calloc(1, sizeof(*names));
	if (!names)
		return;
	look_up(id, uid, names);
	(void)container_names_lines(names, lines, sizeof(lines));
	keep_lines(id, uid, lines);
	(void)snprintf(ret, size, "%s", lines);
}
