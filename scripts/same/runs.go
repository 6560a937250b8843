package main

import (
	_ "embed"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A run is one or more commands in a folder of their own. What they print and write is compared.
type run struct {
	name    string
	quick   bool // also a run of -quick
	steps   []step
	files   map[string]string // files that the run finds in its folder
	workers *step             // the emulated workers whose URLs the steps get as arguments
	clock   *regexp.Regexp    // values that depend on the machine's clock: not compared
}

type step struct {
	command string // in the spelling of the build at commit c841bf9f
	flags   []setting
	args    []string
	stdout  string // file for standard output
}

type setting struct{ name, value string }

//go:embed runs.txt
var written string

// Values that are times of this machine, in any run.
var solverClock = regexp.MustCompile(`^\S+ (\d+\.)?seconds$`)

// catalogue returns the runs: those of runs.txt, those that follow from the policies, and pairs of settings.
func catalogue(policies []policy, quick bool) []run {
	var runs []run
	for _, line := range strings.Split(written, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, commands, _ := strings.Cut(line, ": ")
		runs = append(runs, parse(strings.TrimPrefix(name, "* "), commands))
		runs[len(runs)-1].quick = strings.HasPrefix(name, "* ")
	}
	runs = slices.Concat(runs, optionRuns(policies), liveRuns(policies), pairRuns(policyValues(policies), quick))
	if quick {
		runs = slices.DeleteFunc(runs, func(r run) bool { return !r.quick })
	}
	return runs
}

// policyValues returns a value of --policy for each policy, and one for each picker and script file.
func policyValues(policies []policy) []string {
	var values []string
	for _, p := range policies {
		switch p.Name {
		case "explicit":
			values = append(values, "explicit:map=0-2@0,3@1+2,rest@all")
		case "epp":
			values = append(values, "epp", "epp:file=pickers/gie.yaml", "epp:file=pickers/kserve-lora.yaml",
				"epp:file=pickers/llmd-baseline.yaml")
		case "script":
			values = append(values, "script:file=policies/affinity-spill.star",
				"script:file=policies/least-loaded.star", "script:file=policies/weighted-score.star")
		default:
			values = append(values, p.Name)
		}
	}
	return values
}

// optionRuns changes every option of every policy: to each of its words, or to a number that is not the default.
func optionRuns(policies []policy) []run {
	var runs []run
	for _, p := range policies {
		for _, o := range p.Options {
			for _, value := range optionValues(o) {
				given := o.Name + "=" + value
				switch {
				case p.Name == "script":
					given = "file=policies/weighted-score.star," + given
				case p.Name == "epp":
					given = "file=pickers/llmd-baseline.yaml," + given
				}
				runs = append(runs, parse("option/"+p.Name+"/"+o.Name+"="+value, "sim --json --num-prompts 800 "+
					"--num-workers 4 --num-adapters 24 --request-rate 14 --max-loras-per-batch 4 --max-loaded-loras 12 "+
					"--conversations chat --prefix-cache --kv-tokens 8192 --policy "+p.Name+":"+given+
					" --records records.csv --plans plans.jsonl"))
			}
		}
	}
	return runs
}

// optionValues returns values that differ from the default.
func optionValues(o option) []string {
	if o.Name == "dialect" || o.Name == "objective" {
		return nil // need a second option
	}
	if len(o.Words) > 0 {
		return slices.DeleteFunc(slices.Clone(o.Words), func(w string) bool { return w == o.Default })
	}
	switch o.Name {
	case "file", "map", "candidates":
		return nil // policyValues has files and maps
	case "args":
		return []string{"lora=2;kv=0"}
	case "set":
		return []string{"token-load-scorer:3"}
	case "k":
		return []string{"2"}
	case "max":
		return []string{"2"}
	case "horizon", "slo", "avg-output":
		return []string{"40"}
	case "refresh":
		return []string{"500ms"}
	case "low":
		return []string{"0.2"}
	}
	if o.Default == "false" {
		return []string{"true"}
	}
	if number, err := strconv.ParseFloat(strings.TrimSuffix(o.Default, "%"), 64); err == nil {
		if number == 0 {
			return []string{"1"}
		}
		return []string{strconv.FormatFloat(2*number, 'f', -1, 64)}
	}
	return nil
}

// groups are the commands that have subcommands.
var groups = []string{"trace", "sweep", "solve", "profile"}

// subgroups are the subcommands that have subcommands.
var subgroups = []string{"profile fit", "profile check"}

var word = regexp.MustCompile(`^[a-z]+$`)

// parse reads commands as a shell would: "COMMAND ARG... --FLAG VALUE... > FILE && COMMAND ...". A flag's value is
// the next word, unless that begins with --; words between '...' are one.
func parse(name, line string) run {
	r := run{name: name, clock: solverClock}
	var s step
	words := split(line)
	for i := 0; i < len(words); i++ {
		w := words[i]
		switch flag, isFlag := strings.CutPrefix(w, "--"); {
		case w == "&&":
			r.steps = append(r.steps, s)
			s = step{}
		case w == ">":
			i++
			s.stdout = words[i]
		case s.command == "":
			s.command = w
			if slices.Contains(groups, w) && i+1 < len(words) && word.MatchString(words[i+1]) {
				i++
				s.command += " " + words[i]
			}
			if slices.Contains(subgroups, s.command) && i+1 < len(words) {
				i++
				s.command += " " + words[i]
			}
		case isFlag:
			value := ""
			if i+1 < len(words) && !strings.HasPrefix(words[i+1], "--") && words[i+1] != ">" && words[i+1] != "&&" {
				i++
				value = words[i]
			}
			s.flags = append(s.flags, setting{flag, value})
		default:
			s.args = append(s.args, w)
		}
	}
	r.steps = append(r.steps, s)
	return r
}

// split returns the words of a line; '...' quotes.
func split(line string) []string {
	var words []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

// folder returns the name of a run as that of a folder.
func (r run) folder() string {
	return filepath.Clean(strings.Map(func(c rune) rune {
		if strings.ContainsRune("/:;,=% ", c) {
			return '_'
		}
		return c
	}, r.name))
}
