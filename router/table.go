package router

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// table reads entries ADAPTERS@WORKERS that say which workers serve which
// adapters:
//
//	0@1        adapter 0 on worker 1
//	0-7@0      adapters 0 to 7 on worker 0
//	chat-de@2  the adapter of that name
//	8@0+2-3    adapter 8 on workers 0, 2 and 3
//	rest@all   adapters not listed elsewhere, on every worker
//	base@0     the base model
//
// Numbers, ranges, rest and base are read as such before names are tried: an
// adapter whose name looks like one is listed by its index.
type table struct {
	env     Env
	byName  map[string]int
	entries [][]int32 // by adapter; nil: not listed
	where   []string  // by adapter: where it was listed
	rest    []int32
	base    []int32
}

func newTable(env Env) *table {
	t := &table{
		env:     env,
		byName:  make(map[string]int, len(env.Adapters)),
		entries: make([][]int32, len(env.Adapters)),
		where:   make([]string, len(env.Adapters)),
	}
	for i, a := range env.Adapters {
		t.byName[a.Name] = i
	}
	return t
}

// read adds the entries of a file, one on each line; empty lines and lines
// that begin with # are skipped. The name is for errors.
func (t *table) read(r io.Reader, name string) error {
	lines := bufio.NewScanner(r)
	n := 0
	for lines.Scan() {
		n++
		line := lines.Text()
		if n == 1 {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if err := t.add(line, fmt.Sprintf("%s:%d", name, n)); err != nil {
			return err
		}
	}
	err := lines.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("%s:%d: line too long, expected at most %d bytes", name, n+1, bufio.MaxScanTokenSize)
	}
	if err != nil {
		return fmt.Errorf("%s:%d: %w", name, n+1, err)
	}
	return nil
}

// add adds one entry; where it stands is for errors.
func (t *table) add(entry, where string) error {
	at := strings.LastIndexByte(entry, '@')
	if at < 0 {
		return fmt.Errorf("%s: %q, expected ADAPTERS@WORKERS", where, entry)
	}
	workers, err := t.workers(strings.TrimSpace(entry[at+1:]))
	if err == nil {
		err = t.assign(strings.TrimSpace(entry[:at]), workers, where)
	}
	if err != nil {
		return fmt.Errorf("%s: %q: %w", where, entry, err)
	}
	return nil
}

func (t *table) workers(s string) ([]int32, error) {
	if s == "all" {
		return upTo(len(t.env.Workers)), nil
	}
	var list []int32
	seen := make([]bool, len(t.env.Workers))
	for part := range strings.SplitSeq(s, "+") {
		lo, hi, ok := span(part)
		if !ok {
			return nil, fmt.Errorf("workers %q, expected a number, a range such as 0-3, a sum such as 0+2, or all", s)
		}
		if lo > hi || hi >= len(t.env.Workers) {
			return nil, fmt.Errorf("worker %s, expected 0 to %d", part, len(t.env.Workers)-1)
		}
		for w := lo; w <= hi; w++ {
			if seen[w] {
				return nil, fmt.Errorf("worker %d is listed twice", w)
			}
			seen[w] = true
			list = append(list, int32(w))
		}
	}
	return list, nil
}

func (t *table) assign(s string, workers []int32, where string) error {
	switch s {
	case "rest":
		return once(&t.rest, workers, "rest")
	case "base":
		return once(&t.base, workers, "base")
	}
	lo, hi, ok := span(s)
	if ok && len(t.entries) == 0 {
		return fmt.Errorf("adapter %s, but there are no adapters", s)
	}
	if ok && (lo > hi || hi >= len(t.entries)) {
		return fmt.Errorf("adapter %s, expected 0 to %d", s, len(t.entries)-1)
	}
	if !ok {
		if lo, ok = t.byName[s]; !ok {
			return fmt.Errorf("no adapter is named %q; expected a name, a number, a range such as 0-7, rest or base", s)
		}
		hi = lo
	}
	for a := lo; a <= hi; a++ {
		if t.entries[a] != nil {
			return fmt.Errorf("adapter %d is listed twice, first in %s", a, t.where[a])
		}
		t.entries[a], t.where[a] = workers, where
	}
	return nil
}

func once(list *[]int32, workers []int32, what string) error {
	if *list != nil {
		return errors.New(what + " is listed twice")
	}
	*list = workers
	return nil
}

// finish returns the workers of every adapter and of the base model.
func (t *table) finish() (adapters [][]int32, base []int32, err error) {
	for a := range t.entries {
		if t.entries[a] != nil {
			continue
		}
		if t.rest == nil {
			return nil, nil, fmt.Errorf("adapter %d (%s) has no worker; list it, or add an entry such as rest@all",
				a, t.env.Adapters[a].Name)
		}
		t.entries[a] = t.rest
	}
	if t.base == nil {
		t.base = upTo(len(t.env.Workers))
	}
	return t.entries, t.base, nil
}

// span reads "3" or "3-5".
func span(s string) (lo, hi int, ok bool) {
	first, last, isRange := strings.Cut(s, "-")
	lo, ok = index(first)
	hi = lo
	if ok && isRange {
		hi, ok = index(last)
	}
	return lo, hi, ok
}

// index reads a number that has digits only.
func index(s string) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return int(n), err == nil
}

func upTo(n int) []int32 {
	list := make([]int32, n)
	for i := range list {
		list[i] = int32(i)
	}
	return list
}
