package report

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/scenario"
	"lorasim/bench/sweep"
)

// sweep reads a sweep and picks runs of it.
func (l *loader) sweep(path string) error {
	d, err := sweep.Open(path)
	if err != nil {
		return err
	}
	t, err := d.Tables(sweep.MergeOptions{Partial: true})
	if err != nil {
		return err
	}
	if t.Left > 0 {
		l.page.Notes = append(l.page.Notes, fmt.Sprintf("%s: %d of %d cells are missing, failed or broken", d.Name, t.Left, len(d.Cells)))
	}
	for _, b := range t.Broken {
		l.warnings = append(l.warnings, fmt.Sprintf("%s: cell %d (%s) is left out: %s", path, b.Index, b.What, b.Error))
	}
	l.page.Sweeps = append(l.page.Sweeps, &Sweep{d, t})
	if l.page.About == "" {
		l.page.About = d.About
	}
	names, picked, err := l.pick(d)
	if err != nil {
		return err
	}
	if n := len(names); n > l.opt.MaxRuns {
		l.page.Notes = append(l.page.Notes, fmt.Sprintf("%s: %d of %d runs are shown", d.Name, l.opt.MaxRuns, n))
		names = names[:l.opt.MaxRuns]
	}
	for _, name := range names {
		kept, err := l.kept(d, name, picked[name])
		if err != nil {
			return err
		}
		if l.opt.NoRuns {
			if kept != nil {
				l.page.Runs = append(l.page.Runs, kept)
			}
			continue
		}
		c := picked[name][0]
		sc, err := d.ScenarioOf(c)
		if err != nil {
			return err
		}
		l.jobs = append(l.jobs, job{name, d.Describe(c), sc, d.SLO(), kept})
	}
	return nil
}

// pick returns the cells of the runs to show, by seed: those of each policy at
// one point; or, where there is one policy, of each value of the second axis.
func (l *loader) pick(d *sweep.Dir) (names []string, picked map[string][]*sweep.Cell, err error) {
	want, pinned, err := l.point(d)
	if err != nil {
		return nil, nil, err
	}
	second := len(d.Policies) == 1 && len(d.Axes) > 1 && !pinned[d.Axes[1].Key]
	picked = map[string][]*sweep.Cell{}
	for i := range d.Cells {
		c := &d.Cells[i]
		name, at := c.Policy, slices.Clone(want)
		if second {
			name, at[1] = c.Values[1], c.Values[1]
		}
		if !slices.Equal(c.Values, at) {
			continue
		}
		if picked[name] == nil {
			names = append(names, name)
		}
		picked[name] = append(picked[name], c)
	}
	return names, picked, nil
}

// kept is what the sweep kept of a run, by seed; nil: nothing.
func (l *loader) kept(d *sweep.Dir, name string, cells []*sweep.Cell) (*Run, error) {
	r := &Run{Name: name, Source: "sweep"}
	for _, c := range cells {
		cell, err := d.ReadCell(c)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, sweep.ErrBroken) {
			continue // the page says that cells are missing
		}
		if err != nil {
			return nil, err
		}
		r.What = strings.TrimSuffix(d.Describe(c), fmt.Sprintf(" seed=%d", c.Seed))
		r.Kept = append(r.Kept, cell)
		r.Seeds = append(r.Seeds, strconv.FormatUint(c.Seed, 10))
	}
	if len(r.Kept) == 0 {
		return nil, nil
	}
	r.What += fmt.Sprintf(", mean of %d seeds", len(r.Kept))
	return r, nil
}

// point returns the values of the axes at which runs are shown, and which keys
// the user gave.
func (l *loader) point(d *sweep.Dir) (want []string, pinned map[string]bool, err error) {
	used := map[string]bool{}
	pinned = map[string]bool{}
	for _, a := range d.Axes {
		v := a.Values[len(a.Values)/2]
		for key, at := range l.opt.At {
			f, err := scenario.Find(key)
			if err != nil {
				return nil, nil, err
			}
			if f.Key == a.Key {
				pinned[a.Key] = true
				if used[key] = true; !slices.Contains(a.Values, at) {
					return nil, nil, fmt.Errorf("%s has no run at %s %s; it has %s", d.Name, a.Leaf(), at, strings.Join(a.Values, ", "))
				}
				v = at
			}
		}
		want = append(want, v)
	}
	for key := range l.opt.At {
		if !used[key] {
			return nil, nil, fmt.Errorf("%s does not vary %s", d.Name, key)
		}
	}
	return want, pinned, nil
}
