// SPDX-License-Identifier: Apache-2.0

//go:build !go1.18
// +build !go1.18

package main

// Before 1.18 there are no generic functions.
func startGenerics() {}
