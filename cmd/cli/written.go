package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lorasim/internal/atomicfile"
	"lorasim/internal/suggest"
	"lorasim/internal/table"
)

// writesKey annotates a flag whose value is a file that the command replaces: the extensions of its formats, none if
// any name will do.
const writesKey = "writes"

// writes marks flags whose values are files that a command replaces. See checkWrites.
func writes(cmd *cobra.Command, extensions []string, names ...string) {
	for _, name := range names {
		f := cmd.Flags().Lookup(name)
		if f.Annotations == nil {
			f.Annotations = map[string][]string{}
		}
		f.Annotations[writesKey] = extensions
	}
}

// checkWrites returns an error if a file that a given flag names cannot be written: before the work, whose result
// would be lost.
func checkWrites(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if extensions, ok := f.Annotations[writesKey]; ok && err == nil && f.Value.String() != "" {
			if err = checkFile(f.Value.String(), extensions); err != nil {
				err = fmt.Errorf("--%s: %w", f.Name, err)
			}
		}
	})
	return err
}

// checkFile returns an error if a file cannot be replaced, or if its name has none of the extensions.
func checkFile(path string, extensions []string) error {
	ext := strings.ToLower(filepath.Ext(path))
	switch {
	case len(extensions) == 0 || slices.Contains(extensions, ext):
		return replaceable(path)
	case ext == "":
		return usage(fmt.Errorf("%s: no extension to tell the format, expected %s", path,
			strings.Join(extensions, ", ")))
	}
	return usage(fmt.Errorf("%s: %w", path, suggest.Unknown("file format", ext, extensions)))
}

// replaceable returns an error if a file cannot be replaced. It does not open devices and pipes: that could wait for a
// reader.
func replaceable(path string) error {
	if info, err := os.Stat(path); err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		return nil
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	f.Abort()
	return nil
}

// appendable returns an error if a program cannot append to a file.
func appendable(path string) error {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return replaceable(path)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// checkWorkloadName returns an error if a workload cannot be written to a file, or if the file is one of the inputs.
func checkWorkloadName(out string, inputs ...string) error {
	target, err := os.Stat(out)
	for _, in := range inputs {
		source, e := os.Stat(in)
		if err == nil && e == nil && target.Mode().IsRegular() && os.SameFile(source, target) {
			return usage(fmt.Errorf("%s is the input, too: write to another file", out))
		}
	}
	return checkFile(out, table.Extensions())
}

func pictures() []string { return []string{".png", ".svg"} }
