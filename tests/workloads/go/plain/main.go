// SPDX-License-Identifier: Apache-2.0

// The counterpart of truth_plain.c.
package main

import (
	"math/rand"
	"os"
	"strconv"
	"syscall"
)

var sink uint64
var unit int // see truth_plain.c

func spin(turns int) {
	x := sink
	for i := 0; i < turns; i++ {
		x = x*6364136223846793005 + 1442695040888963407
	}
	sink = x
}

//go:noinline
func leafA() {
	spin(6 * unit)
}

//go:noinline
func leafB() {
	spin(4 * unit)
}

//go:noinline
func chainA(depth int) int {
	if depth == 1 {
		leafA()
	} else {
		chainA(depth - 1)
	}
	return depth
}

//go:noinline
func chainB(depth int) int {
	if depth == 1 {
		leafB()
	} else {
		chainB(depth - 1)
	}
	return depth
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func main() {
	seconds := 5.0
	if len(os.Args) > 1 {
		seconds, _ = strconv.ParseFloat(os.Args[1], 64)
	}
	for cpuSeconds() < seconds {
		unit = 1000 + rand.Intn(18000)
		chainA(20)
		chainB(5)
	}
}
