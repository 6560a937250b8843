//go:build !linux

// Faultbench needs Linux: it reads the memory of processes from /proc.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "faults: this program needs Linux")
	os.Exit(1)
}
