/* SPDX-License-Identifier: Apache-2.0 */
/* Until the threads of a program wait: what says so counts them, instead of hoping that they do by
 * now. */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Threads of this process that run or want to, but for the first one. */
static inline int threads_awake(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	int awake = 0;

	while (dir && (entry = readdir(dir))) {
		char path[300], text[256] = "";
		const char *state;
		FILE *file;

		if (!isdigit((unsigned char)entry->d_name[0]) || atoi(entry->d_name) == getpid())
			continue;
		(void)snprintf(path, sizeof(path), "/proc/self/task/%s/stat", entry->d_name);
		file = fopen(path, "r");
		if (!file)
			continue;
		state = fgets(text, sizeof(text), file) ? strrchr(text, ')') : NULL;
		awake += !state || state[2] != 'S';
		(void)fclose(file);
	}
	if (dir)
		(void)closedir(dir);
	return awake;
}

/* @begun: threads that are about to wait, of @due; @awake of them never do. */
static inline void await_asleep(const unsigned *begun, unsigned due, int awake)
{
	for (int i = 0; i < 60000 &&
			(__atomic_load_n(begun, __ATOMIC_ACQUIRE) < due || threads_awake() > awake);
	     i++)
		(void)usleep(1000);
}
