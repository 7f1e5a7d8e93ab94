/* SPDX-License-Identifier: Apache-2.0 */
/* Minutes of a day file become an hour. The sums are written in columns, so that values repeated
 * from minute to minute are written once. The parts of the dictionary become one. Nothing is left
 * out and nothing rounded. */
#ifndef PROFD_RECORDING_ROLL_UP_H
#define PROFD_RECORDING_ROLL_UP_H

#include "agent/store/store.h"

/* Rolls up the stored minutes of the hour that begins at @hour_ns (realtime). Later minutes are
 * added to an hour that was rolled up before. Nobody else may write to @day meanwhile. -ENOMEM, the
 * store's errors; -EUCLEAN: something of the hour is damaged, it stays as it is. */
int roll_up_hour(struct store *store, const struct store_day *day, uint64_t hour_ns,
		 struct err *err) must_use;
/* Sets @ret_ns to the begin of @day's first hour from @from_ns (realtime) on that has minutes which
 * are not rolled up; UINT64_MAX: none has. One question to the store. The store's errors. */
int roll_up_next(struct store *store, const struct store_day *day, uint64_t from_ns,
		 uint64_t *ret_ns, struct err *err) must_use;

#endif
