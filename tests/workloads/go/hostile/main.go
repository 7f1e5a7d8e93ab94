// SPDX-License-Identifier: Apache-2.0

// A Go program that lies to whoever reads its memory. The word on the command line says how:
//
//	endless   its list of goroutines is said to have 2^60 elements
//	long      it is said to have more elements than memory is mapped for
//	cyclic    its heap profile's list leads back to its beginning
//	unmapped  the list of goroutines comes and goes while it is read
//	silent    the list lies in memory whose faults a userfaultfd handler never answers
//	mapped    the list lies in a mapped file, named by the second argument, of which no byte was ever read
//	exec      it becomes the same program again all the time
//
// Nothing here starts a goroutine or collects garbage after that: the runtime would be the first to fall for it.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
	"unsafe"
)

//go:linkname allgs runtime.allgs
var allgs []unsafe.Pointer

//go:linkname mbuckets runtime.mbuckets
var mbuckets unsafe.Pointer

type slice struct {
	data     unsafe.Pointer
	len, cap uint64
}

const (
	listBytes      = 1 << 16
	userfaultfd    = 323 // system call, amd64
	uffdAPI        = 0xc018aa3f
	uffdRegister   = 0xc020aa00
	uffdioMissing  = 1
	uffdAPIVersion = 0xaa
)

var kept [][]byte

func mapped() []byte {
	data, err := syscall.Mmap(-1, 0, listBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		panic(err)
	}
	return data
}

// Moves the list of goroutines into memory of our own.
func moveList() []byte {
	data := mapped()
	list := (*slice)(unsafe.Pointer(&allgs))
	copy(unsafe.Slice((*unsafe.Pointer)(unsafe.Pointer(&data[0])), len(allgs)), allgs)
	list.data = unsafe.Pointer(&data[0])
	return data
}

func must(name string, errno syscall.Errno) {
	if errno != 0 {
		fmt.Printf("cannot %s: %v\n", name, errno)
		os.Exit(0)
	}
}

func silent() {
	var api = [3]uint64{uffdAPIVersion}
	fd, _, errno := syscall.Syscall(userfaultfd, 0, 0, 0)
	must("userfaultfd", errno)
	_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, uffdAPI, uintptr(unsafe.Pointer(&api)))
	must("agree on userfaultfd", errno)
	data := mapped()
	register := [4]uint64{uint64(uintptr(unsafe.Pointer(&data[0]))), listBytes, uffdioMissing}
	_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, uffdRegister, uintptr(unsafe.Pointer(&register)))
	must("register memory", errno)
	(*slice)(unsafe.Pointer(&allgs)).data = unsafe.Pointer(&data[0])
}

func mappedFile() {
	fd, err := syscall.Open(os.Args[2], syscall.O_RDONLY, 0)
	if err != nil {
		panic(err)
	}
	data, err := syscall.Mmap(fd, 0, listBytes, syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		panic(err)
	}
	syscall.Close(fd) // closing asks the file system, too: at the end nobody would answer
	(*slice)(unsafe.Pointer(&allgs)).data = unsafe.Pointer(&data[0])
}

// The word behind the header's first is allnext (src/runtime/mprof.go, type bucket).
func cyclic() {
	for i := 0; i < 100; i++ {
		kept = append(kept, make([]byte, 4096))
	}
	runtime.MemProfile(nil, true)
	*(*unsafe.Pointer)(unsafe.Pointer(uintptr(mbuckets) + 8)) = mbuckets
}

func main() {
	// As long as the heap profile is linked in, the runtime keeps it.
	runtime.MemProfileRate = 1
	debug.SetGCPercent(-1)
	list := (*slice)(unsafe.Pointer(&allgs))
	fmt.Println("ready")
	how := os.Args[1]
	if how == "exec" {
		time.Sleep(30 * time.Millisecond)
		syscall.Exec("/proc/self/exe", os.Args, os.Environ())
	}
	// It is still honest; whoever wants to see that writes a line when he has.
	syscall.Read(0, make([]byte, 1))
	switch how {
	case "endless":
		list.len, list.cap = 1<<60, 1<<60
	case "long":
		moveList()
		list.len, list.cap = 1<<27, 1<<27
	case "cyclic":
		cyclic()
	case "silent":
		silent()
	case "mapped":
		mappedFile()
	case "unmapped":
		data := moveList()
		fmt.Println("lying")
		for {
			syscall.Mprotect(data, syscall.PROT_NONE)
			syscall.Mprotect(data, syscall.PROT_READ)
		}
	}
	fmt.Println("lying")
	syscall.Pause()
}
