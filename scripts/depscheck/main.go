// Command depscheck prints the modules that are behind their newest version. scripts/deps runs it.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// module is an element of the output of `go list -m -u -json`.
type module struct {
	Path, Version string
	Main          bool
	Indirect      bool
	Time          *time.Time
	Update        *struct {
		Version string
		Time    *time.Time
	}
	Deprecated string
	Retracted  []string
	Error      *struct{ Err string }
}

// held are modules that keep their version, with the reason.
var held = map[string]string{
	"github.com/apache/arrow/go/v17": "fixed at v17",
}

func main() {
	all := flag.Bool("all", false, "indirect modules, too")
	flag.Parse()
	modules, err := list()
	if err != nil {
		fmt.Fprintln(os.Stderr, "deps:", err)
		os.Exit(2)
	}
	if !*all {
		modules = slices.DeleteFunc(modules, func(m module) bool { return m.Indirect })
	}
	behind, unknown := report(os.Stdout, modules, time.Now())
	vulnerable := vulnerabilities(os.Stdout)
	switch {
	case behind > 0 || vulnerable:
		os.Exit(1)
	case unknown > 0:
		os.Exit(2)
	}
}

func list() (modules []module, err error) {
	c := exec.Command("go", "list", "-m", "-u", "-retracted", "-e", "-mod=readonly", "-json", "all")
	c.Stderr = os.Stderr
	text, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m -u all: %w", err)
	}
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		var m module
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return modules, nil
		} else if err != nil {
			return nil, err
		}
		if !m.Main {
			modules = append(modules, m)
		}
	}
}

// report prints the table: modules behind their newest version first, by descending lag.
func report(out io.Writer, modules []module, now time.Time) (behind, unknown int) {
	slices.SortStableFunc(modules, func(a, b module) int {
		return cmp.Or(cmp.Compare(lag(b), lag(a)), cmp.Compare(a.Path, b.Path))
	})
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MODULE\tUSED\tNEWEST\tDAYS BETWEEN\tDAYS SINCE USED\tNOTE")
	for _, m := range modules {
		newest, between, note := m.Version, "0", held[m.Path]
		switch {
		case m.Error != nil:
			newest, between = "unknown", "-"
			note, _, _ = strings.Cut(m.Error.Err, "\n")
			unknown++
		case m.Update != nil:
			newest, between = m.Update.Version, fmt.Sprintf("%.0f", lag(m).Hours()/24)
			if note == "" {
				behind++
			}
		}
		if m.Deprecated != "" {
			note += " deprecated: " + m.Deprecated
		}
		if m.Retracted != nil {
			note += " this version was retracted"
			behind++
		}
		age := "-"
		if m.Time != nil {
			age = fmt.Sprintf("%.0f", now.Sub(*m.Time).Hours()/24)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", m.Path, m.Version, newest, between, age, note)
	}
	w.Flush()
	fmt.Fprintf(out, "\n%d modules, %d behind, %d unknown\n", len(modules), behind, unknown)
	return behind, unknown
}

// lag returns the time between the used version and the newest one.
func lag(m module) time.Duration {
	if m.Update == nil || m.Update.Time == nil || m.Time == nil {
		return 0
	}
	return max(m.Update.Time.Sub(*m.Time), 1)
}

// vulnerabilities runs govulncheck, which uses its own database.
func vulnerabilities(out io.Writer) (found bool) {
	path, err := exec.LookPath("govulncheck")
	if err != nil {
		fmt.Fprintln(out, "known vulnerabilities: not checked; go install golang.org/x/vuln/cmd/govulncheck@latest")
		return false
	}
	c := exec.Command(path, "./...")
	text, err := c.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		fmt.Fprintln(out, "known vulnerabilities: none that the program calls (govulncheck)")
	case errors.As(err, &exit) && exit.ExitCode() == 3: // govulncheck's exit code for "found"
		fmt.Fprintf(out, "known vulnerabilities (govulncheck):\n%s", text)
		return true
	default:
		fmt.Fprintf(out, "known vulnerabilities: not checked: %v\n%s", err, text)
	}
	return false
}
