/* SPDX-License-Identifier: Apache-2.0 */
/* Names of containers, from the files that their runtimes keep on the host. No socket, no API, no
 * network. Files are hostile: users write those of their rootless containers, and whoever starts a
 * container chooses its labels. A file is looked at (O_PATH) before it is opened. It must be a
 * regular file of a local file system, below a bound, and below the host's root. */
#ifndef PROFD_COLLECT_CONTAINER_NAMES_H
#define PROFD_COLLECT_CONTAINER_NAMES_H

#include <stddef.h>

#define CONTAINER_NAME_SIZE  128u
#define CONTAINER_IMAGE_SIZE 256u
#define CONTAINER_POD_SIZE   254u /* a name of Kubernetes has at most 253 bytes */
#define CONTAINER_LINES_SIZE 1536u

struct container_names {  /* printable UTF-8; "" = not known */
	char runtime[16]; /* docker, containerd, cri-o, podman */
	char name[CONTAINER_NAME_SIZE];
	char image[CONTAINER_IMAGE_SIZE];
	char pod[CONTAINER_POD_SIZE];
	char namespace[64];
	char container[CONTAINER_NAME_SIZE];				 /* the name in its pod */
	char project[CONTAINER_NAME_SIZE], service[CONTAINER_NAME_SIZE]; /* of Compose */
};

/* Sets the folder where the host's root is (default "/"), before there are threads that read. The
 * text is borrowed for ever. */
void container_names_set_root(const char *root);

/* Reads the names of the container of control group @cgroup as lines that follow each other
 * (struct feed_proc says which), into @ret of @size bytes. "" where @cgroup is no container's, or
 * nobody on this host knows it. The answer is kept for 5 minutes, "unknown" for a second. Any
 * thread. May block while a disk is read. */
void container_names_read(const char *cgroup, char *ret, size_t size);

/* ---- pure parts ------------------------------------------------------------------------------ */

/* The id (64 hexadecimal digits) of the container of @cgroup, and the user who owns the group (-1:
 * the system). False: no container's. */
int container_names_id(const char *cgroup, char ret[65], long *ret_uid);
/* Docker's config.v2.json. -EPROTO. */
int container_names_parse_docker(const char *json, size_t len, struct container_names *ret);
/* An OCI configuration (config.json) of containerd, CRI-O or Podman: its annotations. -EPROTO. */
int container_names_parse_oci(const char *json, size_t len, struct container_names *ret);
/* containers.json of containers/storage (CRI-O, Podman): the entry of @id. -EPROTO, -ENOENT. */
int container_names_parse_storage(const char *json, size_t len, const char *id,
				  struct container_names *ret);
/* A link of the kubelet: POD_NAMESPACE_CONTAINER-ID.log. -ENOENT: not of @id. */
int container_names_parse_link(const char *name, const char *id, struct container_names *ret);
/* The workload that the pod belongs to, by the names that Kubernetes makes: web-7d9c6b8f5d-x2x4z
 * is web's. */
void container_names_workload(const char *pod, char *ret, size_t size);
/* The lines. Bytes written, without the zero. */
size_t container_names_lines(const struct container_names *names, char *ret, size_t size);

#endif
