// SPDX-License-Identifier: Apache-2.0

// A program that refers to no profile at all: the linker leaves its heap profile out.
package main

import (
	"bufio"
	"fmt"
	"os"
)

func main() {
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadString('\n')
	select {}
}
