// SPDX-License-Identifier: Apache-2.0
// The shared library of truth.cpp: every second frame of leaf_b's chain.
extern "C" void lib_bounce(int depth, void (*down)(int));

static __attribute__((noinline)) void local_step(int depth, void (*down)(int))
{
	volatile char local[80];
	local[depth & 63] = 1;
	down(depth);
	asm volatile("" : : "r"(&local) : "memory");
}

void lib_bounce(int depth, void (*down)(int))
{
	local_step(depth, down);
	asm volatile("");
}
