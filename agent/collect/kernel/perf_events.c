// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/kernel/perf_events.h"

#include <bpf/libbpf.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "agent/base/clock.h"
#include "agent/base/io.h"

#define CPUS_MAX 8192u /* CONFIG_NR_CPUS of the largest kernels */

static int cpu_number(const char **text, unsigned *ret)
{
	unsigned value = 0;

	if (!isdigit((unsigned char)**text))
		return -EINVAL;
	for (; isdigit((unsigned char)**text); (*text)++) {
		value = value * 10 + (unsigned)(**text - '0');
		if (value > 1u << 20)
			return -EINVAL;
	}
	*ret = value;
	return 0;
}

int cpu_list_parse(const char *text, bool *set, unsigned max)
{
	while (*text && *text != '\n') {
		unsigned first, last;

		if (cpu_number(&text, &first) < 0)
			return -EINVAL;
		last = first;
		if (*text == '-') {
			text++;
			if (cpu_number(&text, &last) < 0 || last < first)
				return -EINVAL;
		}
		for (unsigned cpu = first; cpu <= last && cpu < max; cpu++)
			set[cpu] = true;
		if (*text == ',')
			text++;
		else if (*text && *text != '\n')
			return -EINVAL;
	}
	return 0;
}

void perf_events_init(struct perf_events *events, struct bpf_program *program,
		      enum perf_event_kind kind)
{
	*events = (struct perf_events){ .program = program, .kind = kind };
}

static void close_at(struct perf_events *events, size_t at)
{
	bpf_link__destroy(events->open.data[at].link);
	events->open.data[at] = events->open.data[--events->open.count];
}

void perf_events_deinit(struct perf_events *events)
{
	while (events->open.count)
		close_at(events, events->open.count - 1);
	perf_event_vec_deinit(&events->open);
	events->rate = 0;
}

/* The timer is asked for its period, so that each sample stands for the same time. Cycles are asked
 * for a frequency, which the kernel keeps as the clock changes. Faults are counted. */
static uint64_t period_of(enum perf_event_kind kind, uint32_t rate)
{
	return kind == PERF_EVENT_CLOCK ? NS_PER_S / rate : rate;
}

void perf_events_attr(enum perf_event_kind kind, uint32_t rate, struct perf_event_attr *ret)
{
	static const struct {
		uint32_t type, config;
	} events[] = {
		[PERF_EVENT_CLOCK] = { PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK },
		[PERF_EVENT_CYCLES] = { PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES },
		[PERF_EVENT_MINOR_FAULT] = { PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MIN },
		[PERF_EVENT_MAJOR_FAULT] = { PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MAJ },
		[PERF_EVENT_ANY_FAULT] = { PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS },
	};

	*ret = (struct perf_event_attr){ .size = sizeof(*ret),
					 .type = events[kind].type,
					 .config = events[kind].config,
					 .freq = kind == PERF_EVENT_CYCLES,
					 .sample_period = period_of(kind, rate) };
}

/* 0, -ENODEV: the CPU is offline. */
static int open_on(struct perf_events *events, int cpu)
{
	struct perf_event_attr attr;
	struct bpf_link *link;
	int fd, rc;

	rc = perf_event_vec_reserve(&events->open, events->open.count + 1);
	if (rc < 0)
		return rc;
	perf_events_attr(events->kind, events->rate, &attr);
	fd = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	if (fd < 0)
		return -errno;
	link = bpf_program__attach_perf_event(events->program, fd);
	if (!link) {
		rc = -errno;
		(void)close(fd);
		return rc;
	}
	events->open.data[events->open.count++] =
		(struct perf_event){ .link = link, .fd = fd, .cpu = cpu };
	return 0;
}

static int online_cpus(bool *set)
{
	cleanup_free char *text = NULL;
	size_t len;
	int rc = io_read_file(AT_FDCWD, "/sys/devices/system/cpu/online", 65536, &text, &len);

	return rc < 0 ? rc : cpu_list_parse(text, set, CPUS_MAX);
}

int perf_events_follow(struct perf_events *events, bool anew)
{
	cleanup_free bool *online = calloc(CPUS_MAX, sizeof(*online));
	int changes = 0, rc;

	if (!online)
		return -ENOMEM;
	if (!events->rate)
		return 0;
	rc = online_cpus(online);
	if (rc < 0)
		return rc;
	for (size_t i = events->open.count; i-- > 0;) {
		int cpu = events->open.data[i].cpu;

		if (!online[cpu] || anew) {
			close_at(events, i);
			changes++;
			continue;
		}
		online[cpu] = false;
	}
	for (int cpu = 0; cpu < (int)CPUS_MAX; cpu++) {
		if (!online[cpu])
			continue;
		rc = open_on(events, cpu);
		if (rc == -ENODEV)
			continue; /* went away meanwhile */
		if (rc < 0)
			return rc;
		changes++;
	}
	return changes;
}

static int change_rate(struct perf_events *events, uint32_t rate)
{
	uint64_t value = period_of(events->kind, rate);

	for (size_t i = 0; i < events->open.count; i++)
		if (ioctl(events->open.data[i].fd, PERF_EVENT_IOC_PERIOD, &value) < 0)
			return -errno;
	events->rate = rate;
	return 0;
}

int perf_events_set_rate(struct perf_events *events, uint32_t rate, struct err *err)
{
	int rc;

	if (!rate) {
		perf_events_deinit(events);
		return 0;
	}
	if (events->rate) {
		rc = rate == events->rate ? 0 : change_rate(events, rate);
		if (rc < 0)
			return err_set(err, -rc, NULL, NULL,
				       "the sampling rate could not be set to %u: %s "
				       "(kernel.perf_event_max_sample_rate is the highest)",
				       rate, strerror(-rc));
		return 0;
	}
	events->rate = rate;
	rc = perf_events_follow(events, false);
	if (rc > 0)
		return 0;
	perf_events_deinit(events);
	rc = rc ? rc : -ENODEV;
	return err_set(err, -rc, NULL, NULL, "perf events could not be opened: %s%s", strerror(-rc),
		       rc == -EPERM || rc == -EACCES ? " (CAP_PERFMON is needed)" : "");
}
