// SPDX-License-Identifier: Apache-2.0
/* An ELF file that looks like CPython from outside: a state that describes itself (WORDS: the 90
 * numbers of 3.13.0), a loop whose rare part the compiler moves away, a variable of each thread.
 * tests/unit/test_runtime_cpython.c builds it as a library and as a program, stripped and not. */
#include <stdint.h>

__attribute__((section(".PyRuntime"))) uint64_t _PyRuntime[512] = { WORDS };
uint64_t PyCode_Type[52];

#define HIDDEN __attribute__((visibility("hidden")))
HIDDEN _Thread_local uint64_t other_variable = 1, _Py_tss_tstate = 2;

__attribute__((noinline, cold)) void rare(uint64_t *state)
{
	__asm__ volatile("" : : "r"(state) : "memory");
}

uint64_t _PyEval_EvalFrameDefault(uint64_t *code, uint64_t count)
{
	uint64_t stack[64] = { _Py_tss_tstate, other_variable }, at = 0;

	for (uint64_t i = 0; i < count; i++) {
		uint64_t op = code[i];

		if (__builtin_expect(op > 63, 0)) {
			rare(stack);
			rare(code);
			stack[0] = op;
			rare(stack);
		}
		at = (at + op) & 63;
		stack[at] += op * stack[(at + 1) & 63];
		__asm__ volatile("" : : "r"(stack) : "memory");
	}
	return stack[at];
}

int main(int argc, char **argv)
{
	return (int)_PyEval_EvalFrameDefault((uint64_t *)argv, (uint64_t)(argc - 1));
}
