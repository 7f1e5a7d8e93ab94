// SPDX-License-Identifier: Apache-2.0
#include "agent/base/privileges.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

int privileges_leave_root(void)
{
	if (geteuid() != 0)
		return 0;
	if (prctl(PR_SET_KEEPCAPS, 1) < 0 || setgroups(0, NULL) < 0 ||
	    setresgid(PRIVILEGES_NOBODY, PRIVILEGES_NOBODY, PRIVILEGES_NOBODY) < 0 ||
	    setresuid(PRIVILEGES_NOBODY, PRIVILEGES_NOBODY, PRIVILEGES_NOBODY) < 0)
		return -errno;
	return 0;
}

static int drop_bounding_set(uint64_t mask)
{
	for (unsigned cap = 0; cap <= CAP_LAST_CAP; cap++) {
		/* -EINVAL: a capability that this kernel does not have. -EPERM: without CAP_SETPCAP the
		 * bounding set stays, which no_new_privs makes worthless. */
		if (!(mask >> cap & 1) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 &&
		    errno != EINVAL && errno != EPERM)
			return -errno;
	}
	return 0;
}

bool privileges_has(unsigned number)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

	if (number >= 32 * _LINUX_CAPABILITY_U32S_3 || syscall(SYS_capget, &header, data) < 0)
		return false;
	return data[number / 32].effective >> number % 32 & 1;
}

int privileges_keep(uint64_t mask)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	int rc;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	rc = drop_bounding_set(mask);
	if (rc < 0)
		return rc;
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capget, &header, data) < 0)
		return -errno;
	for (unsigned i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
		data[i].permitted &= (uint32_t)(mask >> (32 * i));
		data[i].effective = data[i].permitted;
		data[i].inheritable = 0;
	}
	return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}
