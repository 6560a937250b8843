// Command lorasim evaluates where LoRA adapters and requests should go on
// several LLM workers, and when moving them is worth it.
package main

import "lorasim/cmd/cli"

func main() { cli.Main() }
