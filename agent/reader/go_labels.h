/* SPDX-License-Identifier: Apache-2.0 */
/* Labels of a goroutine (runtime/pprof.Do): g.labels points to a sorted slice of {key, value}
 * from 1.24, to a map[string]string until 1.23. A set never changes once it is published, and many
 * goroutines share one. */
#ifndef PROFD_READER_GO_LABELS_H
#define PROFD_READER_GO_LABELS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/reader/target_memory.h"

#define GO_LABELS_MAX	  32u
#define GO_LABEL_TEXT_MAX 256u /* bytes of a key or a value; longer is cut */

struct go_label {
	char key[GO_LABEL_TEXT_MAX];
	char value[GO_LABEL_TEXT_MAX];
	uint16_t key_len;
	uint16_t value_len;
};

struct go_labels {
	unsigned count;
	struct go_label items[GO_LABELS_MAX];
};

/* Reads the set at @va. @is_map: the form until 1.23. 0 with @ret filled (count 0 if what is there
 * is not a label set), -ESRCH, -EPERM. */
int go_labels_read(struct target *target, uint64_t va, bool is_map, struct go_labels *ret) must_use;

#endif
