/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROFCTL_COMPARE_H
#define PROFCTL_COMPARE_H

#include <cjson/cJSON.h>

/* Prints a comparison (the object of `GET …/compare`) for people. 0, or 1 out of memory. */
int comparison_print(const cJSON *comparison);

#endif
