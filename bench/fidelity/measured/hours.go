package measured

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lorasim/internal/table"
	"lorasim/internal/textfile"
	"lorasim/sim/profile"
	"lorasim/trace/lengths"
)

// HourSetup is the set-up of a run, as far as reports show it.
type HourSetup struct {
	Line    int    `json:"line"` // line of the table
	Use     string `json:"use"`
	Name    string `json:"run"`
	Model   string `json:"model"`
	Group   string `json:"group,omitempty"`
	Slots   int    `json:"max_loras"`
	MaxRank int    `json:"max_lora_rank"`
}

// Hour is one measured hour.
type Hour struct {
	HourSetup
	MaxSeqs int       // max_num_seqs
	Ranks   []int     // ranks of the adapters, in some order
	Rates   []float64 // requests/s of each adapter
	Window  float64   // length of the run, s

	PoolPrompt, PoolOutput float64 // mean tokens of the prompts drawn beforehand; 0: unknown

	InRate  float64 // prompt tokens/s
	Waiting float64 // mean number of waiting requests; NaN: unknown
	KVShare float64 // mean share of the KV cache in use; NaN: unknown

	Measured  Values
	Completed float64 // number of completed requests; NaN: unknown
	Arrivals  float64 // number of requests as recorded by the authors; NaN: unknown
}

// mostInTable bounds the counts of a run. It is far beyond any server.
const mostInTable = 100_000

// ReadHours reads a table of runs. name is the name of the file in errors.
func ReadHours(in io.Reader, name string) (runs []Hour, err error) {
	required := []string{
		"use", "run", "model", "max_loras", "max_lora_rank", "rates", "adapter_rate_index", "window_s",
		"successful_requests", "in_tok_s", "out_tok_s", "ttft_mean_ms", "ttft_median_ms", "tpot_mean_ms", "itl_mean_ms",
	}
	err = table.ReadCSV(in, name, required, func(t *table.CSVRow) {
		r := Hour{
			HourSetup: HourSetup{Line: t.Line, Use: t.Text("use"), Name: t.Text("run"), Model: t.Text("model"),
				Group: t.Text("group"),
				Slots: t.Count("max_loras", 1, mostInTable), MaxRank: t.Count("max_lora_rank", 1, mostInTable)},
			MaxSeqs: 256, Rates: adapterRates(t), Window: t.Positive("window_s"), Measured: Values{},
			InRate: t.Number("in_tok_s"), Waiting: t.Number("series_wait_mean"), KVShare: t.Number("series_kv_mean"),
			Completed: t.Number("successful_requests"), Arrivals: t.Number("twin_arrivals"),
		}
		if t.Has("max_num_seqs") {
			r.MaxSeqs = t.Count("max_num_seqs", 1, mostInTable)
		}
		for _, s := range strings.Fields(t.Text("module_ranks")) {
			rank, err := strconv.Atoi(s)
			if err != nil || rank < 1 || rank > r.MaxRank {
				t.Fail("module_ranks", "%q is not a rank from 1 to max_lora_rank (%d)", s, r.MaxRank)
			}
			r.Ranks = append(r.Ranks, rank)
		}
		if n := t.Number("pool_prompts"); n > 0 {
			r.PoolPrompt, r.PoolOutput = t.Number("pool_input_tokens")/n, t.Number("pool_output_tokens")/n
		}
		for m, v := range map[Metric]float64{
			Throughput: r.InRate + t.Number("out_tok_s"), TPOT: t.Number("tpot_mean_ms"), ITL: t.Number("itl_mean_ms"),
			TTFTMean: t.Number("ttft_mean_ms"), TTFTMedian: t.Number("ttft_median_ms"),
			Running: t.Number("series_run_mean"),
		} {
			if v > 0 {
				r.Measured[m] = v
			}
		}
		runs = append(runs, r)
	})
	return runs, err
}

// adapterRates returns the rates of the adapters. The column has one digit per adapter, an index into a
// list of rates.
func adapterRates(t *table.CSVRow) []float64 {
	var levels []float64
	for _, s := range strings.Fields(t.Text("rates")) {
		x, err := strconv.ParseFloat(s, 64)
		if err != nil || !(x >= 0 && x <= 1e6) {
			t.Fail("rates", "%q is not a rate of 0 to 10^6 requests/s", s)
		}
		levels = append(levels, x)
	}
	index := t.Text("adapter_rate_index")
	if len(index) == 0 || len(index) > mostInTable {
		t.Fail("adapter_rate_index", "has %d digits, expected 1 to %d, one for each adapter", len(index), mostInTable)
	}
	out := make([]float64, len(index))
	for i, digit := range []byte(index) {
		k := int(digit) - '0'
		if k < 0 || k >= len(levels) {
			t.Fail("adapter_rate_index", "digit %d is %q, expected an index into the %d rates", i+1, digit, len(levels))
			return nil
		}
		out[i] = levels[k]
	}
	return out
}

// HourTables is the measured KV cache sizes and load times of the servers, and the lengths of the
// prompts.
type HourTables struct {
	kv    map[string][]kvPoint   // by model; sorted by rank and slots
	loads map[string][]loadPoint // by model
	// prompt and output are the histograms of the lengths in the pool.
	prompt, output lengths.Marginal
}

// kvPoint is the size of the KV cache with adapter slots of a rank.
type kvPoint struct {
	slots, rank int
	tokens      float64
}

// loadPoint is the time of loads into slots of a rank.
type loadPoint struct {
	adapterRank, maxRank int
	hostMs, diskMs       float64
}

// Names of the files in a folder of tables.
const (
	kvFile      = "kv_capacity.csv"
	loadsFile   = "load_times.csv"
	lengthsFile = "sharegpt_hist.csv"
)

// ReadHourTables reads kv_capacity.csv, load_times.csv and sharegpt_hist.csv of a folder. Without
// sharegpt_hist.csv the built-in histograms apply. Without load_times.csv the load times of the
// profiles apply.
func ReadHourTables(ctx context.Context, dir string) (*HourTables, error) {
	t := &HourTables{kv: map[string][]kvPoint{}, loads: map[string][]loadPoint{}}
	read := func(file string, columns []string, f func(*table.CSVRow)) error {
		_, err := textfile.Read(ctx, filepath.Join(dir, file), func(in io.Reader, name string) (any, error) {
			return nil, table.ReadCSV(in, name, columns, f)
		})
		return err
	}
	err := read(kvFile, []string{"model", "slots", "rank", "kv_tokens"}, func(r *table.CSVRow) {
		model := r.Text("model")
		if tokens := r.Number("kv_tokens"); tokens > 0 { // 0: the server did not start
			t.kv[model] = append(t.kv[model], kvPoint{r.Count("slots", 0, mostInTable), r.Count("rank", 0,
				mostInTable), tokens})
		}
	})
	if err != nil {
		return nil, err
	}
	err = read(loadsFile, []string{"model", "adapter_rank", "max_lora_rank", "cpu_mean_ms", "disk_mean_rest_ms"},
		func(r *table.CSVRow) {
			model := r.Text("model")
			t.loads[model] = append(t.loads[model],
				loadPoint{r.Count("adapter_rank", 1, mostInTable), r.Count("max_lora_rank", 1, mostInTable),
					r.Positive("cpu_mean_ms"), r.Positive("disk_mean_rest_ms")})
		})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for model := range t.kv {
		t.kv[model] = mergeKV(t.kv[model])
	}
	histograms := filepath.Join(dir, lengthsFile)
	if _, err := os.Stat(histograms); err != nil {
		histograms = lengths.ShareGPTV3
	}
	t.prompt, t.output, err = lengths.ReadMarginals(ctx, histograms)
	return t, err
}

// mergeKV sorts points by rank and slots, and keeps the largest of those with the same rank and
// slots. The smaller ones come from servers with other data in the GPU's memory, far off the line
// of all other sizes. Without slots, sizes also differ by the limit on running requests; no run
// with adapters needs those.
func mergeKV(points []kvPoint) []kvPoint {
	slices.SortStableFunc(points, func(a, b kvPoint) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.slots, b.slots), cmp.Compare(b.tokens, a.tokens))
	})
	return slices.CompactFunc(points, func(a, b kvPoint) bool { return a.rank == b.rank && a.slots == b.slots })
}

// KVTokens returns the size of the KV cache of a model with slots of a rank, in tokens. It
// interpolates over the slots of that rank, or between the neighbouring ranks at the same slots x
// rank, as the weights grow with that product. It extrapolates linearly beyond the table.
func (t *HourTables) KVTokens(model string, slots, rank int) (int64, error) {
	points := t.kv[model]
	if len(points) == 0 {
		return 0, fmt.Errorf("%s has no KV capacity of %s", kvFile, model)
	}
	var ranks []int // ranks of the table with at least two sizes
	for i := 1; i < len(points); i++ {
		if r := points[i].rank; r > 0 && r == points[i-1].rank && !slices.Contains(ranks, r) {
			ranks = append(ranks, r)
		}
	}
	if len(ranks) == 0 {
		return 0, fmt.Errorf("%s has no rank of %s with two sizes of the KV cache", kvFile, model)
	}
	k, _ := slices.BinarySearch(ranks, rank)
	above := ranks[min(k, len(ranks)-1)]
	below := above
	if above > rank {
		below = ranks[max(k-1, 0)]
	}
	product := float64(slots) * float64(rank)
	tokens := along(points, below, product/float64(below))
	if above > below {
		f := float64(rank-below) / float64(above-below)
		tokens += f * (along(points, above, product/float64(above)) - tokens)
	}
	if tokens < 16 {
		return 0, fmt.Errorf("%d slots of rank %d leave no KV cache", slots, rank)
	}
	return int64(math.Round(tokens)), nil
}

// along interpolates between the sizes of a rank.
func along(points []kvPoint, rank int, slots float64) float64 {
	points = slices.DeleteFunc(slices.Clone(points), func(p kvPoint) bool { return p.rank != rank })
	k := 1
	for k < len(points)-1 && slots > float64(points[k].slots) {
		k++
	}
	a, b := points[k-1], points[k]
	return a.tokens + (slots-float64(a.slots))/float64(b.slots-a.slots)*(b.tokens-a.tokens)
}

// KVCurves returns the table of a model in the form of a profile. It leaves out sizes that exceed
// the size with fewer slots: those servers had other limits.
func (t *HourTables) KVCurves(model string) []profile.KVCurve {
	var out []profile.KVCurve
	for _, p := range t.kv[model] {
		if n := len(out); n > 0 && out[n-1].Rank == p.rank &&
			p.tokens > float64(out[n-1].Tokens[len(out[n-1].Tokens)-1]) {
			continue
		}
		if n := len(out); n == 0 || out[n-1].Rank != max(p.rank, 1) {
			out = append(out, profile.KVCurve{Rank: max(p.rank, 1)})
		}
		c := &out[len(out)-1]
		c.Slots, c.Tokens = append(c.Slots, p.slots), append(c.Tokens, int64(p.tokens))
	}
	return out
}

// Loads returns the times to load an adapter into a slot of its own rank, ms. host is the time from
// host memory, the mean over the ranks. disk is the time from disk, for each of ranks.
func (t *HourTables) Loads(model string) (host float64, ranks, disk []float64) {
	for _, p := range t.loads[model] {
		if p.adapterRank == p.maxRank {
			host += p.hostMs
			ranks, disk = append(ranks, float64(p.adapterRank)), append(disk, p.diskMs)
		}
	}
	return host / float64(max(len(ranks), 1)), ranks, disk
}

// load returns the mean times to load adapters of some ranks, ms: from host memory to slots of
// maxRank, and from disk to host memory. ok is false if nothing was measured. A rank that was not
// measured counts as the nearest measured one.
func (t *HourTables) load(model string, ranks []int, maxRank int) (host, disk float64, ok bool) {
	points := t.loads[model]
	if len(points) == 0 {
		return 0, 0, false
	}
	if len(ranks) == 0 {
		ranks = []int{maxRank}
	}
	for _, rank := range ranks {
		nearest := slices.MinFunc(points, func(a, b loadPoint) int {
			far := func(p loadPoint) int { return 1000*abs(p.maxRank-maxRank) + abs(p.adapterRank-rank) }
			return cmp.Compare(far(a), far(b))
		})
		host += nearest.hostMs / float64(len(ranks))
		disk += nearest.diskMs / float64(len(ranks))
	}
	return host, disk, true
}

func abs(n int) int { return max(n, -n) }
