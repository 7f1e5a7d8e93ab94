/* SPDX-License-Identifier: Apache-2.0 */
/* INI text: `[section]`, `key = value` or `key: value`, lines that begin with ; or #, and comments
 * after a blank and ;. Blanks around names and values do not count, neither do those before a line;
 * no limit but the text's. */
#ifndef PROFD_BASE_INI_H
#define PROFD_BASE_INI_H

/* Borrowed until it returns; @section "" before the first. @key and @value are NULL for the line
 * that begins a section. Not 0 ends the reading. */
typedef int (*ini_visit_fn)(void *ctx, const char *section, const char *key, const char *value);

/* Visits each section and key of @text, which is cut to pieces. Returns 0, or the number of the
 * line (from 1) that @visit refused or that is neither a section nor a key. */
unsigned ini_visit(char *text, ini_visit_fn visit, void *ctx);

#endif
