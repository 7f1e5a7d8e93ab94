// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/canonical.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/cleanup.h"
#include "agent/base/hash.h"
#include "agent/base/text.h"

static bool ends_with(const char *name, size_t len, const char *suffix)
{
	size_t n = strlen(suffix);

	return len > n && !memcmp(name + len - n, suffix, n);
}

/* Length without one trailing ".word.digits" or ".word", the same length if there is none. */
static size_t without_suffix(const char *name, size_t len)
{
	static const char *const words[] = { ".constprop", ".isra", ".part", ".cold",
					     ".lto_priv",  ".llvm", ".warm", ".localalias" };
	size_t bare = len, i;

	while (bare > 0 && isdigit((unsigned char)name[bare - 1]))
		bare--;
	if (bare == len || (bare > 0 && name[bare - 1] == '.'))
		bare -= bare != len;
	else
		bare = len;
	for (i = 0; i < ARRAY_SIZE(words); i++)
		if (ends_with(name, bare, words[i]))
			return bare - strlen(words[i]);
	return len;
}

static size_t without_rust_hash(const char *name, size_t len)
{
	size_t i;

	if (len <= 19 || memcmp(name + len - 19, "::h", 3))
		return len;
	for (i = len - 16; i < len; i++)
		if (!isxdigit((unsigned char)name[i]) || isupper((unsigned char)name[i]))
			return len;
	return len - 19;
}

static size_t without_clone(const char *name, size_t len)
{
	static const char clone[] = " [clone ";
	size_t at = len;

	if (!len || name[len - 1] != ']')
		return len;
	while (at > 0 && name[at - 1] != '[')
		at--;
	if (at < sizeof(clone) || strncmp(name + at - 2, clone, sizeof(clone) - 1))
		return len; /* operator[], for one */
	return at - 2;
}

size_t canonical_function_len(const char *name)
{
	size_t len = strlen(name), shorter;

	for (;;) {
		shorter = without_suffix(name, len);
		shorter = without_rust_hash(name, shorter);
		shorter = without_clone(name, shorter);
		if (shorter == len || !shorter)
			return len;
		len = shorter;
	}
}

bool canonical_function_is(const char *name, const char *asked)
{
	size_t len = strlen(asked);

	return strncmp(name, asked, len) == 0 &&
	       (name[len] == '\0' || canonical_function_len(name) == len);
}

/* "app-1.4.2", "app_v2.0-rc1": a dash or underscore and a number with a dot begin the version. */
static size_t without_version(const char *package)
{
	const char *at = package;

	while ((at = strpbrk(at, "-_"))) {
		const char *number = at + 1 + (at[1] == 'v'), *end = number + strspn(number, "0123456789");

		if (at > package && end > number && end[0] == '.' && isdigit((unsigned char)end[1]))
			return (size_t)(at - package);
		at++;
	}
	return strlen(package);
}

size_t canonical_package(const char *package, char *out, size_t size)
{
	const char *so = strstr(package, ".so"), *dash = package;
	size_t len;
	int n;

	if (!so || (so[3] && so[3] != '.')) {
		n = snprintf(out, size, "%.*s", (int)without_version(package), package);
		return n < 0 ? 0 : (size_t)n < size ? (size_t)n : size - 1;
	}
	len = (size_t)(so - package);
	/* "libc-2.31": a dash followed by a digit begins the version. */
	while ((dash = memchr(dash, '-', (size_t)(so - dash)))) {
		if (isdigit((unsigned char)dash[1])) {
			len = (size_t)(dash - package);
			break;
		}
		dash++;
	}
	n = snprintf(out, size, "%.*s.so", (int)len, package);
	return n < 0 ? 0 : (size_t)n < size ? (size_t)n : size - 1;
}

uint64_t canonical_hash(const struct canonical_function *function)
{
	char package[CANONICAL_PACKAGE_SIZE];
	size_t len = canonical_package(function->package, package, sizeof(package));
	const char *file = text_file_name(function->file);
	uint64_t hash = hash_bytes(function->name, canonical_function_len(function->name), 1);

	return hash_bytes(file, strlen(file), hash_bytes(package, len, hash));
}

bool canonical_equal(const struct canonical_function *a, const struct canonical_function *b)
{
	char packages[2][CANONICAL_PACKAGE_SIZE];
	size_t len = canonical_function_len(a->name);

	if (len != canonical_function_len(b->name) || memcmp(a->name, b->name, len) ||
	    strcmp(text_file_name(a->file), text_file_name(b->file)))
		return false;
	(void)canonical_package(a->package, packages[0], sizeof(packages[0]));
	(void)canonical_package(b->package, packages[1], sizeof(packages[1]));
	return !strcmp(packages[0], packages[1]);
}

/* A trailing '*' matches any rest. The lists are sorted by nothing but meaning. */
static bool in_list(const char *name, const char *const *list, size_t count)
{
	size_t i, n;

	for (i = 0; i < count; i++) {
		n = strlen(list[i]);
		if (list[i][n - 1] == '*' ? !strncmp(name, list[i], n - 1) : !strcmp(name, list[i]))
			return true;
	}
	return false;
}

static const char *const environment[] = {
	/* interrupts and the way back to user space */
	"asm_sysvec_*",
	"asm_common_interrupt",
	"sysvec_*",
	"common_interrupt",
	"__common_interrupt",
	"irqentry_*",
	"irq_exit*",
	"exit_to_user_mode*",
	"syscall_exit_to_user_mode*",
	"swapgs_*",
	"__do_softirq",
	"handle_softirqs",
	"__softirqentry_text_start",
	"el0_*",
	"el1_*",
	"hrtimer_interrupt",
	"__hrtimer_run_queues",
	"tick_*",
	"update_process_times",
	"scheduler_tick",
	"sched_tick",
	"native_irq_return_iret",
	"ret_from_fork*",
	"restore_regs_and_return_to_kernel",
	"smp_call_function*",
	"flush_smp_call_*",
	/* scheduler switch and idle */
	"__schedule",
	"schedule",
	"schedule_*",
	"preempt_schedule*",
	"finish_task_switch*",
	"__switch_to*",
	"do_idle",
	"cpu_startup_entry",
	"default_idle*",
	"intel_idle*",
	"acpi_idle*",
	"acpi_safe_halt",
	"native_safe_halt",
	"mwait_idle*",
	"cpuidle_*",
	"poll_idle",
	"cpu_idle_*",
	"pick_next_task*",
	"newidle_balance",
	"load_balance",
	"rebalance_domains",
	"arch_cpu_idle",
	"pv_native_safe_halt",
	/* leaving the guest */
	"iowrite16",
	"iowrite32",
	"vp_notify*",
	"kvm_guest_*",
	"kvm_clock_*",
	"kvm_steal_*",
	"hv_*",
	"xen_hypercall_*",
	"hypercall_*",
	"native_write_msr",
	"native_apic_*",
	"x2apic_*",
	"pvclock_*",
	/* the profiler */
	"bpf_*",
	"__bpf_*",
	"perf_*",
	"__perf_*",
	"stack_map_*",
	"get_perf_callchain",
};

bool canonical_is_environment(const char *kernel_function)
{
	return in_list(kernel_function, environment, ARRAY_SIZE(environment));
}

static const char *const scheduler[] = {
	"__schedule",	"schedule",	  "schedule_*",		 "preempt_schedule*",
	"io_schedule*", "__cond_resched", "finish_task_switch*", "context_switch",
	"__switch_to*", "do_nanosleep",	  "hrtimer_nanosleep",	 "futex_wait_queue*",
};

bool canonical_is_scheduler(const char *kernel_function)
{
	return in_list(kernel_function, scheduler, ARRAY_SIZE(scheduler));
}

bool canonical_is_interpreter(const char *path)
{
	static const char *const files[] = { "libpython2*", "libpython3*", "python",  "python2*",
					     "python3*",    "libjvm.so*",  "node",    "node (*",
					     "nodejs*",	    "libnode.so*" };

	return in_list(text_file_name(path), files, ARRAY_SIZE(files));
}

static const char *const idle_waits[] = {
	"accept",
	"accept4",
	"__accept*",
	"__libc_accept*",
	"inet_csk_accept",
	"epoll_wait",
	"epoll_pwait*",
	"__epoll_wait*",
	"ep_poll",
	"do_epoll_*",
	"poll",
	"__poll*",
	"ppoll",
	"__ppoll*",
	"select",
	"__select*",
	"pselect*",
	"__pselect*",
	"nanosleep",
	"__nanosleep*",
	"clock_nanosleep*",
	"__clock_nanosleep*",
	"usleep",
	"sleep",
	"sigwait*",
	"__sigwait*",
	"sigtimedwait*",
	"__sigtimedwait*",
	"pause",
	"__pause*",
	"wait4",
	"waitpid",
	"__wait4*",
	"__waitpid*",
	"io_getevents*",
	/* kernel threads between two pieces of work */
	"worker_thread",
	"kthread*",
	"smpboot_thread_fn",
	"rcu_gp_*",
	"kswapd",
	"kcompactd",
	"ksoftirqd*",
	"run_ksoftirqd",
	"io_wq_worker",
	"kauditd_thread",
	"oom_reaper",
	"jbd2_*",
	"kjournald*",
	"watchdog*",
	"migration_*",
	/* Go, Java, tokio: parked workers */
	"runtime.futexsleep",
	"runtime.futex*",
	"runtime.notesleep*",
	"runtime.notetsleep*",
	"runtime.stopm",
	"runtime.findRunnable",
	"runtime.findrunnable",
	"runtime.usleep*",
	"runtime.epollwait*",
	"runtime.netpoll*",
	"runtime.park_m",
	"runtime.mPark",
	"internal/runtime/syscall.EpollWait",
	"runtime/internal/syscall.EpollWait",
	"jdk.internal.misc.Unsafe.park*",
	"java.lang.Thread.sleep*",
	"Unsafe_Park",
	"tokio::runtime::park*",
	"uv__io_poll",
};

bool canonical_is_idle_wait(const char *function)
{
	return in_list(function, idle_waits, ARRAY_SIZE(idle_waits));
}
