/* SPDX-License-Identifier: Apache-2.0 */
/* Runtimes of processes and the names of their script frames. The reader says whether a runtime's
 * layout fits, and what a frame is called. BPF's map has a runtime once the reader has seen it fit.
 * Loop thread only. */
#ifndef PROFD_COLLECT_SCRIPT_H
#define PROFD_COLLECT_SCRIPT_H

#include "agent/collect/collector_internal.h"

/* @proc has mapped a file at @mapping: if that is an interpreter, the reader is asked at once. */
void script_mapped(struct collector *c, struct proc *proc, const struct mapping *mapping);
/* Looks for an interpreter among @proc's mappings. If there is one, the reader is asked. */
void script_find(struct collector *c, struct proc *proc);
/* @proc has an interpreter, and the reader has not said yet whether its frames can be read. False
 * when the reader has said that the interpreter is still starting: nobody waits for that. */
bool script_is_awaited(const struct collector *c, const struct proc *proc);
/* @proc was forked: BPF's map gets what its parent has. */
void script_forked(struct collector *c, struct proc *proc);
/* @proc has ended or executed another program. Its names stay until it is forgotten. */
void script_end(struct collector *c, struct proc *proc);
/* The frame word of the script frame with the words @a and @b; 0 = no memory. */
uint64_t script_frame_word(struct collector *c, struct proc *proc, uint64_t a, uint64_t b);
/* Asks the reader and feeds names, as far as either takes them. */
void script_pump(struct collector *c, uint64_t now_ns);
/* How long the loop may wait until it is time to ask the reader again, ms, at most @max. */
int script_wait_ms(const struct collector *c, int max);
/* Feeds the names of all frames again, for a new server. */
void script_feed_again(struct collector *c);
/* Takes the channel to a new reader; ownership of @fd passes on. */
void script_set_reader(struct collector *c, int fd);
/* Takes the reader's answers from c->reader_fd. */
void script_receive(struct collector *c);

#endif
