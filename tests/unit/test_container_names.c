// SPDX-License-Identifier: Apache-2.0
/* State directories of each runtime as their documentation describes them, below a root of the
 * test. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/cleanup.h"
#include "agent/collect/proc/container_names.h"

static char root[64];

/* A container id of its own for each test, because answers are kept. */
static const char *id_of(char c)
{
	static char id[65];

	memset(id, c, 64);
	return id;
}

static void write_file(const char *path, const char *text)
{
	char whole[1024];
	FILE *file;

	(void)snprintf(whole, sizeof(whole), "%s%s", root, path);
	for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')); at++) {
		*at = '\0';
		(void)mkdir(whole, 0755);
		*at = '/';
	}
	file = fopen(whole, "w");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static int make_root(void **state)
{
	strcpy(root, "/tmp/profd-containers-XXXXXX");
	assert_non_null(mkdtemp(root));
	container_names_set_root(root);
	return 0;
}

static int remove_root(void **state)
{
	char command[128];

	(void)snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command);
}

static void check(const char *cgroup, const char *expect)
{
	char lines[CONTAINER_LINES_SIZE];

	container_names_read(cgroup, lines, sizeof(lines));
	assert_string_equal(lines, expect);
}

static const char *scope(const char *prefix, const char *id)
{
	static char cgroup[256];

	(void)snprintf(cgroup, sizeof(cgroup), "%s%s.scope", prefix, id);
	return cgroup;
}

static void test_docker_and_compose(void **state)
{
	char path[256];

	(void)snprintf(path, sizeof(path), "/var/lib/docker/containers/%s/config.v2.json",
		       id_of('a'));
	write_file(
		path,
		"{\"StreamConfig\":{},\"ID\":\"a\",\"Name\":\"/shop-web-1\",\"Config\":{\"Image\":\"nginx:1.25\","
		"\"Labels\":{\"com.docker.compose.project\":\"shop\",\"com.docker.compose.service\":\"web\"}}}");
	check(scope("/system.slice/docker-", id_of('a')),
	      "container.runtime=docker\ncontainer.name=shop-web-1\ncontainer.image.name=nginx:1.25\n"
	      "compose.project=shop\ncompose.service=web\n");
	/* the container is gone: who asks within minutes still hears of it */
	assert_int_equal(remove_root(NULL), 0);
	(void)mkdir(root, 0755);
	check(scope("/system.slice/docker-", id_of('a')),
	      "container.runtime=docker\ncontainer.name=shop-web-1\ncontainer.image.name=nginx:1.25\n"
	      "compose.project=shop\ncompose.service=web\n");
}

static void test_containerd_of_kubernetes(void **state)
{
	char path[256];

	(void)snprintf(path, sizeof(path),
		       "/run/containerd/io.containerd.runtime.v2.task/k8s.io/%s/config.json",
		       id_of('b'));
	write_file(
		path,
		"{\"ociVersion\":\"1.0.2\",\"annotations\":{"
		"\"io.kubernetes.cri.container-name\":\"app\",\"io.kubernetes.cri.container-type\":\"container\","
		"\"io.kubernetes.cri.image-name\":\"registry.example/shop:1\","
		"\"io.kubernetes.cri.sandbox-name\":\"web-7d9c6b8f5d-x2x4z\","
		"\"io.kubernetes.cri.sandbox-namespace\":\"shop\"}}");
	check(scope("/kubepods.slice/kubepods-burstable.slice/"
		    "kubepods-burstable-pod11111111_2222_3333_4444_555555555555.slice/cri-containerd-",
		    id_of('b')),
	      "container.runtime=containerd\ncontainer.name=app\n"
	      "container.image.name=registry.example/shop:1\n"
	      "k8s.namespace.name=shop\nk8s.pod.name=web-7d9c6b8f5d-x2x4z\nk8s.container.name=app\n"
	      "k8s.workload.name=web\n");
}

static void write_storage(const char *folder, const char *id, const char *metadata,
			  const char *notes)
{
	char path[512], text[1024];

	(void)snprintf(path, sizeof(path), "%s/overlay-containers/containers.json", folder);
	(void)snprintf(text, sizeof(text),
		       "[{\"id\":\"0\"},{\"id\":\"%s\",\"names\":[\"db\"],\"metadata\":\"%s\"}]",
		       id, metadata);
	write_file(path, text);
	(void)snprintf(path, sizeof(path), "%s/overlay-containers/%s/userdata/config.json", folder,
		       id);
	(void)snprintf(text, sizeof(text), "{\"annotations\":{%s}}", notes);
	write_file(path, text);
}

static void test_podman_and_crio(void **state)
{
	write_storage(
		"/var/lib/containers/storage", id_of('c'),
		"{\\\"image-name\\\":\\\"docker.io/library/postgres:15\\\",\\\"name\\\":\\\"db\\\"}",
		"\"io.container.manager\":\"libpod\"");
	check(scope("/machine.slice/libpod-", id_of('c')),
	      "container.runtime=podman\ncontainer.name=db\n"
	      "container.image.name=docker.io/library/postgres:15\n");
	write_storage(
		"/var/lib/containers/storage", id_of('d'), "{\\\"pod-name\\\":\\\"db-0\\\"}",
		"\"io.kubernetes.container.name\":\"postgres\",\"io.kubernetes.pod.name\":\"db-0\","
		"\"io.kubernetes.pod.namespace\":\"shop\",\"io.kubernetes.cri-o.ImageName\":\"pg:15\"");
	check(scope("/kubepods.slice/crio-", id_of('d')),
	      "container.runtime=cri-o\ncontainer.name=db\ncontainer.image.name=pg:15\n"
	      "k8s.namespace.name=shop\n"
	      "k8s.pod.name=db-0\nk8s.container.name=postgres\nk8s.workload.name=db\n");
}

static void test_rootless_podman(void **state)
{
	char passwd[128], cgroup[128];

	(void)snprintf(passwd, sizeof(passwd),
		       "root:x:0:0:root:/root:/bin/sh\nme:x:%u:100:,,,:/home/me:/bin/sh\n",
		       getuid() + 0u);
	write_file("/etc/passwd", strchr(passwd, '\n') + 1);
	write_storage("/home/me/.local/share/containers/storage", id_of('e'),
		      "{\\\"image-name\\\":\\\"mine:latest\\\",\\\"name\\\":\\\"db\\\"}", "");
	(void)snprintf(cgroup, sizeof(cgroup),
		       "/user.slice/user-%u.slice/user@%u.service/user.slice/libpod-", getuid(),
		       getuid());
	check(scope(cgroup, id_of('e')),
	      "container.runtime=podman\ncontainer.name=db\ncontainer.image.name=mine:latest\n");
	/* a file of another user's is not that user's word */
	(void)snprintf(passwd, sizeof(passwd), "me:x:%u:100::/home/me:/bin/sh\n", getuid() + 1);
	write_file("/etc/passwd", passwd);
	(void)snprintf(cgroup, sizeof(cgroup), "/user.slice/user-%u.slice/libpod-", getuid() + 1);
	check(scope(cgroup, id_of('e')), "");
}

static void test_links_of_the_kubelet(void **state)
{
	char path[512];

	(void)snprintf(path, sizeof(path),
		       "/var/log/containers/agent-x4z9k_kube-system_main-%s.log", id_of('f'));
	write_file(path, "");
	check(scope("/kubepods/pod11111111-2222-3333-4444-555555555555/", id_of('f')),
	      "k8s.namespace.name=kube-system\nk8s.pod.name=agent-x4z9k\nk8s.container.name=main\n"
	      "k8s.workload.name=agent\n");
}

static void test_hostile_files(void **state)
{
	char path[256], whole[512], *huge;

	/* a FIFO is never opened, a link does not leave the root, nonsense names nothing */
	(void)snprintf(path, sizeof(path), "/var/lib/docker/containers/%s/config.v2.json",
		       id_of('1'));
	write_file(path, "");
	(void)snprintf(whole, sizeof(whole), "%s%s", root, path);
	(void)unlink(whole);
	assert_int_equal(mkfifo(whole, 0644), 0);
	check(scope("/docker-", id_of('1')), "");
	(void)snprintf(path, sizeof(path), "/var/lib/docker/containers/%s/config.v2.json",
		       id_of('2'));
	write_file(path, "");
	(void)snprintf(whole, sizeof(whole), "%s%s", root, path);
	(void)unlink(whole);
	assert_int_equal(symlink("/etc/passwd", whole), 0);
	check(scope("/docker-", id_of('2')), "");
	(void)snprintf(path, sizeof(path), "/var/lib/docker/containers/%s/config.v2.json",
		       id_of('3'));
	huge = calloc(1, (2u << 20) + 1);
	assert_non_null(huge);
	memset(huge, '[', 2u << 20);
	write_file(path, huge);
	check(scope("/docker-", id_of('3')), "");
	huge[500000] = '\0';
	(void)snprintf(path, sizeof(path), "/var/lib/docker/containers/%s/config.v2.json",
		       id_of('4'));
	write_file(path, huge);
	check(scope("/docker-", id_of('4')), "");
	free(huge);
	/* a line of its own would be a fact of somebody else */
	(void)snprintf(path, sizeof(path), "/var/lib/docker/containers/%s/config.v2.json",
		       id_of('5'));
	write_file(
		path,
		"{\"Name\":\"/a\\nk8s.pod.name=x\",\"Config\":{\"Image\":\"i\",\"Labels\":[1,2]}}");
	check(scope("/docker-", id_of('5')), "container.runtime=docker\ncontainer.image.name=i\n");
	(void)snprintf(path, sizeof(path), "/var/lib/docker/containers/%s/config.v2.json",
		       id_of('6'));
	write_file(path, "{\"Name\":7,\"Config\":\"x\"}");
	check(scope("/docker-", id_of('6')), "container.runtime=docker\n");
}

static void test_ids(void **state)
{
	char id[65], cgroup[256];
	long uid;

	assert_false(container_names_id("/system.slice/nginx.service", id, &uid));
	(void)snprintf(cgroup, sizeof(cgroup), "/machine.slice/libpod-conmon-%s.scope", id_of('a'));
	assert_false(container_names_id(cgroup, id, &uid));
	(void)snprintf(cgroup, sizeof(cgroup), "/docker/%sa", id_of('a'));
	assert_false(container_names_id(cgroup, id, &uid));
	(void)snprintf(cgroup, sizeof(cgroup), "/docker/%s/init", id_of('a'));
	assert_true(container_names_id(cgroup, id, &uid));
	assert_string_equal(id, id_of('a'));
	assert_int_equal(uid, -1);
}

static void test_workloads(void **state)
{
	static const char *const pods[][2] = {
		{ "web-7d9c6b8f5d-x2x4z", "web" },
		{ "node-exporter-x2x4z", "node-exporter" },
		{ "db-0", "db" },
		{ "backup-28812345-x2x4z", "backup" },
		{ "kube-apiserver-master", "kube-apiserver-master" },
		{ "alone", "alone" },
		{ "", "" },
		{ "-0", "-0" },
	};
	char workload[64];

	for (size_t i = 0; i < ARRAY_SIZE(pods); i++) {
		container_names_workload(pods[i][0], workload, sizeof(workload));
		assert_string_equal(workload, pods[i][1]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_docker_and_compose, make_root, remove_root),
		cmocka_unit_test_setup_teardown(test_containerd_of_kubernetes, make_root,
						remove_root),
		cmocka_unit_test_setup_teardown(test_podman_and_crio, make_root, remove_root),
		cmocka_unit_test_setup_teardown(test_rootless_podman, make_root, remove_root),
		cmocka_unit_test_setup_teardown(test_links_of_the_kubelet, make_root, remove_root),
		cmocka_unit_test_setup_teardown(test_hostile_files, make_root, remove_root),
		cmocka_unit_test(test_ids),
		cmocka_unit_test(test_workloads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
