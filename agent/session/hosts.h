/* SPDX-License-Identifier: Apache-2.0 */
/* Whose is what, where several hosts keep their data in one store (README.md, "Shared stores"). Of an embedded store
 * everything is its own, whichever host wrote it. Any thread, no lock. */
#ifndef PROFD_SESSION_HOSTS_H
#define PROFD_SESSION_HOSTS_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/store/store.h"

struct sessions;
struct session_info;

/* The name of this host, in answers and in the store. */
void hosts_name(char ret[STORE_HOST_SIZE]);
/* Is what @host wrote its own? A server that takes nothing has nothing of its own in a shared store. */
bool hosts_is_own(const struct sessions *s, const char *host);
/* Who wrote what says @host, under the name that it has now. */
const char *hosts_writer(const struct sessions *s, const char *host);
/* Who took @day. */
const char *hosts_of_day(const struct sessions *s, const struct store_day *day);
/* Is @day of @host (NULL = of any, "" = its own)? */
bool hosts_has_day(const struct sessions *s, const struct store_day *day, const char *host);
/* An id made of @name that no other host gives to anything: deleting by id takes that of every host. */
void hosts_own_id(const struct sessions *s, const char *name, char *out, size_t size);
/* The same of another host's day: the id that @day's host gives. */
void hosts_day_id(const struct sessions *s, const struct store_day *day, const char *name, char *out, size_t size);
/* What the store says of a session that runs on another host is as old as its begin; it goes on by the clock. */
void hosts_settle_running(const struct sessions *s, struct session_info *info);

#endif
