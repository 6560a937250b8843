package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"

	"lorasim/bench/scenario"
	"lorasim/internal/format"
	"lorasim/internal/parallel"
)

// The rates of a [Map], as multiples of the scenario's, and the popularities beside the scenario's own.
var (
	mapRates        = []float64{0.5, 0.75, 1, 1.25}
	mapPopularities = []string{"uniform", "zipf:0.8", "zipf:1.2", "zipf:1.6"}
)

// A Map is the least number of adapter slots of a worker with which no adapter starves, by popularity and rate. An
// adapter starves if its requests wait for half of their TTFT, and at least 0.1 s, for a slot or for a load, or behind
// such a request.
type Map struct {
	Slots int       `json:"slots"` // of the scenario
	Rates []float64 `json:"request_rates"`
	Rows  []Row     `json:"rows"`
	most  int
}

// A Row holds the cells of a popularity, one per rate.
type Row struct {
	Popularity string `json:"popularity"`
	Least      []int  `json:"least_slots"`
	// Full reports whether requests wait that long for full workers with Least slots.
	Full []bool `json:"full"`
}

// NewMap simulates a scenario with other popularities, rates, and numbers of slots. Its workload must be generated.
func NewMap(ctx context.Context, sc *scenario.Scenario, progress func(done, total int64)) (*Map, error) {
	res, err := sc.Simulate(ctx, scenario.RunOptions{})
	if err != nil {
		return nil, err
	}
	s := &res.Scenario
	if res.Meta.DatasetName != "synthetic" || len(s.Profiles) != 1 || s.Profiles[0].AdapterSlots == 0 {
		return nil, errors.New("--map needs a generated workload, and workers of one profile with adapter slots")
	}
	m := &Map{Slots: s.Profiles[0].AdapterSlots, most: s.Adapters}
	for _, x := range mapRates {
		m.Rates = append(m.Rates, x*sc.Workload.RequestRate)
	}
	own := sc.Workload.Popularity.String()
	list := []string{own}
	for _, p := range mapPopularities {
		if p != own {
			list = append(list, p)
		}
	}
	for _, p := range list {
		m.Rows = append(m.Rows, Row{Popularity: p, Least: make([]int, len(m.Rates)),
			Full: make([]bool, len(m.Rates))})
	}
	err = parallel.Do(ctx, len(m.Rows)*len(m.Rates), func(k int) (err error) {
		row, i := &m.Rows[k/len(m.Rates)], k%len(m.Rates)
		row.Least[i], row.Full[i], err = m.least(ctx, sc, row.Popularity, m.Rates[i])
		return err
	}, progress)
	return m, err
}

// least finds the least number of slots without starving adapters by bisection: more slots do not starve more. It
// reports whether the workers are full then.
func (m *Map) least(ctx context.Context, sc *scenario.Scenario, popularity string, rate float64) (int, bool, error) {
	changed := *sc
	if err := errors.Join(changed.Set("popularity", popularity),
		changed.Set("request_rate", strconv.FormatFloat(rate, 'g', -1, 64))); err != nil {
		return 0, false, err
	}
	w, err := changed.Collect(ctx)
	if err != nil {
		return 0, false, err
	}
	if w == nil {
		return 0, false, errTooLong
	}
	sizes := upTo(m.most)
	full := make([]bool, len(sizes))
	var failed error
	i := sort.Search(len(sizes)-1, func(i int) bool { // with a slot for each, none starves
		if failed != nil {
			return true
		}
		hungry, busy, err := starves(ctx, changed, w, sizes[i])
		failed, full[i] = err, busy
		return !hungry
	})
	if failed == nil && i == len(sizes)-1 {
		_, full[i], failed = starves(ctx, changed, w, sizes[i])
	}
	return sizes[i], full[i], failed
}

// upTo lists numbers of slots: 1, 2, 3, 4, 6, 8, 12, 16, ... and the largest.
func upTo(most int) (list []int) {
	for n := 1; n < most; n *= 2 {
		if list = append(list, n); n > 1 && n*3/2 < most {
			list = append(list, n*3/2)
		}
	}
	return append(list, most)
}

// starves reports whether an adapter starves with a number of slots, and whether one waits as long for full workers.
func starves(ctx context.Context, sc scenario.Scenario, w *scenario.Collected,
	slots int) (hungry, full bool, err error) {
	if err := sc.Set("max_loras_per_batch", strconv.Itoa(slots)); err != nil {
		return false, false, err
	}
	res, o, err := watch(ctx, &sc, w)
	if err != nil {
		return false, false, err
	}
	for _, a := range res.Extra.Adapters {
		long := func(causes ...int) bool {
			wait := 0.0
			for _, c := range causes {
				wait += 1000 * o.adapters[a.Index+1].causes[c] / float64(a.Requests)
			}
			return wait >= waitShare*a.MeanTTFT && wait >= slowWait
		}
		hungry = hungry || long(aSlot, aLoad, blockedHead)
		full = full || long(fullWorkers, routing)
	}
	return hungry, full, nil
}

// WriteText writes the map as a table.
func (m *Map) WriteText(w io.Writer) error {
	_, err := fmt.Fprintf(w, "Least adapter slots of a worker with which no adapter starves (the scenario has %d);\n"+
		"*: requests wait there for full workers.\n\n", m.Slots)
	if err != nil {
		return err
	}
	head := []string{"popularity"}
	for _, r := range m.Rates {
		head = append(head, fmt.Sprintf("%.3g/s", r))
	}
	rows := [][]string{head}
	for _, r := range m.Rows {
		row := []string{r.Popularity}
		for i, n := range r.Least {
			text := strconv.Itoa(n)
			if r.Full[i] {
				text += "*"
			}
			row = append(row, text)
		}
		rows = append(rows, row)
	}
	return format.Table(w, rows)
}
