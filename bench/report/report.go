// Package report makes one page of everything known about runs and sweeps: a
// single HTML file that a person can explore and that needs no network, and the
// same figures as PNG or SVG for papers.
//
//	p, err := report.Load(ctx, report.Options{}, "out/", "bench.log", "live.parquet")
//	err = p.WriteHTML(w)
//	files, err := p.WriteFigures("figures", "svg")
//
// Sweeps keep only the numbers of their runs. How a run went over time is found
// by running it again: the same scenario and seed give the same run.
package report

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"lorasim/bench/compare"
	"lorasim/bench/result"
	"lorasim/bench/result/records"
	"lorasim/bench/scenario"
	"lorasim/bench/series"
	"lorasim/bench/sweep"
	"lorasim/trace"
)

// Options says what a page is to hold.
type Options struct {
	Title string // "": from what is shown
	// Policies are run one after the other for each scenario file; none: the
	// scenario's own.
	Policies []string
	// At picks the point of a sweep whose runs are shown over time: values by
	// key, in any of the names that a key has. Axes that are not there take
	// their middle value.
	At map[string]string
	// NoRuns: do not run anything of a sweep again; of the runs at the point, what
	// the sweep kept of them is shown, means over the seeds.
	NoRuns bool
	// MaxRuns bounds the runs of one sweep that are run again; 0: 8.
	MaxRuns int
	SLO     result.SLO // for scenario files
	// Progress, where set, is told of runs done and to do.
	Progress func(done, total int, what string)
}

// Page is what a report shows.
type Page struct {
	Title  string
	About  string
	Runs   []*Run
	Sweeps []*Sweep
	Notes  []string
	// Compared is the table of all runs, nil: none.
	Compared *compare.Table
}

// Run is one run of a page.
type Run struct {
	Name   string // unique within the page
	Source string
	What   string
	Result *result.Result // nil: not known
	Series *series.Series // nil: not known
	// Kept is what a sweep kept of the run, by seed.
	Kept  []*sweep.CellResult
	Seeds []string // of Kept

	compared *compare.Run // as it was loaded; nil: was not
}

// Sweep is one sweep of a page.
type Sweep struct {
	*sweep.Dir
	*sweep.Tables
}

// Load gathers a page from folders of sweeps, scenario files (which are run),
// records, results and logs.
func Load(ctx context.Context, o Options, paths ...string) (*Page, []string, error) {
	l := &loader{ctx: ctx, opt: o, page: &Page{Title: o.Title}}
	if l.opt.MaxRuns == 0 {
		l.opt.MaxRuns = 8
	}
	for _, path := range paths {
		var err error
		switch ext := strings.ToLower(filepath.Ext(path)); {
		case sweep.IsDir(path):
			err = l.sweep(path)
		case ext == ".yaml" || ext == ".yml":
			err = l.scenario(path)
		default:
			l.files = append(l.files, path)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if err := l.simulate(); err != nil {
		return nil, nil, err
	}
	if err := l.readFiles(); err != nil {
		return nil, nil, err
	}
	if err := l.finish(); err != nil {
		return nil, nil, err
	}
	return l.page, l.warnings, nil
}

type loader struct {
	ctx      context.Context
	opt      Options
	page     *Page
	jobs     []job
	files    []string
	warnings []string
}

// job is a run to simulate.
type job struct {
	name, what string
	sc         *scenario.Scenario
	slo        result.SLO
	kept       *Run // what a sweep has of the run, over its seeds; nil: of no sweep
}

// scenario adds the runs of a scenario file.
func (l *loader) scenario(path string) error {
	sc, err := scenario.Load(path)
	if err != nil {
		return err
	}
	policies := l.opt.Policies
	if len(policies) == 0 {
		policies = []string{sc.Routing.Policy}
	}
	for _, p := range policies {
		c := sc
		c.Routing.Policy = p
		l.jobs = append(l.jobs, job{p, filepath.Base(path) + ", seed " + fmt.Sprint(c.Seed), &c, l.opt.SLO, nil})
	}
	return nil
}

// Simulate runs a scenario and records it over time.
func Simulate(ctx context.Context, sc *scenario.Scenario, slo result.SLO) (*result.Result, *series.Series, error) {
	workers, err := sc.Workers()
	if err != nil {
		return nil, nil, err
	}
	rec := series.NewRecorder(workers)
	res, err := sc.Simulate(ctx, scenario.RunOptions{SLO: slo, Watch: rec.Watching})
	if err != nil {
		return nil, nil, err
	}
	return res, rec.Series(), nil
}

func (l *loader) simulate() error {
	for i, j := range l.jobs {
		if l.opt.Progress != nil {
			l.opt.Progress(i, len(l.jobs), j.name)
		}
		res, s, err := Simulate(l.ctx, j.sc, j.slo)
		if err != nil {
			return fmt.Errorf("%s (%s): %w", j.name, j.what, err)
		}
		run := &Run{Name: j.name, Source: string(res.Source), What: j.what, Result: res, Series: s}
		if j.kept != nil {
			run.Kept, run.Seeds = j.kept.Kept, j.kept.Seeds
		}
		l.page.Runs = append(l.page.Runs, run)
	}
	return nil
}

// readFiles reads results, logs and records.
func (l *loader) readFiles() error {
	if len(l.files) == 0 {
		return nil
	}
	runs, warnings, err := compare.Load(l.files)
	if err != nil {
		return err
	}
	l.warnings = append(l.warnings, warnings...)
	for _, r := range runs {
		run := &Run{Name: filepath.Base(r.File), Source: r.Source, What: r.What, Result: r.Results[0]}
		if r.Line > 0 {
			run.Name += fmt.Sprintf(":%d", r.Line)
		}
		run.compared = r
		if recs := r.Results[0].Records; len(recs) > 0 {
			run.Series = series.FromRecords(recs, r.Results[0].Adapters)
		}
		if r.Source == "records" {
			if run.Series, err = fromRecords(r.File); err != nil {
				return err
			}
		}
		l.page.Runs = append(l.page.Runs, run)
	}
	return nil
}

func fromRecords(path string) (*series.Series, error) {
	rs, names, err := records.ReadAll(path)
	if err != nil {
		return nil, err
	}
	top := int32(-1)
	for i := range rs {
		top = max(top, rs[i].Adapter)
	}
	const most = 1 << 20 // against nonsense in the file
	adapters := make([]trace.Adapter, min(top+1, most))
	for i := range adapters {
		adapters[i].Name = names[int32(i)]
		if adapters[i].Name == "" {
			adapters[i].Name = fmt.Sprintf("adapter %d", i)
		}
	}
	for i := range rs {
		if a := rs[i].Adapter; a >= 0 && int(a) < len(adapters) && rs[i].Rank > 0 {
			adapters[a].Rank = int(rs[i].Rank)
		}
	}
	return series.FromRecords(rs, adapters), nil
}

// finish names the page and its runs, and compares them.
func (l *loader) finish() error {
	p := l.page
	seen := map[string]int{}
	for _, r := range p.Runs {
		if seen[r.Name]++; seen[r.Name] > 1 {
			r.Name = fmt.Sprintf("%s (%d)", r.Name, seen[r.Name])
		}
	}
	if p.Title == "" {
		p.Title = "Runs"
		if len(p.Sweeps) > 0 {
			p.Title = p.Sweeps[0].Name
		}
	}
	if len(p.Runs) == 0 {
		return nil
	}
	for _, r := range p.Runs {
		if r.Result != nil && len(r.Kept) > 0 {
			p.Notes = append(p.Notes, "Runs of a sweep: the table has means over its seeds, the figures over time are those of one seed.")
			break
		}
	}
	var runs []*compare.Run
	for _, r := range p.Runs {
		if len(r.Kept) > 0 { // all its seeds tell more than the one that is run again
			var numbers [][]sweep.Value
			for _, c := range r.Kept {
				numbers = append(numbers, c.Values)
			}
			runs = append(runs, compare.FromValues(r.Name, r.Seeds, numbers))
			continue
		}
		c := r.compared
		if c == nil {
			c = compare.FromResult(r.Name, r.Result)
		}
		c.Name = r.Name
		runs = append(runs, c)
	}
	var err error
	if p.Compared, err = compare.New(runs, compare.Options{}); err != nil {
		return err
	}
	p.Notes = append(p.Notes, p.Compared.Notes...)
	return nil
}
