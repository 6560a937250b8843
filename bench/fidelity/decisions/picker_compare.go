package decisions

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
	"lorasim/internal/textfile"
	"lorasim/router/epp"
)

// Pickers runs the cases of a folder and its subfolders.
func Pickers(ctx context.Context, dir string) (*Report, error) {
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
	r := Report{of: "real picker", skips: true}
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := r.add(ctx, path); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(r.Cases, func(a, b Case) int { return strings.Compare(a.Name, b.Name) })
	return newReport(r), nil
}

// add runs the cases of a file.
func (r *Report) add(ctx context.Context, path string) error {
	f, err := textfile.Open(ctx, path, nil)
	if err != nil {
		return err
	}
	defer f.Close()
	g := &pickerFolder{dir: filepath.Dir(path), dialect: epp.GIE, configs: map[string]pickerConfig{}}
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
		var l pickerCase
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

// pickerFolder is a folder of cases with its configurations.
type pickerFolder struct {
	dir     string
	dialect epp.Dialect
	configs map[string]pickerConfig
}

type pickerConfig struct {
	config *epp.Config
	err    error
}

// run runs a case.
func (g *pickerFolder) run(l *pickerCase) Case {
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
func (g *pickerFolder) config(name string) (*epp.Config, error) {
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
func (g *pickerFolder) load(l *pickerCase) Case {
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
