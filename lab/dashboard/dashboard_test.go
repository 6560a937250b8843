// Package dashboard holds docs/dashboard.json, a Grafana dashboard, against scrapes of lorasim gateway, with and
// without --ext-proc,
// under load. Prometheus' own parser reads the scrapes and its own engine runs every query.
package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// file is the dashboard.
const file = "../../docs/dashboard.json"

// panel is what the tests read of a panel.
type panel struct {
	ID      int    `json:"id"`
	Type    string `json:"type"`
	Title   string `json:"title"`
	GridPos struct {
		H, W, X, Y int
	} `json:"gridPos"`
	Targets []struct {
		Expr   string `json:"expr"`
		Legend string `json:"legendFormat"`
	} `json:"targets"`
}

// readDashboard reads the panels.
func readDashboard(t *testing.T) []panel {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []panel `json:"panels"`
	}
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return d.Panels
}

// Panels have ids of their own and do not overlap.
func TestLayout(t *testing.T) {
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range readDashboard(t) {
		if ids[p.ID] {
			t.Errorf("panel %q: id %d is another panel's, too", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if before := cells[[2]int{x, y}]; before != "" || x >= 24 {
					t.Fatalf("panel %q is over panel %q at %d, %d, or beyond column 24", p.Title, before, x, y)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
	}
}

// Each query of the dashboard parses, and has values on scrapes of the gateway and of epp under load.
func TestQueries(t *testing.T) {
	for component, start := range map[string]func(*testing.T) *target{"gateway": startGateway, "epp": startEPP} {
		t.Run(component, func(t *testing.T) {
			s := newStore(t)
			s.watch(start(t))
			queries := 0
			for _, p := range readDashboard(t) {
				for _, q := range p.Targets {
					queries++
					if err := s.run(component, q.Expr, q.Legend); err != nil {
						t.Errorf("panel %q: %v", p.Title, err)
					}
				}
			}
			if queries < 30 {
				t.Errorf("%d queries, expected dozens", queries)
			}
			for _, wrong := range []struct{ expr, legend, want string }{
				{"rate(lorasim_${component}_nothing_total[$__rate_interval])", "", "no value"},
				{"sum(rate(lorasim_${component}_requests_total[$__rate_interval])", "", "parse"},
				{"sum by (worker) (lorasim_${component}_worker_up)", "{{adapter}}", "no label adapter"},
				{"rate(lorasim_${component}_worker_up[$__rate_interval])", "", "counter"},
				{"lorasim_$other_requests_total", "", "variable"},
			} {
				if err := s.run(component, wrong.expr, wrong.legend); err == nil ||
					!strings.Contains(err.Error(), wrong.want) {
					t.Errorf("%s: %v, expected an error with %q", wrong.expr, err, wrong.want)
				}
			}
		})
	}
}

// store is what a Prometheus has of the scrapes, and its query engine.
type store struct {
	t      *testing.T
	series map[string]*promql.Series // by their labels
	engine *promql.Engine
	now    time.Time // of the latest scrape
}

func newStore(t *testing.T) *store {
	return &store{t: t, series: map[string]*promql.Series{}, now: time.Now().Truncate(time.Second),
		engine: promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute,
			LookbackDelta: 5 * time.Minute})}
}

// find are the series that all matchers match, as a query reads them.
func (s *store) find(matchers []*labels.Matcher) storage.SeriesSet {
	found := &seriesSet{}
	for _, name := range slices.Sorted(maps.Keys(s.series)) {
		series := s.series[name]
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool {
			return !m.Matches(series.Metric.Get(m.Name))
		}) {
			found.rest = append(found.rest, *series)
		}
	}
	return found
}

// seriesSet goes through series.
type seriesSet struct {
	at   promql.Series
	rest []promql.Series
}

func (s *seriesSet) Next() bool {
	if len(s.rest) == 0 {
		return false
	}
	s.at, s.rest = s.rest[0], s.rest[1:]
	return true
}

func (s *seriesSet) At() storage.Series                { return promql.NewStorageSeries(s.at) }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

const (
	interval = 15 * time.Second // between scrapes
	scrapes  = 5
	window   = "1m" // of rates
)

// watch scrapes a target again and again under load. The time between scrapes is stated, not waited for.
func (s *store) watch(to *target) {
	s.t.Helper()
	for range scrapes {
		to.load()
		s.now = s.now.Add(interval)
		if err := s.add(to.scrape()); err != nil {
			s.t.Fatal(err)
		}
	}
}

// add takes in a page of metrics.
func (s *store) add(text []byte, contentType string) error {
	p, err := textparse.New(text, contentType, labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		return err
	}
	now := s.now.UnixMilli()
	for {
		kind, err := p.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("scrape: %w", err)
		}
		if kind != textparse.EntrySeries {
			continue
		}
		_, _, value := p.Series()
		var of labels.Labels
		p.Labels(&of)
		with := labels.NewBuilder(of).Set("job", "lorasim").Set("instance", "localhost:9000").Labels()
		series := s.series[with.String()]
		if series == nil {
			series = &promql.Series{Metric: with}
			s.series[with.String()] = series
		}
		if n := len(series.Floats); n > 0 && series.Floats[n-1].T >= now {
			return fmt.Errorf("%s: twice in one scrape", of)
		}
		series.Floats = append(series.Floats, promql.FPoint{T: now, F: value})
	}
}

var (
	variable = regexp.MustCompile(`\$\{?\w+`)
	legends  = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)
)

// run runs a query of the dashboard over the time of the scrapes.
func (s *store) run(component, expr, legend string) error {
	query := strings.NewReplacer("${component}", component, "$__rate_interval", window).Replace(expr)
	if v := variable.FindString(query); v != "" {
		return fmt.Errorf("%s: a variable without a value: %s", expr, v)
	}
	ctx := context.Background()
	from := &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			return s.find(matchers)
		}}}
	q, err := s.engine.NewRangeQuery(ctx, from, nil, query, s.now.Add(-interval), s.now, interval)
	if err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	defer q.Close()
	result := q.Exec(ctx)
	if result.Err != nil {
		return fmt.Errorf("%s: %w", query, result.Err)
	}
	for _, w := range result.Warnings.AsErrors() {
		return fmt.Errorf("%s: %w", query, w)
	}
	matrix, err := result.Matrix()
	if err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	values := 0
	for _, series := range matrix {
		for _, m := range legends.FindAllStringSubmatch(legend, -1) {
			if !series.Metric.Has(m[1]) {
				return fmt.Errorf("%s: the legend %q: no label %s in %s", query, legend, m[1], series.Metric)
			}
		}
		for _, f := range series.Floats {
			if !math.IsNaN(f.F) && !math.IsInf(f.F, 0) {
				values++
			}
		}
	}
	if values == 0 {
		return fmt.Errorf("%s: no value", query)
	}
	return nil
}
