// SPDX-License-Identifier: Apache-2.0
#include "agent/store/sqlite_checksum.h"

#include <stdint.h>

#include "agent/store/crc32c.h"
#include "agent/store/sqlite_db.h"

static void checksum(sqlite3_context *context, int count, sqlite3_value **values)
{
	uint32_t crc = 0;

	for (int i = 0; i < count; i++) {
		uint8_t type = (uint8_t)sqlite3_value_type(values[i]);
		int64_t number = type == SQLITE_INTEGER ? sqlite3_value_int64(values[i]) : 0;

		crc = crc32c(crc, &type, 1);
		if (type == SQLITE_INTEGER)
			crc = crc32c(crc, &number, sizeof(number));
		else if (type == SQLITE_TEXT || type == SQLITE_BLOB)
			crc = crc32c(crc, sqlite3_value_blob(values[i]),
				     (size_t)sqlite3_value_bytes(values[i]));
	}
	sqlite3_result_int64(context, crc);
}

int sqlite_checksum_add(sqlite3 *db, struct err *err)
{
	int rc = sqlite3_create_function(db, "checksum", -1, SQLITE_UTF8 | SQLITE_DETERMINISTIC,
					 NULL, checksum, NULL, NULL);

	return sqlite_db_error(db, rc, "checksum", err);
}
