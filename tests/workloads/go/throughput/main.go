// SPDX-License-Identifier: Apache-2.0

// Work that can be counted, beside goroutines that are parked: what reading them costs the program. A line on
// standard input is answered with the rounds done so far; with -idle there
// is nothing but the parked ones.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
)

var (
	many    = flag.Int("many", 10000, "goroutines that wait")
	idle    = flag.Bool("idle", false, "do no work")
	forever = make(chan int)
	rounds  int64
	sink    []byte
)

func park(depth int) {
	if depth > 0 {
		park(depth - 1)
		return
	}
	<-forever
}

// A quarter of a megabyte that is touched: page faults and garbage collection are part of it.
func work() {
	for {
		sink = make([]byte, 256<<10)
		for i := 0; i < len(sink); i += 4096 {
			sink[i] = 1
		}
		atomic.AddInt64(&rounds, 1)
	}
}

func main() {
	flag.Parse()
	runtime.GOMAXPROCS(1)
	for i := 0; i < *many; i++ {
		go park(4)
	}
	if !*idle {
		go work()
	}
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if in.Text() == "gc" {
			runtime.GC()
		}
		fmt.Println(atomic.LoadInt64(&rounds))
	}
}
