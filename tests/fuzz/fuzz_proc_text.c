// SPDX-License-Identifier: Apache-2.0
/* The first byte chooses a text of /proc; the rest is that text. Properties: what is taken apart is
 * inside its bounds, and what is refused changes nothing. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/collect/proc/mounts.h"
#include "agent/collect/proc/proc_facts.h"
#include "agent/collect/proc/proc_maps.h"
#include "agent/collect/proc/proc_ports.h"
#include "agent/collect/proc/program_name.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void maps_line(const char *text, size_t len)
{
	struct proc_map map = { .start_va = 1, .end_va = 2 };

	if (proc_maps_parse_line(text, len, &map) < 0)
		check(map.start_va == 1 && map.end_va == 2);
	check(map.end_va > map.start_va && strlen(map.path) < sizeof(map.path));
}

static void stat_file(const char *text)
{
	struct proc_facts facts = { .uid = 7 };

	(void)!proc_facts_parse_stat(text, &facts);
	check(facts.uid == 7 && facts.comm[sizeof(facts.comm) - 1] == '\0');
}

static void cgroup_file(const char *text)
{
	char path[64];

	memset(path, 'x', sizeof(path));
	proc_facts_parse_cgroup(text, path, sizeof(path));
	check(memchr(path, '\0', sizeof(path)) != NULL && !strchr(path, '\n'));
}

static void environment(const char *text, size_t len)
{
	char lines[256];

	memset(lines, 'x', sizeof(lines));
	(void)proc_facts_parse_environ(text, len, lines, sizeof(lines));
	check(proc_facts_own_environment(lines) == strlen(lines));
	check(memchr(lines, '\0', sizeof(lines)) != NULL);
	for (const char *at = lines; *at; at = strchr(at, '\n') + 1) {
		check(strncmp(at, "OTEL_", 5) == 0 || strncmp(at, "DD_SERVICE=", 11) == 0);
		check(strchr(at, '\n') != NULL);
	}
}

static void mountinfo_line(const char *line)
{
	struct mount mount = { .id = 7 };

	if (!mounts_parse(line, &mount))
		check(mount.id == 7);
	check(memchr(mount.type, '\0', sizeof(mount.type)) != NULL);
}

/* Three lines, executable, thread and folder, then the command line as /proc has it. */
static void command_line(char *text, size_t len)
{
	struct program program = { .exe = "", .comm = "", .cwd = "" };
	const char **words[] = { &program.exe, &program.comm, &program.cwd };
	char name[PROGRAM_NAME_SIZE], *end = text + len;
	cleanup_free char *args = NULL;

	for (size_t i = 0; i < 3; i++) {
		char *line = memchr(text, '\n', (size_t)(end - text));

		if (!line)
			return;
		*line = '\0';
		*words[i] = text;
		text = line + 1;
	}
	/* The last argument may lack its NUL: nothing behind it is read. */
	program.args_len = (size_t)(end - text);
	args = malloc(program.args_len + !program.args_len);
	if (!args)
		return;
	memcpy(args, text, program.args_len);
	program.args = args;
	memset(name, 'x', sizeof(name));
	program_name(&program, name);
	check(memchr(name, '\0', sizeof(name)) != NULL);
	for (const char *at = name; *at; at++)
		check(*at >= ' ' && *at <= '~');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_free char *text = NULL;
	uint64_t inode = 0;
	uint16_t port = 0;

	if (size < 1 || size > 1u << 16)
		return 0;
	text = malloc(size);
	if (!text)
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	switch (data[0] % 7) {
	case 0: {
		/* Without the NUL: the parser must not need one. */
		cleanup_free char *line = malloc(size);

		if (line && size > 1) {
			memcpy(line, text, size - 1);
			maps_line(line, size - 1);
		}
		break;
	}
	case 1:
		stat_file(text);
		break;
	case 2:
		cgroup_file(text);
		break;
	case 3:
		environment(text, size - 1);
		break;
	case 4:
		if (proc_ports_parse_line(text, &inode, &port) != 1)
			check(inode == 0 && port == 0);
		break;
	case 5:
		mountinfo_line(text);
		break;
	case 6:
		command_line(text, size - 1);
		break;
	}
	return 0;
}
