// SPDX-License-Identifier: Apache-2.0

// Goroutines in every situation that the reader must tell apart, and known heap, block and mutex profiles.
// It answers commands on standard input, one word per line, each answer ended by a line "<<<end>>>":
//
//	goroutines  its own dump (runtime/pprof "goroutine", debug=2)
//	memory      runtime.MemProfile, one line per record: objects and bytes allocated and in use, unsampled
//	            as runtime/pprof does, object size, then the stack's functions
//	block mutex the records of runtime.BlockProfile and MutexProfile: count, cycles, stack
//	gc          two collections, so that the heap profile is published
//	spin        starts a goroutine that never leaves its CPU
//	exec PATH   becomes another program
package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"math"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var (
	many    = flag.Int("many", 0, "goroutines more, parked on a channel")
	depth   = flag.Int("depth", 1, "frames of each of them")
	churn   = flag.Int("churn", 0, "goroutines that keep starting short-lived deep ones")
	profile = flag.Bool("profile", true, "turn on the block and mutex profiles")
	forever = make(chan int)
	sink    [][]byte
	waiting int32 // of recursive()
	dump    [1 << 20]byte
)

type tree struct{ left, right *tree }

// ---- one function per situation ------------------------------------------------------------------

func blockedReceive() { <-forever }
func blockedSend()    { make(chan string) <- "x" }
func blockedNilReceive() {
	var c chan int
	<-c
}
func blockedNilSend() {
	var c chan int
	c <- 1
}
func blockedRange() {
	for range forever {
	}
}
func blockedSelect() {
	a, b := make(chan int), make(chan string)
	select {
	case <-a:
	case b <- "":
	}
}
func blockedSelectForever() { select {} }

func blockedMutex(m *sync.Mutex)      { m.Lock() }
func blockedRead(m *sync.RWMutex)     { m.RLock() }
func blockedWrite(m *sync.RWMutex)    { m.Lock() }
func blockedGroup(g *sync.WaitGroup)  { g.Wait() }
func blockedCond(c *sync.Cond)        { c.L.Lock(); c.Wait() }
func sleeping()                       { time.Sleep(24 * time.Hour) }
func sleepingLocked()                 { runtime.LockOSThread(); time.Sleep(24 * time.Hour) }
func blockedTimer()                   { <-time.After(24 * time.Hour) }
func acceptIO(l net.Listener)         { l.Accept() }
func readIO(c net.Conn)               { c.Read(make([]byte, 1)) }
func readRaw(fd int)                  { syscall.Read(fd, make([]byte, 1)) }
func readLocked(fd int)               { runtime.LockOSThread(); syscall.Read(fd, make([]byte, 1)) }
func contextWait(ctx context.Context) { <-ctx.Done() }
func recursive(n int) {
	if n > 0 {
		recursive(n - 1)
		return
	}
	atomic.AddInt32(&waiting, 1)
	<-forever
}

//go:noinline
func bigFrame(n int) int {
	var buf [4096]byte
	buf[n%4096] = byte(n)
	if n > 0 {
		return bigFrame(n-1) + int(buf[(n*7)%4096])
	}
	<-forever
	return int(buf[0])
}

// Both are inlined into their caller.
func inlinedInner(c chan int) int { return <-c }
func inlinedOuter(c chan int) int { return inlinedInner(c) + 1 }
func inlinedCaller()              { sinkInt = inlinedOuter(forever) }

var sinkInt int

type waiter interface{ wait(c chan int) }
type plain struct{ pad int }

func (p plain) wait(c chan int) { <-c }

type embedding struct{ *plain }

// Goes through a wrapper that the compiler makes for the promoted method.
func viaInterface(w waiter) { w.wait(forever) }

func deferring() {
	defer func() { <-forever }()
	runtime.Goexit()
}

func recovering() {
	defer func() {
		recover()
		<-forever
	}()
	var t *tree
	t.left = nil
}

func closureParent() {
	n := 3
	go func() {
		func() { recursive(n) }()
	}()
}

func spinning() {
	for i := 0; ; i++ {
		sinkInt += i
	}
}

// ---- starting them -------------------------------------------------------------------------------

func startLocks() {
	var m, condLock sync.Mutex
	var rw, rw2 sync.RWMutex
	var group sync.WaitGroup

	m.Lock()
	rw.Lock()
	rw2.RLock()
	group.Add(1)
	go blockedMutex(&m)
	go blockedMutex(&m)
	go blockedRead(&rw)
	go blockedWrite(&rw2)
	go blockedGroup(&group)
	go blockedCond(sync.NewCond(&condLock))
	runtime.KeepAlive(&m)
}

func startIO() {
	var fds, locked [2]int

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go acceptIO(listener)
	second, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	conn, err := net.Dial("tcp", second.Addr().String())
	if err != nil {
		panic(err)
	}
	go readIO(conn)
	syscall.Pipe(fds[:])
	go readRaw(fds[0])
	syscall.Pipe(locked[:])
	go readLocked(locked[0])
}

func startLabelled() {
	pprof.Do(context.Background(), pprof.Labels("request", "checkout", "shard", "7"),
		func(context.Context) { go recursive(2) })
	pprof.Do(context.Background(), pprof.Labels("tenant", "acme"),
		func(context.Context) { go blockedReceive() })
}

func startAll() {
	go blockedReceive()
	go blockedSend()
	go blockedNilReceive()
	go blockedNilSend()
	go blockedRange()
	go blockedSelect()
	go blockedSelectForever()
	go sleeping()
	go sleepingLocked()
	go blockedTimer()
	go contextWait(contextWithCancel())
	go recursive(40)
	go recursive(700)
	go bigFrame(60)
	go inlinedCaller()
	go viaInterface(&plain{})
	go viaInterface(embedding{&plain{}})
	startGenerics()
	go deferring()
	go recovering()
	closureParent()
	startLocks()
	startIO()
	startLabelled()
	startCgo()
	for i := 0; i < *many; i++ {
		go recursive(*depth)
	}
}

func contextWithCancel() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	_ = cancel
	return ctx
}

func startChurn() {
	for i := 0; i < *churn; i++ {
		go func(seed int) {
			done := make(chan int)
			for n := seed; ; n++ {
				go func() { sinkInt = churnDeep(5 + n%60); done <- 1 }()
				<-done
			}
		}(i)
	}
}

//go:noinline
func churnDeep(n int) int {
	var pad [128]byte
	pad[n%128] = byte(n)
	if n == 0 {
		runtime.Gosched()
		return 1
	}
	return churnDeep(n-1) + int(pad[0])
}

// ---- known heap and contention -------------------------------------------------------------------

//go:noinline
func allocSmall(n int) {
	for i := 0; i < n; i++ {
		sink = append(sink, make([]byte, 48))
	}
}

//go:noinline
func allocLarge(n int) {
	for i := 0; i < n; i++ {
		sink = append(sink, make([]byte, 1<<20))
	}
}

// Inlined into its caller, so that one pc stands for two functions.
func makeTree() *tree { return &tree{} }

//go:noinline
func allocTree(depth int) *tree {
	t := makeTree()
	if depth > 0 {
		t.left, t.right = allocTree(depth-1), allocTree(depth-1)
	}
	return t
}

//go:noinline
func allocGarbage(n int) {
	for i := 0; i < n; i++ {
		garbage = make([]byte, 1024+i%512)
	}
}

var (
	garbage []byte
	forest  *tree
)

func contend() {
	var m sync.Mutex
	var group sync.WaitGroup
	c := make(chan int)

	for i := 0; i < 3; i++ {
		group.Add(1)
		go func() {
			for n := 0; n < 20; n++ {
				m.Lock()
				time.Sleep(200 * time.Microsecond)
				m.Unlock()
			}
			group.Done()
		}()
	}
	go func() { time.Sleep(5 * time.Millisecond); c <- 1 }()
	<-c
	group.Wait()
}

// ---- answering -----------------------------------------------------------------------------------

// As runtime/pprof scales (src/runtime/pprof/protomem.go, scaleHeapSample).
func unsample(count, size, rate int64) (int64, int64) {
	if count == 0 || size == 0 {
		return 0, 0
	}
	if rate <= 1 {
		return count, size
	}
	avg := float64(size) / float64(count)
	scale := 1 / (1 - math.Exp(-avg/float64(rate)))
	return int64(float64(count) * scale), int64(float64(size) * scale)
}

// The functions of a record, innermost first; "cut" after the number of frames that records are cut to.
func writeStack(out *bufio.Writer, pcs []uintptr) {
	frames := runtime.CallersFrames(pcs)
	for {
		frame, more := frames.Next()
		if frame.Function != "" {
			fmt.Fprintf(out, " %s", frame.Function)
		}
		if !more {
			break
		}
	}
	if len(pcs) == 32 {
		fmt.Fprint(out, " cut")
	}
	fmt.Fprintln(out)
}

func writeMemory(out *bufio.Writer) {
	records := make([]runtime.MemProfileRecord, 0)
	for n, ok := runtime.MemProfile(nil, true); ; {
		records = make([]runtime.MemProfileRecord, n+50)
		if n, ok = runtime.MemProfile(records, true); ok {
			records = records[:n]
			break
		}
	}
	for i := range records {
		r := &records[i]
		size := int64(0)
		if r.AllocObjects > 0 {
			size = r.AllocBytes / r.AllocObjects
		}
		ao, ab := unsample(r.AllocObjects, r.AllocBytes, int64(runtime.MemProfileRate))
		io, ib := unsample(r.InUseObjects(), r.InUseBytes(), int64(runtime.MemProfileRate))
		fmt.Fprintf(out, "%d %d %d %d %d", ao, ab, io, ib, size)
		writeStack(out, r.Stack())
	}
}

func writeEvents(out *bufio.Writer, read func([]runtime.BlockProfileRecord) (int, bool)) {
	records := make([]runtime.BlockProfileRecord, 4096)
	n, _ := read(records)
	for i := range records[:n] {
		fmt.Fprintf(out, "%d %d", records[i].Count, records[i].Cycles)
		writeStack(out, records[i].Stack())
	}
}

func serve() {
	in, out := bufio.NewScanner(os.Stdin), bufio.NewWriter(os.Stdout)

	fmt.Fprintln(out, "ready")
	out.Flush()
	for in.Scan() {
		switch in.Text() {
		case "goroutines":
			pprof.Lookup("goroutine").WriteTo(out, 2)
		case "memory":
			writeMemory(out)
		case "block":
			writeEvents(out, runtime.BlockProfile)
		case "mutex":
			writeEvents(out, runtime.MutexProfile)
		case "gc":
			runtime.GC()
			runtime.GC()
		case "spin":
			go spinning()
		default:
			if path := strings.TrimPrefix(in.Text(), "exec "); path != in.Text() {
				syscall.Exec(path, []string{path}, os.Environ())
			}
		}
		fmt.Fprintln(out, "<<<end>>>")
		out.Flush()
	}
}

// Until all wait that shall. Of very many, or of some that never do, what is listed is not looked at.
func settle() {
	for atomic.LoadInt32(&waiting) < int32(*many) {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond)
	for *many <= 1000 && *churn == 0 {
		text := dump[:runtime.Stack(dump[:], true)]
		if bytes.Count(text, []byte("[runn")) <= 1 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func main() {
	runtime.MemProfileRate = 4096
	flag.Parse()
	if *profile {
		runtime.SetBlockProfileRate(1)
		runtime.SetMutexProfileFraction(1)
	}
	startAll()
	allocSmall(20000)
	allocLarge(20)
	forest = allocTree(12)
	allocGarbage(50000)
	if *profile {
		contend()
	}
	startChurn()
	settle()
	serve()
}
