// Command lorasim evaluates where LoRA adapters and requests should go on
// several LLM workers, and when moving them is worth it.
package main

import "lorasim/cmd/cli"

// ballast makes the garbage collector begin at a heap of 32 MB, not of 4: many runs end before. Nothing touches its
// pages, so that they take no memory.
var ballast []byte

func main() {
	ballast = make([]byte, 16<<20)
	cli.Main()
}
