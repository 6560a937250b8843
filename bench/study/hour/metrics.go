package hour

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"lorasim/internal/textfile"
	"lorasim/router/promtext"
)

// Metrics are what a fleet's servers export in some time: answers of Prometheus to range queries, or single scrapes.
type Metrics struct {
	Files  []string
	series []*series
	index  map[string]*series
	scrape map[string][]float64 // times of the scrapes of each target; nil: not computed yet
}

// series is the values of a metric of one target.
type series struct {
	name   string // __name__; with _bucket, _sum and _count for the parts of histograms
	target string // instance label; of a scrape: the name of its file without the time
	labels map[string]string
	points []point // by time
}

// point is a value at a time, s since 1970; 0: unknown.
type point struct{ at, value float64 }

const (
	maxMetrics = 256 << 20 // bytes of a file
	maxPoints  = 20_000_000
	maxFiles   = 100_000 // scrapes
	maxTime    = 9e9     // s since 1970
)

// IsMetrics reports whether a file has metrics: JSON of a range query, or a scrape. A folder has scrapes.
func IsMetrics(ctx context.Context, path string) (bool, error) {
	if st, err := os.Stat(path); err != nil || st.IsDir() {
		return err == nil, err
	}
	f, err := textfile.OpenText(ctx, nil, path, nil)
	if err != nil {
		return false, err
	}
	defer f.Close()
	head := make([]byte, 1<<12)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	return looksLikeMetrics(head[:n]), nil
}

var sample = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*(\{[^\n]*\})? [-+0-9NIni]`)

func looksLikeMetrics(head []byte) bool {
	head = bytes.TrimLeft(head, " \t\r\n\ufeff")
	switch {
	case bytes.HasPrefix(head, []byte("{")):
		return bytes.Contains(head, []byte(`"resultType"`)) || bytes.Contains(head, []byte(`"errorType"`))
	case bytes.HasPrefix(head, []byte("# HELP ")), bytes.HasPrefix(head, []byte("# TYPE ")):
		return true
	}
	return sample.Match(head)
}

// ReadMetrics reads files of metrics, and the scrapes of folders.
func ReadMetrics(ctx context.Context, paths []string) (*Metrics, error) {
	m := &Metrics{index: map[string]*series{}}
	for _, path := range paths {
		files := []string{path}
		if st, err := os.Stat(path); err == nil && st.IsDir() {
			if files, err = scrapesOf(path); err != nil {
				return nil, err
			}
		}
		for _, file := range files {
			if err := m.readFile(ctx, file); err != nil {
				return nil, err
			}
		}
	}
	if m.sort(); len(m.series) == 0 {
		return nil, fmt.Errorf("%s: no values, expected metrics of vllm, sglang or lorasim gateway", paths[0])
	}
	return m, nil
}

// sort sorts the values by time.
func (m *Metrics) sort() {
	for _, s := range m.series {
		slices.SortStableFunc(s.points, func(a, b point) int { return cmp.Compare(a.at, b.at) })
	}
}

// scrapesOf lists the files of a folder.
func scrapesOf(folder string) (files []string, err error) {
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, path)
		}
		if len(files) > maxFiles {
			return fmt.Errorf("%s: more than %d files", folder, maxFiles)
		}
		return err
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s: the folder has no files, expected scrapes named TARGET-EPOCH.txt", folder)
	}
	return files, err
}

func (m *Metrics) readFile(ctx context.Context, path string) error {
	f, err := textfile.OpenText(ctx, nil, path, nil)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := textfile.ReadAll(f, path, maxMetrics)
	if err != nil {
		return err
	}
	m.Files = append(m.Files, path)
	if bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n\ufeff"), []byte("{")) {
		err = m.addQuery(text)
	} else {
		target, at := scrapeName(path)
		err = m.addScrape(text, target, at)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// epoch is the time in the name of a scrape: seconds, perhaps with a fraction, or milliseconds since 1970.
var epoch = regexp.MustCompile(`[-_.]?(\d{10}(?:\.\d{1,9})?|\d{13})(\.[a-z]+)*$`)

// scrapeName returns the target and the time in the name of a scrape: gpu0-1772373600.txt, or gpu0/1772373600.txt.
func scrapeName(path string) (target string, at float64) {
	base := filepath.Base(path)
	m := epoch.FindStringSubmatchIndex(base)
	if m == nil {
		return base[:len(base)-len(filepath.Ext(base))], 0
	}
	at, _ = strconv.ParseFloat(base[m[2]:m[3]], 64)
	if m[3]-m[2] == 13 {
		at /= 1000
	}
	if target = base[:m[0]]; target == "" {
		target = filepath.Base(filepath.Dir(path))
	}
	return target, at
}

// add adds a value.
func (m *Metrics) add(name, target string, labels map[string]string, p point) error {
	if math.IsNaN(p.value) || math.IsInf(p.value, 0) {
		return nil
	}
	if !(p.at >= 0 && p.at < maxTime) {
		return fmt.Errorf("metric %s: the time %g s since 1970 is out of range", name, p.at)
	}
	key := name + "\x00" + target
	for _, l := range slices.Sorted(maps.Keys(labels)) {
		key += "\x00" + l + "\x00" + labels[l]
	}
	s := m.index[key]
	if s == nil {
		s = &series{name: name, target: target, labels: labels}
		m.index[key] = s
		m.series = append(m.series, s)
	}
	if len(s.points) == maxPoints {
		return fmt.Errorf("metric %s has more than %d values", name, maxPoints)
	}
	s.points = append(s.points, p)
	return nil
}

// sampleAt is a value of a range query, [time, "value"].
type sampleAt point

// UnmarshalJSON implements json.Unmarshaler.
func (s *sampleAt) UnmarshalJSON(text []byte) (err error) {
	var value string
	pair := []any{&s.at, &value}
	if err = json.Unmarshal(text, &pair); err == nil && len(pair) != 2 {
		err = fmt.Errorf("%s: expected a time and a value", text)
	}
	if err == nil {
		s.value, err = strconv.ParseFloat(value, 64)
	}
	return err
}

// addQuery adds the answer of Prometheus to a range query (/api/v1/query_range).
func (m *Metrics) addQuery(text []byte) error {
	var answer struct {
		Status, ErrorType, Error string
		Data                     struct {
			ResultType string
			Result     json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("not an answer of Prometheus: %w", err)
	}
	switch {
	case answer.Status == "error":
		return fmt.Errorf("the answer of Prometheus is an error: %s: %s", answer.ErrorType, answer.Error)
	case answer.Data.ResultType != "matrix":
		return fmt.Errorf("resultType is %q, expected matrix: the answer to /api/v1/query_range",
			answer.Data.ResultType)
	}
	var result []struct {
		Metric map[string]string
		Values []sampleAt
	}
	if err := json.Unmarshal(answer.Data.Result, &result); err != nil {
		return fmt.Errorf("the result is no matrix: %w", err)
	}
	for i, s := range result {
		labels, name, target := map[string]string{}, "", ""
		for k, v := range s.Metric {
			switch k {
			case "__name__":
				name = v
			case "instance":
				target = v
			default:
				labels[k] = v
			}
		}
		if name == "" {
			return fmt.Errorf("series %d %v has no __name__: query the metrics themselves, without rate or sum", i,
				s.Metric)
		}
		for _, v := range s.Values {
			if err := m.add(name, target, labels, point(v)); err != nil {
				return err
			}
		}
	}
	return nil
}

// addScrape adds the text that a target exports.
func (m *Metrics) addScrape(text []byte, target string, at float64) error {
	families, err := promtext.Parse(string(text))
	if err != nil {
		return err
	}
	for _, name := range families.Names() {
		for _, x := range families[name] {
			if err := m.addSample(name, target, at, x); err != nil {
				return err
			}
		}
	}
	return nil
}

// addSample adds a sample of a scrape. A histogram becomes the series that Prometheus stores.
func (m *Metrics) addSample(name, target string, at float64, x *promtext.Metric) error {
	labels := map[string]string{}
	for _, l := range x.Labels {
		labels[l.Name] = l.Value
	}
	if x.Time != 0 {
		at = float64(x.Time) / 1000
	}
	put := func(suffix string, of map[string]string, v float64) error {
		return m.add(name+suffix, target, of, point{at, v})
	}
	switch x.Type {
	case promtext.Histogram, promtext.GaugeHistogram:
		err := cmp.Or(put("_count", labels, x.Count), put("_sum", labels, x.Sum))
		for _, b := range x.Buckets {
			of := maps.Clone(labels)
			of["le"] = strconv.FormatFloat(b.Bound, 'g', -1, 64)
			err = cmp.Or(err, put("_bucket", of, b.Count))
		}
		return err
	case promtext.Summary: // which no engine exports about requests
		return nil
	}
	return put("", labels, x.Value)
}

// Facts are what engines state about themselves.
type Facts struct {
	Engine   string `json:"engine"` // vllm or sglang
	Workers  int    `json:"workers"`
	Slots    int    `json:"slots,omitempty"`
	KVTokens int64  `json:"kv_tokens,omitempty"`
	// Running is the largest number of running requests of a worker. Full says that it is the worker's limit: it was
	// there repeatedly while other requests waited and the KV cache had room.
	Running int  `json:"max_running"`
	Full    bool `json:"running_limited"`
	// InFlight is the mean number of running and waiting requests of all workers; NaN: the times are unknown.
	InFlight float64 `json:"-"`
}

// engineNames are the names of an engine's metrics.
type engineNames struct{ engine, running, waiting, kv string }

var engines = []engineNames{
	{"vllm", "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"},
	{"sglang", "sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage"},
}

// Facts returns what the engines state. from and until, s since 1970, limit the requests in flight.
func (m *Metrics) Facts(from, until float64) (f Facts, err error) {
	f.InFlight = math.NaN()
	var names engineNames
	targets := map[string]bool{}
	for _, e := range engines {
		of := m.targets(e.running)
		if len(of) > 0 && len(targets) > 0 {
			return f, errors.New("the metrics are of vllm and sglang workers: expected workers of one engine")
		}
		if len(of) > 0 {
			names, targets = e, of
		}
	}
	f.Engine, f.Workers = names.engine, len(targets)
	if f.Workers == 0 {
		return f, errors.New("no metrics of engines (vllm:num_requests_running or sglang:num_running_reqs): " +
			"scrape the workers, too")
	}
	slots := m.stated("sglang:lora_pool_slots_total", value)
	kv := m.stated("sglang:max_total_num_tokens", value)
	if f.Engine == "vllm" {
		slots = m.stated("vllm:lora_requests_info", func(s *series) float64 { return s.number("max_lora") })
		kv = m.stated("vllm:cache_config_info", func(s *series) float64 {
			return s.number("num_gpu_blocks") * s.number("block_size")
		})
	}
	n, err := alike("adapter slots", slots)
	if err != nil {
		return f, err
	}
	tokens, err := alike("tokens of KV cache", kv)
	if err != nil {
		return f, err
	}
	f.Slots, f.KVTokens = int(n), int64(tokens)
	m.load(&f, names, from, until)
	return f, nil
}

func value(s *series) float64 { return s.points[len(s.points)-1].value }

// number is a label as a number; 0: it is none.
func (s *series) number(label string) float64 {
	x, err := strconv.ParseFloat(s.labels[label], 64)
	if err != nil || !(x > 0 && x < 1e12) {
		return 0
	}
	return x
}

// targets lists the targets that export a metric.
func (m *Metrics) targets(name string) map[string]bool {
	of := map[string]bool{}
	for _, s := range m.series {
		if s.name == name {
			of[s.target] = true
		}
	}
	return of
}

// stated returns what each target states in a metric; the largest of its series.
func (m *Metrics) stated(name string, of func(*series) float64) map[string]float64 {
	list := map[string]float64{}
	for _, s := range m.series {
		if s.name == name {
			list[s.target] = max(list[s.target], of(s))
		}
	}
	return list
}

// alike returns the value that all targets state; 0: none states one.
func alike(what string, stated map[string]float64) (x float64, err error) {
	first := ""
	for _, target := range slices.Sorted(maps.Keys(stated)) {
		v := stated[target]
		switch {
		case v <= 0:
		case x == 0:
			x, first = v, target
		case math.Abs(v/x-1) > 0.05:
			return 0, fmt.Errorf("worker %s has %.0f %s, and %s has %.0f: expected workers of one kind", first, x, what,
				target, v)
		default:
			x = min(x, v)
		}
	}
	return x, nil
}

// load finds the requests in flight and the limit of running requests.
func (m *Metrics) load(f *Facts, names engineNames, from, until float64) {
	type key struct {
		target string
		at     float64
	}
	at := map[key]*[3]float64{}
	timed := false
	for _, s := range m.series {
		i := slices.Index([]string{names.running, names.waiting, names.kv}, s.name)
		if i < 0 {
			continue
		}
		for _, p := range s.points {
			timed = timed || p.at > 0
			if p.at > 0 && (p.at < from || p.at > until) {
				continue
			}
			k := key{s.target, p.at}
			if at[k] == nil {
				at[k] = &[3]float64{}
			}
			at[k][i] += p.value
		}
	}
	sums, counts := map[string]float64{}, map[string]float64{}
	full, waited := map[int]int{}, 0
	for k, v := range at {
		sums[k.target] += v[0] + v[1]
		counts[k.target]++
		f.Running = max(f.Running, int(v[0]))
		if v[1] > 0 && v[2] < 0.9 {
			full[int(v[0])]++
			waited++
		}
	}
	const often, share = 5, 0.3
	f.Full = full[f.Running] >= often && float64(full[f.Running]) >= share*float64(waited)
	if timed {
		f.InFlight = 0
		for _, target := range slices.Sorted(maps.Keys(sums)) {
			f.InFlight += sums[target] / counts[target]
		}
	}
}
