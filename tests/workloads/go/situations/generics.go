// SPDX-License-Identifier: Apache-2.0

//go:build go1.18
// +build go1.18

package main

func generic[T any](c chan T) { <-c }

func startGenerics() {
	go generic(make(chan string))
	go generic(forever)
}
