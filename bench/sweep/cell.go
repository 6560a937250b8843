package sweep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/series"
	"lorasim/bench/sweep/frame"
	"lorasim/internal/atomicfile"
	"lorasim/trace"
)

// The file of a cell is a table of three columns: the name of a number, its
// place where the name stands for a list, and its value. Beside the numbers of
// Values there are the lists below.
const (
	e2eQuantiles    = "e2e_quantile_ms" // series.Quantiles+1 of them
	ttftQuantiles   = "ttft_quantile_ms"
	tpotQuantiles   = "tpot_quantile_ms"
	adapterRequests = "adapter_requests" // by adapter, -1: base model
	adapterE2E      = "adapter_mean_e2e_ms"
	adapterP99      = "adapter_p99_e2e_ms"
	adapterTTFT     = "adapter_mean_ttft_ms"
	workerRequests  = "worker_requests"
	workerBusy      = "worker_busy_share"
)

const (
	cellsDir = "cells"
	hashKey  = "lorasim.cell"
)

// simulate runs one cell. input is its workload, nil: it opens its own.
func (m *Manifest) simulate(ctx context.Context, c *Cell, input *scenario.Input) (*frame.Frame, error) {
	sc, err := m.ScenarioOf(c)
	if err != nil {
		return nil, err
	}
	lat := series.NewLatencies()
	res, err := sc.Simulate(ctx, scenario.RunOptions{
		SLO: m.SLO(), Input: input,
		Watch: func([]trace.Adapter) any { return lat },
	})
	if err != nil {
		return nil, err
	}
	return cellFrame(c, res, lat), nil
}

func cellFrame(c *Cell, res *result.Result, lat *series.Latencies) *frame.Frame {
	f := frame.New("name", frame.Text, "i", frame.Int, "value", frame.Float)
	f.Meta = [][2]string{{hashKey, c.Hash}, {"lorasim.schema", Schema}}
	for _, v := range Values(res) {
		f.Append(v.Name, 0, v.Value)
	}
	for _, q := range []struct {
		name   string
		values []float64
	}{
		{e2eQuantiles, series.QuantilesOf(lat.E2E)},
		{ttftQuantiles, series.QuantilesOf(lat.TTFT)},
		{tpotQuantiles, series.QuantilesOf(lat.TPOT)},
	} {
		for i, v := range q.values {
			f.Append(q.name, i, v)
		}
	}
	if res.Extra == nil {
		return f
	}
	for _, a := range res.Extra.Adapters {
		i := int(a.Index)
		f.Append(adapterRequests, i, float64(a.Requests))
		f.Append(adapterE2E, i, a.MeanE2E)
		f.Append(adapterP99, i, a.P99E2E)
		f.Append(adapterTTFT, i, a.MeanTTFT)
	}
	for i, w := range res.Extra.Workers {
		f.Append(workerRequests, i, float64(w.Requests))
		f.Append(workerBusy, i, w.Busy)
	}
	return f
}

// CellResult is what the file of a cell holds.
type CellResult struct {
	Values          []Value
	E2E, TTFT, TPOT []float64 // quantiles, ms
	Adapters        []CellAdapter
}

// CellAdapter is how an adapter fared in a cell.
type CellAdapter struct {
	Index           int
	Requests        float64
	E2E, P99E, TTFT float64 // ms
}

// Value returns the number with the given name; NaN if there is none.
func (r *CellResult) Value(name string) float64 {
	for _, v := range r.Values {
		if v.Name == name {
			return v.Value
		}
	}
	return math.NaN()
}

// parseCell reads what a cell's table holds.
func parseCell(f *frame.Frame, hash string) (*CellResult, error) {
	if got := f.MetaValue(hashKey); got != hash {
		return nil, fmt.Errorf("belongs to another cell (%q, expected %q)", got, hash)
	}
	names, err := f.Column("name", frame.Text)
	if err != nil {
		return nil, err
	}
	places, err := f.Column("i", frame.Int)
	if err != nil {
		return nil, err
	}
	values, err := f.Column("value", frame.Float)
	if err != nil {
		return nil, err
	}
	r := &CellResult{}
	adapter := func(i int64) *CellAdapter {
		if n := len(r.Adapters); n > 0 && r.Adapters[n-1].Index == int(i) {
			return &r.Adapters[n-1]
		}
		r.Adapters = append(r.Adapters, CellAdapter{Index: int(i)})
		return &r.Adapters[len(r.Adapters)-1]
	}
	for row, name := range names.Texts {
		v, i := values.Floats[row], places.Ints[row]
		switch name {
		case e2eQuantiles:
			r.E2E = append(r.E2E, v)
		case ttftQuantiles:
			r.TTFT = append(r.TTFT, v)
		case tpotQuantiles:
			r.TPOT = append(r.TPOT, v)
		case adapterRequests:
			adapter(i).Requests = v
		case adapterE2E:
			adapter(i).E2E = v
		case adapterP99:
			adapter(i).P99E = v
		case adapterTTFT:
			adapter(i).TTFT = v
		case workerRequests, workerBusy:
		default:
			r.Values = append(r.Values, Value{name, v})
		}
	}
	return r, nil
}

// failure is the file of a cell that failed.
type failure struct {
	Index int    `json:"index"`
	Hash  string `json:"hash"`
	Error string `json:"error"`
}

// The files of a cell are named by its hash: it stays as a sweep grows, while the
// index does not.
func (d *Dir) cellPath(c *Cell) string {
	return filepath.Join(d.Path, cellsDir, c.Hash+".parquet")
}

func (d *Dir) failurePath(c *Cell) string {
	return filepath.Join(d.Path, cellsDir, c.Hash+".failed.json")
}

// ErrBroken is an error of [Dir.ReadCell]: the file is there, but not what it
// should be. Running the sweep again replaces it.
var ErrBroken = errors.New("broken file of a cell")

// ReadCell reads the file of a cell; fs.ErrNotExist if it has not run.
func (d *Dir) ReadCell(c *Cell) (*CellResult, error) {
	path := d.cellPath(c)
	f, err := frame.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var r *CellResult
	if err == nil {
		if r, err = parseCell(f, c.Hash); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return r, nil
}

// State is how far a cell is.
type State uint8

// The states.
const (
	Missing State = iota
	Done
	Failed
	Broken // there is a file, but it cannot be read
)

// look reads the file of a cell; a message comes with those failed and broken.
func (d *Dir) look(c *Cell) (State, *CellResult, string) {
	r, err := d.ReadCell(c)
	if err == nil {
		return Done, r, ""
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return Broken, nil, err.Error()
	}
	var f failure
	if data, err := os.ReadFile(d.failurePath(c)); err != nil || json.Unmarshal(data, &f) != nil || f.Hash != c.Hash {
		return Missing, nil, "" // or nonsense: run it again
	}
	return Failed, nil, f.Error
}

func (d *Dir) writeFailure(c *Cell, failed error) error {
	data, err := json.Marshal(failure{c.Index, c.Hash, failed.Error()})
	if err != nil {
		return err
	}
	return atomicfile.Write(d.failurePath(c), func(f *atomicfile.File) error {
		_, err := f.Write(append(data, '\n'))
		return err
	})
}
