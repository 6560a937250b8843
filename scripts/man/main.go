// Command man writes a manual page of every command of lorasim into a folder:
//
//	go run ./scripts/man DIR
//
// The date of a page is $SOURCE_DATE_EPOCH, else the current day. lorasim itself has no command for it, as only
// packagers need the pages.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra/doc"

	"lorasim/cmd/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./scripts/man DIR")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "manual pages:", err)
		os.Exit(1)
	}
}

func write(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	root := cli.Root()
	root.DisableAutoGenTag = true
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "lorasim", Manual: "lorasim"}, folder)
}
