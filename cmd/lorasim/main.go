// Command lorasim evaluates where LoRA adapters and requests should go on
// several LLM workers, and when moving them is worth it.
package main

import (
	"runtime"

	"lorasim/cmd/cli"
)

func main() {
	// The garbage collector begins at a heap of 32 MB, not of 4: many runs end before. Nothing touches these pages, so
	// they take no memory.
	ballast := make([]byte, 16<<20)
	cli.Main()
	runtime.KeepAlive(ballast)
}
