package eppcases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"lorasim/bench/serving/extproc"
	"lorasim/internal/format"
	"lorasim/internal/textfile"
	"lorasim/router/epp"
)

// Report is the result of the cases in a folder.
type Report struct {
	Summary Summary `json:"summary"`
	Cases   []Case  `json:"cases"`
}

// Summary counts cases.
type Summary struct {
	Cases   int `json:"cases"`
	Exact   int `json:"exact"`
	Skipped int `json:"skipped"`
}

// Case is one case compared with its recording.
type Case struct {
	Name            string      `json:"name"`
	Exact           bool        `json:"exact"`
	Skipped         string      `json:"skipped,omitempty"` // reason; "": not skipped
	Steps           int         `json:"steps"`
	FirstDifference *Difference `json:"first_difference,omitempty"`
}

// Difference is the first step at which the pickers differ.
type Difference struct {
	Step     int    `json:"step"`
	What     string `json:"what"` // name of the field
	Expected any    `json:"expected"`
	Got      any    `json:"got"`
}

// Compare runs the cases of a folder and its subfolders.
func Compare(ctx context.Context, dir string) (*Report, error) {
	var paths []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if name := strings.TrimSuffix(path, ".gz"); err == nil && !d.IsDir() && strings.HasSuffix(name, ".jsonl") {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s: the folder has no NAME.jsonl or NAME.jsonl.gz", dir)
	}
	r := &Report{}
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := r.add(ctx, path); err != nil {
			return nil, err
		}
	}
	r.sum()
	return r, nil
}

// add runs the cases of a file.
func (r *Report) add(ctx context.Context, path string) error {
	f, err := textfile.Open(ctx, path, nil)
	if err != nil {
		return err
	}
	defer f.Close()
	g := &group{dir: filepath.Dir(path), dialect: epp.GIE, configs: map[string]parsed{}}
	if filepath.Base(g.dir) == "llmd" {
		g.dialect = epp.LLMD
	}
	name, _, _ := strings.Cut(filepath.Base(path), ".")
	for {
		text, err := f.Line()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return fmt.Errorf("%s: a case: %w", f.Where(), err)
		}
		var c Case
		if l.Messages != nil {
			c, err = transcript(ctx, text)
		} else {
			c = g.run(&l)
		}
		if err != nil {
			return fmt.Errorf("%s: a case: %w", f.Where(), err)
		}
		c.Name = name + "/" + l.ID + l.Name
		r.Cases = append(r.Cases, c)
	}
}

// sum sorts the cases by name and counts them.
func (r *Report) sum() {
	slices.SortStableFunc(r.Cases, func(a, b Case) int { return strings.Compare(a.Name, b.Name) })
	for i := range r.Cases {
		c := &r.Cases[i]
		c.Exact = c.Skipped == "" && c.FirstDifference == nil
		r.Summary.Cases++
		if c.Exact {
			r.Summary.Exact++
		}
		if c.Skipped != "" {
			r.Summary.Skipped++
		}
	}
}

// Err returns an error with the number of cases that differ, or nil if all are exact.
func (r *Report) Err() error {
	if n := r.Summary.Cases - r.Summary.Exact - r.Summary.Skipped; n > 0 {
		return fmt.Errorf("%d of %d cases differ from the real picker", n, r.Summary.Cases)
	}
	return nil
}

// WriteText prints the cases that are not exact, and the summary.
func (r *Report) WriteText(w io.Writer) error {
	tw := format.Columns(w)
	fmt.Fprintln(tw, "CASE\tSTEPS\tRESULT")
	for _, c := range r.Cases {
		switch d := c.FirstDifference; {
		case c.Skipped != "":
			fmt.Fprintf(tw, "%s\t%d\tskipped: %s\n", c.Name, c.Steps, c.Skipped)
		case d != nil:
			fmt.Fprintf(tw, "%s\t%d\tstep %d, %s: expected %s, got %s\n", c.Name, c.Steps, d.Step, d.What,
				format.Compact(d.Expected), format.Compact(d.Got))
		}
	}
	s := r.Summary
	fmt.Fprintf(tw, "\n%d cases: %d exact, %d skipped, %d differ\n", s.Cases, s.Exact, s.Skipped,
		s.Cases-s.Exact-s.Skipped)
	return tw.Flush()
}

// group is a folder of cases with its configurations.
type group struct {
	dir     string
	dialect epp.Dialect
	configs map[string]parsed
}

type parsed struct {
	config *epp.Config
	err    error
}

// run runs a case.
func (g *group) run(l *line) Case {
	switch {
	case l.YAML != nil:
		return g.load(l)
	case l.Engine != nil:
		return scrapeCase(l)
	}
	c := Case{Steps: len(l.Steps)}
	config, err := g.config(l.Config)
	var unsupported *epp.Unsupported
	switch {
	case errors.As(err, &unsupported):
		c.Skipped = err.Error()
		return c
	case err != nil:
		c.FirstDifference = &Difference{What: "config", Expected: "taken", Got: err.Error()}
		return c
	}
	p := newReplayer(l, config)
	for i := range l.Steps {
		if c.FirstDifference = p.step(i, &l.Steps[i]); c.FirstDifference != nil {
			break
		}
	}
	return c
}

// transcript plays the messages of a case. Each message is a step.
func transcript(ctx context.Context, text []byte) (c Case, err error) {
	var t extproc.Transcript
	if err := json.Unmarshal(text, &t); err != nil {
		return c, err
	}
	c.Steps = len(t.Messages)
	d, err := t.Play(ctx)
	if d != nil {
		c.FirstDifference = &Difference{Step: d.Message, What: d.What, Expected: d.Expected, Got: d.Got}
	}
	return c, err
}

// config reads a configuration, and caches it.
func (g *group) config(name string) (*epp.Config, error) {
	p, ok := g.configs[name]
	if !ok {
		path := filepath.Join(g.dir, "configs", filepath.Base(name))
		data, err := textfile.ReadRegular(path, textfile.MaxSettings)
		if err == nil {
			p.config, err = epp.ParseRecorded(data, path, g.dialect)
		}
		p.err = err
		g.configs[name] = p
	}
	return p.config, p.err
}

// load compares whether a configuration is accepted. An accepted one that is not supported here
// counts as accepted.
func (g *group) load(l *line) Case {
	_, err := epp.Parse([]byte(*l.YAML), l.Name, g.dialect)
	var unsupported *epp.Unsupported
	ok := err == nil || errors.As(err, &unsupported)
	c := Case{Steps: 1}
	if ok != l.OK {
		c.FirstDifference = &Difference{What: "load", Expected: verdict(l.OK), Got: fmt.Sprint(err)}
	}
	return c
}

func verdict(ok bool) string {
	if ok {
		return "taken"
	}
	return "refused"
}
