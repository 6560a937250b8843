package vllmruns

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"lorasim/sim/profile"
	"lorasim/trace/lengths"
)

// Tables is what was measured of the servers beside the runs.
type Tables struct {
	kv    map[string][]kvPoint   // by model; sorted by rank and slots
	loads map[string][]loadPoint // by model
	// prompt and output are the histograms of the pool's lengths.
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

// Files of a folder of tables.
const (
	kvFile      = "kv_capacity.csv"
	loadsFile   = "load_times.csv"
	lengthsFile = "sharegpt_hist.csv"
)

// ReadTables reads kv_capacity.csv, load_times.csv and sharegpt_hist.csv of a
// folder. Without the last one the built-in histograms apply, without the load
// times those of the profiles.
func ReadTables(dir string) (*Tables, error) {
	t := &Tables{kv: map[string][]kvPoint{}, loads: map[string][]loadPoint{}}
	err := each(filepath.Join(dir, kvFile), []string{"model", "slots", "rank", "kv_tokens"}, func(row *table) {
		tokens := row.number("kv_tokens")
		if !(tokens > 0) {
			return // the server did not start
		}
		model := row.text("model")
		t.kv[model] = append(t.kv[model], kvPoint{row.count("slots", 0), row.count("rank", 0), tokens})
	})
	if err != nil {
		return nil, err
	}
	err = each(filepath.Join(dir, loadsFile), []string{"model", "adapter_rank", "max_lora_rank", "cpu_mean_ms", "disk_mean_rest_ms"}, func(row *table) {
		model := row.text("model")
		t.loads[model] = append(t.loads[model], loadPoint{
			row.count("adapter_rank", 1), row.count("max_lora_rank", 1), row.positive("cpu_mean_ms"), row.positive("disk_mean_rest_ms")})
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
	t.prompt, t.output, err = lengths.ReadMarginals(histograms)
	return t, err
}

// each reads a table row by row.
func each(path string, columns []string, f func(*table)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	t, err := newTable(file, path, columns...)
	if err != nil {
		return err
	}
	for t.next() {
		f(t)
	}
	return t.err
}

// mergeKV sorts points by rank and slots. Of several with the same it keeps the
// largest: the others are of servers that failed because something else was in
// the GPU's memory, far off the line on which all other sizes lie. Without slots
// they differ by the limit on running requests; no run with adapters needs those.
func mergeKV(points []kvPoint) []kvPoint {
	slices.SortStableFunc(points, func(a, b kvPoint) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.slots, b.slots), cmp.Compare(b.tokens, a.tokens))
	})
	return slices.CompactFunc(points, func(a, b kvPoint) bool { return a.rank == b.rank && a.slots == b.slots })
}

// kvTokens is the size of the KV cache with slots of a rank: along the slots of
// that rank, or between the neighbouring ranks at the same slots x rank, which
// is what the weights take. Beyond the table it goes on in a straight line.
func (t *Tables) kvTokens(model string, slots, rank int) (int64, error) {
	points := t.kv[model]
	if len(points) == 0 {
		return 0, fmt.Errorf("%s has no KV capacity of %s", kvFile, model)
	}
	below, above := -1, -1 // the nearest ranks of the table with at least two sizes
	for _, r := range ranksOf(points) {
		if r <= rank {
			below = r
		}
		if r >= rank && above < 0 {
			above = r
		}
	}
	if below < 0 && above < 0 {
		return 0, fmt.Errorf("%s has no rank of %s with two sizes of the KV cache", kvFile, model)
	}
	if below < 0 {
		below = above
	}
	if above < 0 {
		above = below
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

// KVTokens is the size of the KV cache of a model with slots of a rank.
func (t *Tables) KVTokens(model string, slots, rank int) (int64, error) {
	return t.kvTokens(model, slots, rank)
}

// KVCurves is the table of a model as a profile has it, without the sizes that
// exceed those with fewer slots: servers with other limits.
func (t *Tables) KVCurves(model string) []profile.KVCurve {
	var out []profile.KVCurve
	for _, p := range t.kv[model] {
		if n := len(out); n > 0 && out[n-1].Rank == p.rank && p.tokens > float64(out[n-1].Tokens[len(out[n-1].Tokens)-1]) {
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

// Loads is the time to bring an adapter to a slot of its own rank from host
// memory, mean over the ranks, and for each rank that from disk, ms.
func (t *Tables) Loads(model string) (host float64, ranks, disk []float64) {
	for _, p := range t.loads[model] {
		if p.adapterRank == p.maxRank {
			host += p.hostMs
			ranks, disk = append(ranks, float64(p.adapterRank)), append(disk, p.diskMs)
		}
	}
	return host / float64(max(len(ranks), 1)), ranks, disk
}

// ranksOf lists the ranks, ascending, that have two or more sizes.
func ranksOf(points []kvPoint) []int {
	var ranks []int
	for i := 1; i < len(points); i++ {
		if r := points[i].rank; r > 0 && r == points[i-1].rank && !slices.Contains(ranks, r) {
			ranks = append(ranks, r)
		}
	}
	return ranks
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

// load is the mean time to bring adapters of some ranks to slots of a rank from
// host memory, and from disk to host memory, ms; false where nothing was
// measured. A rank that was not measured counts as the nearest one.
func (t *Tables) load(model string, ranks []int, maxRank int) (host, disk float64, ok bool) {
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
