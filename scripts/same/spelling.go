package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A later spelling of a command. Its flags are those of the longest prefix that has a help page.
var commandNames = map[string][]string{
	"worth":            {"advise --parts"},
	"calibrate":        {"profile fit records"},
	"profile analytic": {"profile compute"},
}

// flagNames has the later spellings of a flag, in any command; the first that the build's help lists is used.
// "arg" makes its value an argument; "1/NAME" is the flag NAME with 1 / the value. A flag that has
// none here and is not listed becomes a key of --engine-args.
var flagNames = map[string][]string{
	"scenario": {"arg"},
	"records":  {"arg"}, // of calibrate
	// of workloads; worker has a flag of this name
	"time-scale": {"1/rate-scale"},
}

// engineKeys has the keys of --engine-args that are not the flag's name with underscores.
var engineKeys = map[string]string{}

var errSpelling = errors.New("no spelling")

// A build is a binary, and what it says about itself.
type build struct {
	name     string // OLD or NEW
	path     string
	policies []policy
	commands string // the list in its help

	mu    sync.Mutex
	flags map[string]map[string]bool // of a command, as --help-all lists them
}

// policy is what `lorasim policies --json` says about one.
type policy struct {
	Name    string   `json:"name"`
	Options []option `json:"options"`
}

type option struct {
	Name, Default string
	Words         []string
}

func probe(ctx context.Context, name, path string) (*build, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	b := &build{name: name, path: path, flags: map[string]map[string]bool{}}
	list, err := exec.CommandContext(ctx, path, "policies", "--json").Output()
	if err != nil {
		return nil, fmt.Errorf("%s policies --json: %w", path, err)
	}
	if err := json.Unmarshal(list, &b.policies); err != nil {
		return nil, fmt.Errorf("%s policies --json: %w", path, err)
	}
	help, err := exec.CommandContext(ctx, path, "--help").Output()
	b.commands = string(help)
	return b, err
}

func (b *build) knows(name string) bool {
	return slices.ContainsFunc(b.policies, func(p policy) bool { return p.Name == name })
}

// line is the command line of a run, for a person to repeat it.
func (b *build) line(r run) string {
	var lines []string
	for _, s := range r.steps {
		args, err := b.args(s)
		if err != nil {
			args = []string{s.command, err.Error()}
		}
		for i, arg := range args {
			if strings.ContainsAny(arg, " ;*|<>&()") {
				args[i] = "'" + arg + "'"
			}
		}
		line := "lorasim " + strings.Join(args, " ")
		if s.stdout != "" {
			line += " > " + s.stdout
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, " && ")
}

// args spells a step for the build.
func (b *build) args(s step) ([]string, error) {
	command := b.command(s.command)
	known := b.help(command)
	args := strings.Fields(command)
	var engine, last []string
	for _, f := range s.flags {
		name, err := b.spell(command, known, f.name)
		switch {
		case err != nil:
			return nil, err
		case name == "arg":
			last = append(last, f.value)
		case strings.HasPrefix(name, "1/"):
			x, err := strconv.ParseFloat(f.value, 64)
			if err != nil {
				return nil, fmt.Errorf("--%s: %w", f.name, err)
			}
			args = append(args, "--"+name[len("1/"):], fmt.Sprint(1/x))
		case name == "engine-args":
			key := engineKeys[f.name]
			if key == "" {
				key = strings.ReplaceAll(f.name, "-", "_")
			}
			value := f.value
			if value == "" {
				value = "true"
			}
			engine = append(engine, key+"="+value)
		case f.value == "":
			args = append(args, "--"+name)
		default:
			args = append(args, "--"+name, f.value)
		}
	}
	if len(engine) > 0 {
		args = append(args, "--engine-args", strings.Join(engine, ","))
	}
	return slices.Concat(args, s.args, last), nil
}

func (b *build) spell(command string, known map[string]bool, flag string) (string, error) {
	for _, name := range append([]string{flag}, flagNames[flag]...) {
		if known[strings.TrimPrefix(name, "1/")] || name == "arg" {
			return name, nil
		}
	}
	if known["engine-args"] {
		return "engine-args", nil
	}
	return "", fmt.Errorf("%w of --%s for %s %s; add it to scripts/same/spelling.go",
		errSpelling, flag, b.name, command)
}

// command returns the first spelling whose words are in the build's lists of commands.
func (b *build) command(today string) string {
	later := commandNames[today]
	if len(later) == 0 {
		return today
	}
	for _, name := range append([]string{today}, later...) {
		words := strings.Fields(name)
		if !lists(b.commands, words[0]) {
			continue
		}
		if len(words) > 1 && !strings.HasPrefix(words[1], "-") {
			group, _ := exec.Command(b.path, words[0], "--help").Output()
			if !lists(string(group), words[1]) {
				continue
			}
		}
		return name
	}
	return today
}

// lists reports whether a help page lists a command.
func lists(help, command string) bool {
	return regexp.MustCompile(`(?m)^\s+` + command + `\s`).MatchString(help)
}

var flagLine = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z][a-z0-9-]*)`)

// help returns the flags that the help of a command lists.
func (b *build) help(command string) map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.flags[command] == nil {
		known := map[string]bool{}
		var words []string
		for _, word := range strings.Fields(command) {
			if !strings.HasPrefix(word, "-") {
				words = append(words, word)
			}
		}
		for _, all := range []string{"--help-all", "--help"} {
			text, _ := exec.Command(b.path, append(slices.Clone(words), all)...).CombinedOutput()
			for _, match := range flagLine.FindAllStringSubmatch(string(text), -1) {
				known[match[1]] = true
			}
		}
		b.flags[command] = known
	}
	return b.flags[command]
}
