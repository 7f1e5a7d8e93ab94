// SPDX-License-Identifier: Apache-2.0

// Answers every OTLP/gRPC request with success: what a profiler that must send its profiles somewhere sends them
// to while it is measured. Prints its port. With a folder as argument it keeps the body of each request there.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
)

var kept atomic.Int64

func keep(body io.Reader) {
	to := io.Discard
	if len(os.Args) > 1 {
		file, err := os.Create(filepath.Join(os.Args[1], fmt.Sprint(kept.Add(1))))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		defer file.Close()
		to = file
	}
	io.Copy(to, body)
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	server := http.Server{
		Protocols: &protocols,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			keep(r.Body)
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Trailer", "Grpc-Status")
			w.Write(make([]byte, 5)) // an empty message
			w.Header().Set("Grpc-Status", "0")
		}),
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	fmt.Fprintln(os.Stderr, server.Serve(listener))
	os.Exit(1)
}
