// SPDX-License-Identifier: Apache-2.0

//go:build cgo
// +build cgo

package main

/*
#include <pthread.h>
#include <unistd.h>

extern void waitInGo(void);

static void sleep_in_c(void) { for (;;) pause(); }
static void call_go(void) { waitInGo(); }
static void *thread_main(void *arg) { waitInGo(); return arg; }
static void start_thread(void)
{
	pthread_t thread;
	pthread_create(&thread, 0, thread_main, 0);
}
*/
import "C"

//export waitInGo
func waitInGo() { <-forever }

func sleepInC()  { C.sleep_in_c() }
func callbackC() { C.call_go() }
func startCgo() {
	go sleepInC()
	go callbackC()
	C.start_thread()
}
