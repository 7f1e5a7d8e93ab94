/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation sites of the C library that the test runs with. Fails the test on an error. */
#ifndef PROFD_TESTS_SUPPORT_LIBC_SITES_H
#define PROFD_TESTS_SUPPORT_LIBC_SITES_H

#include "symbolize/alloc_sites.h"

/* How many there are; the library's path into @path. */
unsigned libc_sites(char path[512], struct control_alloc_site sites[ALLOC_SITES_MAX],
		    enum alloc_family *ret_family);

#endif
