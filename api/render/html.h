/* SPDX-License-Identifier: Apache-2.0 */
/* Facts about the flame graph page that its sender needs beside its bytes. */
#ifndef PROFD_API_RENDER_HTML_H
#define PROFD_API_RENDER_HTML_H

/* Content-Security-Policy of the page: nothing but its own script and style, by their SHA-256. Made
 * once; thread-safe. */
const char *html_content_policy(void);

#endif
