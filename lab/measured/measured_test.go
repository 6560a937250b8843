package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"lorasim/internal/shareddata"
)

const (
	repository = "../.."
	docsPage   = "../docs/measured.md"
)

func committed(t *testing.T) *page {
	t.Helper()
	p, err := load(docsPage)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPage: the committed page has the sections of all sources it may have, in their order, and each row a command.
func TestPage(t *testing.T) {
	p := committed(t)
	at := 0
	for _, s := range p.sections {
		for at < len(sources) && sources[at].name != s.name {
			at++
		}
		if at == len(sources) {
			t.Fatalf("section %q: no source of this name, or not in the order of the sources", s.name)
		}
		want := sources[at]
		if s.title != want.title || s.about != want.about || !reflect.DeepEqual(s.commands, want.commands) {
			t.Errorf("section %s: title, text or commands differ from its source: run the command of the page", s.name)
		}
		if len(s.rows) == 0 {
			t.Errorf("section %s has no rows", s.name)
		}
		for _, r := range s.rows {
			checkRow(t, &s, r)
		}
	}
	if len(p.sections) < 8 {
		t.Errorf("%d sections, expected most of %d", len(p.sections), len(sources))
	}
	if targets, misses := p.targets(); targets < 50 || misses == 0 {
		t.Errorf("%d targets and %d misses, expected dozens and some", targets, misses)
	}
}

func checkRow(t *testing.T, s *section, r row) {
	t.Helper()
	for i, c := range r.cells() {
		if strings.TrimSpace(c) == "" {
			t.Errorf("section %s, %q: cell %d is empty", s.name, r.claim, i+1)
		}
	}
	if i := strings.Index("abcdefghij", r.command); len(r.command) != 1 || i < 0 || i >= len(s.commands) {
		t.Errorf("section %s, %q: command %q, the section has %d", s.name, r.claim, r.command, len(s.commands))
	}
	if r.target != "-" && !strings.HasSuffix(r.target, ": met") && !strings.HasSuffix(r.target, missed) {
		t.Errorf("section %s, %q: target %q says neither met nor missed", s.name, r.claim, r.target)
	}
}

// TestPageIsWritten: the committed page is, to the byte, what write makes of its sections.
func TestPageIsWritten(t *testing.T) {
	text, err := os.ReadFile(docsPage)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := committed(t).write(&b, again); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.Bytes(), text) {
		t.Error("docs/measured.md was edited by hand, or the writer changed: run the command of the page")
	}
}

// TestFresh holds the rows of sources that take about a second against what their commands print now.
func TestFresh(t *testing.T) {
	if testing.Short() {
		t.Skip("builds lorasim")
	}
	dir := t.TempDir()
	r := &runner{lorasim: filepath.Join(dir, "lorasim"), data: shareddata.Dir(), scratch: dir}
	var err error
	if r.data, err = filepath.Abs(r.data); err != nil {
		t.Fatal(err)
	}
	if r.root, err = filepath.Abs(repository); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", r.lorasim, "./cmd/lorasim")
	build.Dir = r.root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p := committed(t)
	for _, name := range []string{"deepseek-logs", "cpu-engines", "vllm-steps", "sglang-batches", "epp-cases",
		"slora-runs", "pull-requests"} {
		t.Run(name, func(t *testing.T) {
			for _, s := range sources {
				if s.name != name {
					continue
				}
				for _, need := range s.needs {
					shareddata.Path(t, need)
				}
				got, err := freshSection(t.Context(), r, s, options{})
				if err != nil {
					t.Fatal(err)
				}
				compareSections(t, p.find(name), got)
			}
		})
	}
}

func compareSections(t *testing.T, page, fresh *section) {
	t.Helper()
	if page == nil {
		t.Fatal("the page has no such section: run the command of the page")
	}
	if len(page.rows) != len(fresh.rows) {
		t.Fatalf("the page has %d rows, its command gives %d: run it", len(page.rows), len(fresh.rows))
	}
	for i, r := range fresh.rows {
		if page.rows[i] != r {
			t.Errorf("the page has\n%v\nthe command gives\n%v\nrun the command of the page", page.rows[i], r)
		}
	}
}

// TestRoundTrip: a page that was written reads as it was.
func TestRoundTrip(t *testing.T) {
	want := &page{sections: []section{
		{name: "a-b", title: "One", about: "Two lines\nof text.\n\n- and an item", commands: []string{"x --y", "z"},
			rows: []row{{"c", "1 ms", "2 ms", "+100 %", "5 %: " + missed, "-", "a"},
				{"d", "1", "1", "+0 %", "-", "2 %", "b"}}},
		{name: "e", title: "Three", about: "Text.", commands: []string{"w"},
			rows: []row{{"f", "1", "1", "+0 %", "-", "-", "a"}}},
	}}
	var b bytes.Buffer
	if err := want.write(&b, "command"); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "1 rows have a target; 1 of them miss it.") {
		t.Errorf("counts of targets: %s", b.String())
	}
	got, err := readPage(&b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read\n%+v\nwritten\n%+v", got, want)
	}
}

// FuzzReadPage: a page that was read can be written and read again.
func FuzzReadPage(f *testing.F) {
	f.Add("## t\n\n<!-- source: a -->\nabout\n\n```sh\n# a\nrun\n```\n\n" + columns + "| a | b | c | d | e | f | a |\n")
	f.Add("## t\n| a |\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := readPage(strings.NewReader(text))
		if err != nil || strings.ContainsAny(text, "\r`") {
			return
		}
		for _, s := range p.sections {
			if s.name == "" || s.about == "" || len(s.commands) == 0 {
				return // write needs these
			}
		}
		var b bytes.Buffer
		if err := p.write(&b, "x"); err != nil {
			t.Fatal(err)
		}
		if _, err := readPage(&b); err != nil {
			t.Errorf("%q: written, but not read: %v", text, err)
		}
	})
}

func TestReadPageErrors(t *testing.T) {
	for text, want := range map[string]string{
		"## t\n\n| a | b |\n":          "line 3: 2 cells, expected 7",
		"## t\n\n```sh\nrun\n```\n":    "line 4: \"run\": expected # a before",
		"## t\n```sh\n# b\nrun\n```\n": "line 3: \"# b\": expected # a before",
	} {
		if _, err := readPage(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, expected %q", text, err, want)
		}
	}
}

// TestSkipped: without data, the page keeps its rows, and the log says so.
func TestSkipped(t *testing.T) {
	old := &page{sections: []section{{name: "vllm-steps", rows: []row{{claim: "kept"}}}}}
	r := &runner{data: t.TempDir(), root: repository, scratch: t.TempDir()}
	var log bytes.Buffer
	p, err := update(t.Context(), r, old, options{only: []string{"vllm-steps", "sglang-batches", "vllm-hours"}}, &log)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(p, old) {
		t.Errorf("page %+v, expected the old one", p)
	}
	for _, want := range []string{
		"vllm-steps: skipped, no data: vllm_steps; the page keeps its 1 rows",
		"sglang-batches: skipped, no data: sglang_batches; the page has no rows of it",
		"vllm-hours: skipped, not asked for: slow, see --slow; the page has no rows of it",
		"epp-cases: skipped, not asked for; ",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log without %q:\n%s", want, log.String())
		}
	}
}

func TestOptions(t *testing.T) {
	o, err := parse([]string{"--data", "d", "--slow", "--only", "vllm-steps,epp-cases"})
	if err != nil || o.data != "d" || !o.slow || len(o.only) != 2 {
		t.Errorf("%+v, %v", o, err)
	}
	for _, args := range [][]string{{"--only", "nothing"}, {"more"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
