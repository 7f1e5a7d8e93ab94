// SPDX-License-Identifier: Apache-2.0

// A service with its own /debug/pprof, as most Go services have, and paths that make it wait, leak and allocate
// known amounts. Says "ready", then its port.
package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"time"
)

const objectBytes = 4096

var (
	forever = make(chan int)
	kept    [][]byte
	rubbish []byte
)

//go:noinline
func leak() { <-forever }

//go:noinline
func grow() { leak() }

func park(reason string) {
	var m sync.Mutex
	m.Lock()
	switch reason {
	case "receive":
		<-forever
	case "send":
		forever2 := make(chan int)
		forever2 <- 1
	case "select":
		select {
		case <-forever:
		case <-make(chan string):
		}
	case "lock":
		m.Lock()
	case "group":
		var g sync.WaitGroup
		g.Add(1)
		g.Wait()
	case "nobody":
		var none chan int
		<-none
	case "sleep":
		time.Sleep(time.Hour)
	}
}

type waiter interface{ wait() }
type inner struct{}

func (inner) wait() { <-forever }

type outer struct{ *inner }

// The method that is called here is one that the compiler made.
func throughWrapper(w waiter) { w.wait() }

func generic[T any](c chan T) { <-c }

func start() {
	for _, reason := range []string{"receive", "send", "select", "lock", "group", "sleep", "nobody"} {
		for i := 0; i < 3; i++ {
			go park(reason)
		}
	}
	go throughWrapper(outer{&inner{}})
	go generic(make(chan string))
	func() { go func() { leak() }() }()
	for i := 0; i < 5; i++ {
		go grow()
	}
	pprof.Do(context.Background(), pprof.Labels("tenant", "acme"), func(context.Context) { go leak() })
}

//go:noinline
func keep(n int) {
	for i := 0; i < n; i++ {
		kept = append(kept, make([]byte, objectBytes))
	}
}

//go:noinline
func waste(n int) {
	for i := 0; i < n; i++ {
		rubbish = make([]byte, objectBytes)
	}
}

//go:noinline
func awaitLock(m *sync.Mutex) {
	m.Lock()
	m.Unlock()
}

// @n waits for a lock, 20 ms each, one after the other.
func contend(n int) {
	for i := 0; i < n; i++ {
		var m sync.Mutex
		done := make(chan int, 1)
		m.Lock()
		go func() { awaitLock(&m); done <- 1 }()
		time.Sleep(20 * time.Millisecond)
		m.Unlock()
		<-done
	}
}

var dump [1 << 20]byte

// Until every goroutine but the caller's waits: whoever reads them from now on finds them where they stay.
func settle() {
	for {
		text := dump[:runtime.Stack(dump[:], true)]
		if bytes.Count(text, []byte("[runn")) <= 1 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func handle(path string, work func(n int)) {
	http.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		work(n)
		fmt.Fprintln(w, "done")
	})
}

func main() {
	runtime.MemProfileRate = 1
	runtime.SetBlockProfileRate(1)
	runtime.SetMutexProfileFraction(1)
	handle("/leak", func(n int) {
		for i := 0; i < n; i++ {
			go leak()
		}
		settle()
	})
	handle("/keep", keep)
	handle("/waste", waste)
	handle("/contend", contend)
	handle("/gc", func(int) { runtime.GC(); runtime.GC() })
	start()
	keep(500)
	runtime.GC()
	runtime.GC()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	settle()
	fmt.Println("ready")
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	http.Serve(listener, nil)
}
