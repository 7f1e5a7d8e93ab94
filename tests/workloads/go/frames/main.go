// SPDX-License-Identifier: Apache-2.0

// Says of itself what runtime.CallersFrames knows of each address (hexadecimal, one a line of standard input):
// function and file:line of each frame, innermost first, and an empty line. Large by what it imports.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"text/template"
	_ "unsafe" // for go:linkname
)

// The address of a call inside inlined functions as runtime.Callers gives it: each call around it is an address of
// its own.
//
//go:linkname expandInlines runtime/pprof.runtime_expandFinalInlineFrame
func expandInlines(stack []uintptr) []uintptr

type pair[K comparable, V any] struct {
	key   K
	value V
}

//go:noinline
func (p *pair[K, V]) get() V { return p.value }

// Never called with more than no argument: what it mentions is linked in.
func mention() {
	http.Handle("/", http.NotFoundHandler())
	regexp.MustCompile("a+b")
	template.Must(template.New("x").Parse("{{.}}"))
	json.NewEncoder(os.Stderr).Encode(map[string]int{"a": 1})
	fmt.Fprintln(os.Stderr, (&pair[string, []int]{"k", nil}).get(), func() int { return len(os.Args) }())
}

func main() {
	if len(os.Args) > 1 {
		mention()
	}
	in, out := bufio.NewScanner(os.Stdin), bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for in.Scan() {
		pc, err := strconv.ParseUint(in.Text(), 0, 64)
		if err != nil {
			os.Exit(1)
		}
		// CallersFrames takes return addresses: the call lies before them.
		frames := runtime.CallersFrames(expandInlines([]uintptr{uintptr(pc) + 1}))
		for more := true; more; {
			var frame runtime.Frame
			frame, more = frames.Next()
			fmt.Fprintf(out, "%s\n%s:%d:0\n", frame.Function, frame.File, frame.Line)
		}
		fmt.Fprintln(out)
	}
}
