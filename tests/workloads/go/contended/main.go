// SPDX-License-Identifier: Apache-2.0

// Goroutines that wait for locks and channels for known times, in a program that keeps no block or mutex profile
// of its own. Each site adds up how long it has waited; a line on standard input is answered with the sums in ns,
// waits that go on included, so that two answers tell what a profile between them has to find. With -keep it
// keeps the profiles.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

var (
	keep    = flag.Bool("keep", false, "turn the runtime's own block and mutex profiles on")
	started = time.Now()
	forever = make(chan int)
)

// The waits of one site: the sum of those that have ended and, for those that go on, when they began.
type site struct {
	name    string
	ended   int64
	waiting sync.Map
}

func (s *site) wait(id int, what func()) {
	begin := int64(time.Since(started))
	s.waiting.Store(id, begin)
	what()
	s.waiting.Delete(id)
	atomic.AddInt64(&s.ended, int64(time.Since(started))-begin)
}

func (s *site) sum() int64 {
	now, sum := int64(time.Since(started)), atomic.LoadInt64(&s.ended)
	s.waiting.Range(func(_, begin any) bool { sum += now - begin.(int64); return true })
	return sum
}

//go:noinline
func lockSite(m *sync.Mutex) { m.Lock() }

//go:noinline
func readSite(m *sync.RWMutex) { m.RLock() }

//go:noinline
func receiveSite(c chan int) { <-c }

//go:noinline
func leakedSite() { <-forever }

// Lengths that are never in step with anything that samples.
func pause(least, most int) {
	time.Sleep(time.Duration(least+rand.Intn(most-least)) * time.Microsecond)
}

func main() {
	flag.Parse()
	if *keep {
		runtime.SetBlockProfileRate(1)
		runtime.SetMutexProfileFraction(1)
	}
	locks, reads := &site{name: "lockSite"}, &site{name: "readSite"}
	receives, leaks := &site{name: "receiveSite"}, &site{name: "leakedSite"}
	var m sync.Mutex
	var rw sync.RWMutex
	c := make(chan int)
	for i := 0; i < 3; i++ {
		go func(id int) {
			for {
				locks.wait(id, func() { lockSite(&m) })
				pause(2000, 9000)
				m.Unlock()
			}
		}(i)
	}
	go func() {
		for {
			rw.Lock()
			pause(3000, 15000)
			rw.Unlock()
			pause(1000, 9000)
		}
	}()
	go func() {
		for {
			reads.wait(0, func() { readSite(&rw) })
			rw.RUnlock()
			pause(500, 3000)
		}
	}()
	go func() {
		for {
			receives.wait(0, func() { receiveSite(c) })
			pause(3000, 8000)
		}
	}()
	go func() {
		for {
			pause(5000, 21000)
			c <- 1
		}
	}()
	go leaks.wait(0, leakedSite)
	time.Sleep(100 * time.Millisecond)
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		for _, s := range []*site{locks, reads, receives, leaks} {
			fmt.Printf("%s %d ", s.name, s.sum())
		}
		fmt.Println()
	}
}
