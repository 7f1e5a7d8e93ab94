// SPDX-License-Identifier: Apache-2.0
/* A program that exports what tells Node. Of V8's description of itself it has nothing, or
 * (COMPRESSED) that its pointers are compressed. It spins. */
#include <stdio.h>

void napi_create_function(void);
void napi_create_function(void)
{
}

#ifdef COMPRESSED
extern const int v8dbg_SmiShiftSize, v8dbg_TaggedSize;
const int v8dbg_SmiShiftSize = 0;
const int v8dbg_TaggedSize = 4;
#endif

static volatile unsigned long turns;

int main(void)
{
	puts("ready");
	fflush(stdout);
	for (;;)
		turns++;
}
