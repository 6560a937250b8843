//go:build !unix

package textfile

import (
	"io/fs"
	"os"
)

// Systems without named pipes and devices, such as a browser.

func openNow(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDONLY, 0) }

func isNull(fs.FileInfo) bool { return false }

func isTerminal(string) bool { return false }

func (in *Input) awaitWriter() error { return nil }
