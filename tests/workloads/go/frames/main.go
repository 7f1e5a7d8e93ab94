// SPDX-License-Identifier: Apache-2.0

// Says of itself what runtime.CallersFrames knows of each address (hexadecimal, one a line of standard input):
// function and file:line, and an empty line. Of an address alone that is the innermost frame: the calls around it
// are addresses of their own for runtime.Callers. Large by what it imports.
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
)

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
		frames := runtime.CallersFrames([]uintptr{uintptr(pc) + 1})
		frame, _ := frames.Next()
		fmt.Fprintf(out, "%s\n%s:%d:0\n\n", frame.Function, frame.File, frame.Line)
	}
}
