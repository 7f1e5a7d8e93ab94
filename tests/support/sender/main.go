// SPDX-License-Identifier: Apache-2.0

// Sends profiles of itself, as Go programs do: with Pyroscope's own agent when it is given an address,
// and by net/http/pprof. It burns CPU time three to one in burnHot and burnCold, fights for a mutex and
// keeps 64 MiB. Prints `ready PORT`; ends when its input does.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/grafana/pyroscope-go"
)

//go:noinline
func burnHot(d time.Duration) uint64 { return burn(d) }

//go:noinline
func burnCold(d time.Duration) uint64 { return burn(d) }

func burn(d time.Duration) uint64 {
	var n uint64
	for end := time.Now().Add(d); time.Now().Before(end); {
		for i := uint64(0); i < 100000; i++ {
			n += i * n
		}
	}
	return n
}

var kept [][]byte

//go:noinline
func keepBlocks() {
	for i := 0; i < 64; i++ {
		kept = append(kept, make([]byte, 1<<20))
	}
}

func fight() {
	var mutex sync.Mutex
	for i := 0; i < 4; i++ {
		go func() {
			for {
				mutex.Lock()
				time.Sleep(time.Millisecond)
				mutex.Unlock()
			}
		}()
	}
}

func main() {
	runtime.MemProfileRate = 64 << 10
	runtime.SetMutexProfileFraction(1)
	runtime.SetBlockProfileRate(1)
	keepBlocks()
	runtime.GC()
	fight()
	if len(os.Args) > 1 {
		_, err := pyroscope.Start(pyroscope.Config{
			ApplicationName: "sender", ServerAddress: os.Args[1], UploadRate: 4 * time.Second,
			HTTPHeaders: map[string]string{"Authorization": "Bearer " + os.Getenv("TOKEN")},
			Tags:        map[string]string{"version": "v7"},
			ProfileTypes: []pyroscope.ProfileType{pyroscope.ProfileCPU, pyroscope.ProfileInuseObjects,
				pyroscope.ProfileAllocObjects, pyroscope.ProfileInuseSpace, pyroscope.ProfileAllocSpace,
				pyroscope.ProfileGoroutines, pyroscope.ProfileMutexCount, pyroscope.ProfileMutexDuration,
				pyroscope.ProfileBlockCount, pyroscope.ProfileBlockDuration},
		})
		if err != nil {
			panic(err)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go http.Serve(listener, nil)
	fmt.Println("ready", listener.Addr().(*net.TCPAddr).Port)
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for {
		burnHot(30 * time.Millisecond)
		burnCold(10 * time.Millisecond)
	}
}
