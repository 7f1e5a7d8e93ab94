/* SPDX-License-Identifier: Apache-2.0 */
/* The host that wrote a record, where several hosts keep their data in one store (README.md). In an
 * embedded store everything belongs to this host. Every function is pure and may run on any thread;
 * returned text is borrowed from the arguments. */
#ifndef PROFD_SESSION_HOSTS_H
#define PROFD_SESSION_HOSTS_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/store/store.h"

struct session_info;

/* The host of this server, as the store knows it. Set once, before there are threads. */
struct own_host {
	char name[STORE_HOST_SIZE];
	bool collects; /* this server takes samples; one without a collector only shows them */
	bool shared;   /* the store holds the data of several hosts */
};

/* Fills in the name of this machine, for answers and for the store. */
void hosts_name(char ret[STORE_HOST_SIZE]);
/* Did this host write the data of @host? In a shared store a server without a collector owns
 * nothing. */
bool hosts_is_own(const struct own_host *own, const char *host);
/* The name of the host that wrote a record which says @host: this host's name where the record
 * names none. */
const char *hosts_writer(const struct own_host *own, const char *host);
/* The name of the host that took @day. */
const char *hosts_of_day(const struct own_host *own, const struct store_day *day);
/* Did @host take @day? @host NULL: any host; "": this host. */
bool hosts_has_day(const struct own_host *own, const struct store_day *day, const char *host);
/* Makes an id of @name that no other host uses, because deleting by id deletes the records of
 * every host. */
void hosts_own_id(const struct own_host *own, const char *name, char *out, size_t size);
/* Makes the id that the host of @day made of @name. */
void hosts_day_id(const struct own_host *own, const struct store_day *day, const char *name,
		  char *out, size_t size);
/* Brings the duration of a session that runs on another host up to now, because its record is as
 * old as its start. Other sessions stay as they are. */
void hosts_settle_running(const struct own_host *own, struct session_info *info);

#endif
