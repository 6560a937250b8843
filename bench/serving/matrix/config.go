// Package matrix runs every combination of some server commands and some client
// commands: it starts the server, waits until it is ready, runs the client,
// stops the server, and keeps logs and results in one folder. A combination that
// fails does not keep the others from running, one that is done is not run again.
//
//	m, err := matrix.Load(ctx, "matrix.yaml")
//	rows, err := m.Run(ctx, matrix.Options{Log: os.Stderr})
//	err = matrix.WriteTable(os.Stdout, rows)
package matrix

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"lorasim/internal/suggest"
	"lorasim/internal/textfile"
	"lorasim/internal/yamlfile"
)

// A Matrix has the contents of a file of server and client commands.
type Matrix struct {
	Name   string `yaml:"name"`
	Output string `yaml:"output"` // folder of logs and results, relative to the file's folder
	Repeat int    `yaml:"repeat"` // runs of each combination; 0: 1
	// Env is set for all commands.
	Env     map[string]string `yaml:"env"`
	Servers []Server          `yaml:"servers"`
	Clients []Client          `yaml:"clients"`

	dir string // where relative paths begin and commands run
}

// A Program is a command with its name and environment.
type Program struct {
	Name    string            `yaml:"name"`
	Command string            `yaml:"command"` // shell command
	Env     map[string]string `yaml:"env"`
}

// A Server is a command that serves until it is stopped.
type Server struct {
	Program `yaml:",inline"`
	Ready   Ready `yaml:"ready"`
	Stop    Stop  `yaml:"stop"`
}

// Ready states when a server can be used: when all given conditions hold.
type Ready struct {
	URLs    []string      `yaml:"urls"`    // must answer with status 2xx; $NAME is expanded from the environment
	Log     string        `yaml:"log"`     // regular expression that must match in the server's output
	Timeout time.Duration `yaml:"timeout"` // longest wait; 0: 10 min
}

// Stop states how a server is stopped: by a signal, and by SIGKILL after the timeout.
type Stop struct {
	Signal  string        `yaml:"signal"`  // TERM, INT, HUP or QUIT; "": TERM
	Timeout time.Duration `yaml:"timeout"` // time from the signal to SIGKILL; 0: 30 s
}

// A Client is a command that runs against a server and prints a result block.
type Client struct {
	Program `yaml:",inline"`
	Timeout time.Duration `yaml:"timeout"` // longest time of the command; 0: no limit
}

// Defaults of times that a file leaves out.
const (
	defaultReady = 10 * time.Minute
	defaultStop  = 30 * time.Second
)

var signals = map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP,
	"QUIT": syscall.SIGQUIT}

// Load reads a matrix from a file.
func Load(ctx context.Context, path string) (*Matrix, error) {
	data, err := textfile.ReadFile(ctx, path, textfile.MaxSettings)
	if err != nil {
		return nil, err
	}
	return parse(data, path)
}

// parse parses the text of a file. The path names the file in errors; relative paths in the text start at its folder.
func parse(data []byte, path string) (*Matrix, error) {
	m := &Matrix{}
	if err := yamlfile.Unmarshal(data, path, m); err != nil {
		return nil, err
	}
	m.dir = filepath.Dir(path)
	m.Repeat = cmp.Or(m.Repeat, 1)
	m.Output = cmp.Or(m.Output, strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))+".out")
	for i := range m.Servers {
		s := &m.Servers[i]
		s.Ready.Timeout = cmp.Or(s.Ready.Timeout, defaultReady)
		s.Stop.Timeout = cmp.Or(s.Stop.Timeout, defaultStop)
		s.Stop.Signal = strings.TrimPrefix(strings.ToUpper(cmp.Or(s.Stop.Signal, "TERM")), "SIG")
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// fileName is what names must look like: they become names of folders.
var fileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

func (m *Matrix) check() error {
	if m.Repeat < 1 || m.Repeat > 1000 {
		return fmt.Errorf("repeat is %d, expected 1 to 1000", m.Repeat)
	}
	if len(m.Servers) == 0 || len(m.Clients) == 0 {
		return fmt.Errorf("%d servers and %d clients, expected at least one of each", len(m.Servers), len(m.Clients))
	}
	names := map[string]bool{}
	check := func(kind string, i int, p Program, timeouts ...time.Duration) error {
		where := fmt.Sprintf("%s[%d]", kind, i)
		switch {
		case !fileName.MatchString(p.Name):
			return fmt.Errorf("%s.name is %q, expected letters, digits, '.', '_' and '-'", where, p.Name)
		case names[kind+p.Name]:
			return fmt.Errorf("%s.name %q appears twice", where, p.Name)
		case strings.TrimSpace(p.Command) == "":
			return fmt.Errorf("%s (%s): command is missing", where, p.Name)
		case slices.Min(timeouts) < 0:
			return fmt.Errorf("%s (%s): timeouts must not be negative", where, p.Name)
		}
		names[kind+p.Name] = true
		return nil
	}
	for i, s := range m.Servers {
		if err := check("servers", i, s.Program, s.Ready.Timeout, s.Stop.Timeout); err != nil {
			return err
		}
		if err := suggest.Among("signal", s.Stop.Signal, []string{"TERM", "INT", "HUP", "QUIT"}); err != nil {
			return fmt.Errorf("servers[%d] (%s): stop.signal: %w", i, s.Name, err)
		}
		if _, err := regexp.Compile(s.Ready.Log); err != nil {
			return fmt.Errorf("servers[%d] (%s): ready.log: %w", i, s.Name, err)
		}
	}
	for i, c := range m.Clients {
		if err := check("clients", i, c.Program, c.Timeout); err != nil {
			return err
		}
	}
	return nil
}
