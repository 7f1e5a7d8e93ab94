/* SPDX-License-Identifier: Apache-2.0 */
/* Splits a runtime's name of JIT-compiled code into function, file and line, so that a function has
 * one name in every compiler tier. Pure. Sources of the forms: V8's src/logging/log.cc
 * (LogEventListener::CodeCreateEvent) and src/objects/code-kind.cc (the markers); CPython's
 * Python/perf_trampoline.c ("py::function:file"); .NET's src/coreclr/vm/perfmap.cpp
 * (LogJITCompiledMethod) and prestub.cpp (GetJitOptimizationTierStr). */
#ifndef PROFD_SYMBOLIZE_JIT_NAME_H
#define PROFD_SYMBOLIZE_JIT_NAME_H

#include <stdint.h>

#define JIT_NAME_SIZE 2049 /* with its NUL */

struct jit_name {
	char function[JIT_NAME_SIZE];
	char file[JIT_NAME_SIZE]; /* "" if the name does not say */
	uint32_t start_line;	  /* 0 if the name does not say */
};

/* A form that is not known is a function of that name. Longer names are cut. */
void jit_name_parse(const char *text, struct jit_name *ret);

#endif
