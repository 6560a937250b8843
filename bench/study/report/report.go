// Package report makes a page about runs and sweeps: a single HTML file that works without a network. It also writes
// the figures as PNG or SVG, for papers.
//
//	p, warnings, err := report.Load(ctx, report.Options{}, "out/", "bench.log", "live.parquet")
//	err = p.WriteHTML(w)
//	files, err := p.WriteFigures("figures", "svg")
//
// Sweeps keep only the metrics of their runs. To show a run over time, the package runs it again: the same scenario
// and seed give the same run.
package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/result/records"
	"lorasim/bench/result/series"
	"lorasim/bench/scenario"
	"lorasim/bench/study/compare"
	"lorasim/bench/study/sweep"
	"lorasim/trace"
)

// Options select the content of a page.
type Options struct {
	Title string // title; "": derived from the content
	Files trace.Files
	// Policies are the policies to run for each scenario file; none: the scenario's policy.
	Policies []string
	// At selects the point of a sweep whose runs are shown over time: values by any name of a setting. Other axes have
	// their middle value.
	At map[string]string
	// NoRuns: run nothing of a sweep again. The page then shows the metrics that the sweep keeps for the runs at the
	// point, as means over the seeds.
	NoRuns bool
	// MaxRuns is the maximum number of runs of one sweep to repeat; 0: 8.
	MaxRuns int
	SLO     result.SLO // SLO for scenario files
	// Progress, if not nil, is called with the number of finished runs, the total and the current run.
	Progress func(done, total int, what string)
}

// A Page is the content of a report.
type Page struct {
	Title  string
	About  string
	Runs   []*Run
	Sweeps []*Sweep
	Notes  []string
	// Sections come first on the page.
	Sections []Section
	// Compared is the table of all runs; nil: none.
	Compared *compare.Table
	// At states, for each sweep, the values of its settings for the runs shown.
	At []string
}

// A Run is one run of a page, with a unique name. Its metrics are those that a sweep kept, else those of the result.
type Run struct {
	*compare.Run
	Result *result.Result      // result of the run; nil: unknown
	Series *series.Series      // the run over time; nil: unknown
	Kept   []*sweep.CellResult // the sweep's results of the run, by seed
}

// A Sweep is one sweep of a page.
type Sweep struct {
	*sweep.Dir
	*sweep.Tables
}

// Load makes a page from folders of sweeps, scenario files, request records, results and logs. It runs the scenario
// files. The second result lists warnings about the files.
func Load(ctx context.Context, o Options, paths ...string) (*Page, []string, error) {
	l := &loader{opt: o, page: &Page{Title: o.Title}}
	l.opt.MaxRuns = cmp.Or(o.MaxRuns, 8)
	var files []string
	var err error
	for _, path := range paths {
		switch ext := strings.ToLower(filepath.Ext(path)); {
		case err != nil:
		case sweep.IsDir(path):
			err = l.sweep(path)
		case ext == ".yaml" || ext == ".yml":
			err = l.scenario(ctx, path)
		default:
			files = append(files, path)
		}
	}
	if err == nil {
		err = l.simulate(ctx)
	}
	if err == nil && len(files) > 0 {
		err = l.readFiles(ctx, files)
	}
	if err == nil {
		err = l.finish()
	}
	return l.page, l.warnings, err
}

type loader struct {
	opt      Options
	page     *Page
	jobs     []job
	warnings []string
}

// job is a run to simulate.
type job struct {
	run *Run // without what the simulation gives
	sc  *scenario.Scenario
	slo result.SLO
}

func (l *loader) note(format string, values ...any) {
	l.page.Notes = append(l.page.Notes, fmt.Sprintf(format, values...))
}

// scenario adds the runs of a scenario file.
func (l *loader) scenario(ctx context.Context, path string) error {
	sc, err := scenario.Load(ctx, path)
	if err != nil {
		return err
	}
	sc.Files = l.opt.Files
	policies := l.opt.Policies
	if len(policies) == 0 {
		policies = []string{sc.Routing.Policy.String()}
	}
	for _, p := range policies {
		c := sc
		if err := c.Set("policy", p); err != nil {
			return err
		}
		run := &Run{Run: &compare.Run{Name: p, What: fmt.Sprintf("%s, seed %d", filepath.Base(path), c.Seed)}}
		l.jobs = append(l.jobs, job{run, &c, l.opt.SLO})
	}
	return nil
}

// simulate runs the scenarios and records them over time.
func (l *loader) simulate(ctx context.Context) error {
	for i, j := range l.jobs {
		if l.opt.Progress != nil {
			l.opt.Progress(i, len(l.jobs), j.run.Name)
		}
		workers, err := j.sc.Workers()
		if err != nil {
			return err
		}
		rec := series.NewRecorder(workers)
		res, err := j.sc.Simulate(ctx, scenario.RunOptions{SLO: j.slo, Watch: rec.Watching})
		if err != nil {
			return fmt.Errorf("%s (%s): %w", j.run.Name, j.run.What, err)
		}
		r := j.run
		if len(r.Kept) == 0 {
			what := r.What
			r.Run = compare.FromResult(r.Name, res)
			r.What = what
		}
		r.Source, r.Result, r.Series = string(res.Source), res, rec.Series()
		l.page.Runs = append(l.page.Runs, r)
	}
	return nil
}

// sweep reads a sweep and picks runs of it.
func (l *loader) sweep(path string) error {
	d, err := sweep.Open(l.opt.Files, path)
	if err != nil {
		return err
	}
	t, err := d.Tables(sweep.MergeOptions{Partial: true})
	if err != nil {
		return err
	}
	if t.Left > 0 {
		l.note("%s: %d of %d cells are missing, failed or broken", d.Name, t.Left, len(d.Cells))
	}
	for _, b := range t.Broken {
		l.warnings = append(l.warnings, fmt.Sprintf("%s: cell %d (%s) is left out: %s", path, b.Index, b.What, b.Error))
	}
	l.page.Sweeps = append(l.page.Sweeps, &Sweep{d, t})
	l.page.About = cmp.Or(l.page.About, d.About)
	names, picked, err := l.pick(d)
	if err != nil {
		return err
	}
	if at := common(d, picked); at != "" {
		l.page.At = append(l.page.At, fmt.Sprintf("sweep %s at %s", d.Name, at))
	}
	if n := len(names); n > l.opt.MaxRuns {
		l.note("%s: %d of %d runs are shown", d.Name, l.opt.MaxRuns, n)
		names = names[:l.opt.MaxRuns]
	}
	for _, name := range names {
		run, err := kept(d, name, picked[name])
		if err != nil {
			return err
		}
		if l.opt.NoRuns {
			if len(run.Kept) > 0 {
				run.What += fmt.Sprintf(", mean of %d seeds", len(run.Kept))
				l.page.Runs = append(l.page.Runs, run)
			}
			continue
		}
		c := picked[name][0]
		sc, err := d.ScenarioOf(c)
		if err != nil {
			return err
		}
		run.What = d.Describe(c)
		l.jobs = append(l.jobs, job{run, sc, d.SLO()})
	}
	return nil
}

// common lists the settings that all picked cells have the same value of:
// "request_rate = 16".
func common(d *sweep.Dir, picked map[string][]*sweep.Cell) string {
	var parts []string
	for i, a := range d.Axes {
		values := map[string]bool{}
		for _, cells := range picked {
			for _, c := range cells {
				values[c.Values[i]] = true
			}
		}
		for v := range values {
			if len(values) == 1 {
				parts = append(parts, a.Leaf()+" = "+v)
			}
		}
	}
	return strings.Join(parts, ", ")
}

// kept is a run with what the sweep kept of it, by seed.
func kept(d *sweep.Dir, name string, cells []*sweep.Cell) (*Run, error) {
	r := &Run{}
	var seeds []string
	var numbers [][]result.Value
	what := ""
	for _, c := range cells {
		cell, err := d.ReadCell(c)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, sweep.ErrBroken) {
			continue // the page says that cells are missing
		}
		if err != nil {
			return nil, err
		}
		what = strings.TrimSuffix(d.Describe(c), fmt.Sprintf(" seed=%d", c.Seed))
		r.Kept, numbers, seeds = append(r.Kept, cell), append(numbers, cell.Values),
			append(seeds, strconv.FormatUint(c.Seed, 10))
	}
	r.Run = compare.FromValues(name, seeds, numbers)
	r.What = what
	return r, nil
}

// pick returns the cells of the runs to show, by seed: those of each policy at
// one point; or, where there is one policy, of each value of the second axis.
func (l *loader) pick(d *sweep.Dir) (names []string, picked map[string][]*sweep.Cell, err error) {
	pinned := map[string]string{} // by full key
	for key, v := range l.opt.At {
		f, err := scenario.Find(key)
		if err != nil {
			return nil, nil, err
		}
		if !slices.ContainsFunc(d.Axes, func(a sweep.Axis) bool { return a.Key == f.Key }) {
			return nil, nil, fmt.Errorf("%s does not vary %s", d.Name, key)
		}
		pinned[f.Key] = v
	}
	var point []string
	for _, a := range d.Axes {
		v, given := pinned[a.Key]
		if given && !slices.Contains(a.Values, v) {
			return nil, nil, fmt.Errorf("%s has no run at %s %s; it has %s",
				d.Name, a.Leaf(), v, strings.Join(a.Values, ", "))
		}
		if !given {
			v = a.Values[len(a.Values)/2]
		}
		point = append(point, v)
	}
	second := len(d.Policies) == 1 && len(d.Axes) > 1 && pinned[d.Axes[1].Key] == ""
	picked = map[string][]*sweep.Cell{}
	for i := range d.Cells {
		c := &d.Cells[i]
		name := c.Policy
		if second {
			name, point[1] = c.Values[1], c.Values[1]
		}
		if !slices.Equal(c.Values, point) {
			continue
		}
		if picked[name] == nil {
			names = append(names, name)
		}
		picked[name] = append(picked[name], c)
	}
	return names, picked, nil
}

// readFiles reads results, logs and records.
func (l *loader) readFiles(ctx context.Context, files []string) error {
	runs, warnings, err := compare.Load(ctx, l.opt.Files, files, l.opt.SLO)
	if err != nil {
		return err
	}
	l.warnings = append(l.warnings, warnings...)
	for _, r := range runs {
		run := &Run{Run: r, Result: r.Results[0]}
		if run.Name = filepath.Base(r.File); r.Line > 0 {
			run.Name += fmt.Sprintf(":%d", r.Line)
		}
		if recs := r.Results[0].Records; len(recs) > 0 {
			run.Series = series.FromRecords(recs, r.Results[0].Adapters)
		}
		if r.Source == "records" {
			if run.Series, err = fromRecords(ctx, l.opt.Files, r.File); err != nil {
				return err
			}
		}
		l.page.Runs = append(l.page.Runs, run)
	}
	return nil
}

func fromRecords(ctx context.Context, files trace.Files, path string) (*series.Series, error) {
	rs, in, err := records.ReadAll(ctx, files, path)
	if err != nil {
		return nil, err
	}
	var adapters []trace.Adapter
	for i := range rs {
		const most = 1 << 20 // against nonsense in the file
		a := rs[i].Adapter
		for n := len(adapters); n <= int(min(a, most-1)); n++ {
			adapters = append(adapters, trace.Adapter{Name: cmp.Or(in.Names[int32(n)], fmt.Sprintf("adapter %d", n))})
		}
		if a >= 0 && int(a) < len(adapters) && rs[i].Rank > 0 {
			adapters[a].Rank = int(rs[i].Rank)
		}
	}
	return series.FromRecords(rs, adapters), nil
}

// finish names the page and its runs, and compares them.
func (l *loader) finish() (err error) {
	p := l.page
	if len(p.Sweeps) > 0 {
		p.Title = cmp.Or(p.Title, p.Sweeps[0].Name)
	}
	p.Title = cmp.Or(p.Title, "Runs")
	if len(p.Runs) == 0 {
		return nil
	}
	if slices.ContainsFunc(p.Runs, func(r *Run) bool { return r.Result != nil && len(r.Kept) > 0 }) {
		l.note("Runs of a sweep: the table has means over its seeds, the figures over time are those of one seed.")
	}
	var runs []*compare.Run
	seen := map[string]int{}
	for _, r := range p.Runs {
		if seen[r.Name]++; seen[r.Name] > 1 {
			r.Name = fmt.Sprintf("%s (%d)", r.Name, seen[r.Name])
		}
		runs = append(runs, r.Run)
	}
	if p.Compared, err = compare.New(runs, compare.Options{}); err != nil {
		return err
	}
	p.Notes = append(p.Notes, p.Compared.Notes...)
	return nil
}
