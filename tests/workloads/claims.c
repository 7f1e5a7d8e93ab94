// SPDX-License-Identifier: Apache-2.0
/* Spins in the function NAME. Programs with names of one length differ in nothing else, so that two
 * of them with one build-id (-Wl,--build-id=0x…) are alike but for what they call their code. */
#include <stdio.h>
#include <unistd.h>

static volatile unsigned long turns;

__attribute__((noinline)) void NAME(void)
{
	for (;;)
		turns++;
}

int main(void)
{
	puts("ready");
	fflush(stdout);
	NAME();
	return 0;
}
