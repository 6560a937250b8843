package sweep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"

	"lorasim/bench/result"
	"lorasim/bench/result/series"
	"lorasim/bench/steady"
	"lorasim/internal/table"
	"lorasim/internal/textfile"
	"lorasim/trace"
)

// CellResult is the content of a cell's file.
type CellResult struct {
	Values          []result.Value
	E2E, TTFT, TPOT []float64 // quantiles, ms
	Adapters        []CellAdapter
}

// CellAdapter holds the metrics of one adapter in a cell.
type CellAdapter struct {
	Index           int // -1: base model
	Requests        float64
	E2E, P99E, TTFT float64 // ms
}

// The file of a cell is a table of three columns: the name of a number, its
// place where the name stands for a list, and its value. Beside the numbers of
// Values there are lists: of quantiles, by adapter and by worker.
var (
	quantileNames = []string{"e2e_quantile_ms", "ttft_quantile_ms", "tpot_quantile_ms"}
	adapterNames  = []string{"adapter_requests", "adapter_mean_e2e_ms", "adapter_p99_e2e_ms", "adapter_mean_ttft_ms"}
	workerNames   = []string{"worker_requests", "worker_busy_share"}
)

// cellRow is a row of the file of a cell.
type cellRow struct {
	name  string
	i     int64
	value float64
}

func (r *cellRow) columns() []table.Column {
	return []table.Column{
		{Name: "name", Value: &r.name, Nullable: true}, {Name: "i", Value: &r.i, Nullable: true},
		{Name: "value", Value: &r.value, Nullable: true},
	}
}

// writeTable writes a file of rows, which the columns hold whenever rows calls
// write. Cells may be absent.
func (d *Dir) writeTable(path string, columns []table.Column, meta [][2]string,
	rows func(write func() error) error) error {
	for i := range columns {
		columns[i].Nullable = true
	}
	w, err := table.Create(path, columns, table.Options{Meta: meta, Files: table.Files(d.base.Files)})
	if err != nil {
		return err
	}
	defer w.Abort()
	if err := rows(w.Write); err != nil {
		return err
	}
	return w.Close()
}

func (d *Dir) writeCell(c *Cell, res *result.Result, lat *series.Latencies) error {
	var row cellRow
	meta := [][2]string{{hashKey, c.Hash}, {"lorasim.schema", schema}}
	return d.writeTable(d.cellPath(c), row.columns(), meta, func(write func() error) (err error) {
		add := func(name string, i int, value float64) {
			if err == nil {
				row = cellRow{name, int64(i), value}
				err = write()
			}
		}
		for _, v := range result.Values(res) {
			add(v.Name, 0, v.Value)
		}
		for k, h := range []*result.Histogram{lat.E2E, lat.TTFT, lat.TPOT} {
			for i, v := range series.QuantilesOf(h) {
				add(quantileNames[k], i, v)
			}
		}
		if res.Extra == nil {
			return err
		}
		for _, a := range res.Extra.Adapters {
			for k, v := range []float64{float64(a.Requests), a.MeanE2E, a.P99E2E, a.MeanTTFT} {
				add(adapterNames[k], int(a.Index), v)
			}
		}
		for i, w := range res.Extra.Workers {
			add(workerNames[0], i, float64(w.Requests))
			add(workerNames[1], i, w.Busy)
		}
		return err
	})
}

// State returns the state of the run; "": unknown, as in sweeps of older versions.
func (r *CellResult) State() steady.State {
	if x := r.Value(result.SteadyStateName); !math.IsNaN(x) {
		return result.StateOf(x)
	}
	return ""
}

// Value returns the number with the given name; NaN if there is none.
func (r *CellResult) Value(name string) float64 { return result.ValueOf(r.Values, name) }

func (r *CellResult) add(row cellRow) {
	if k := slices.Index(quantileNames, row.name); k >= 0 {
		list := []*[]float64{&r.E2E, &r.TTFT, &r.TPOT}[k]
		*list = append(*list, row.value)
	} else if k := slices.Index(adapterNames, row.name); k >= 0 {
		if n := len(r.Adapters); n == 0 || r.Adapters[n-1].Index != int(row.i) {
			r.Adapters = append(r.Adapters, CellAdapter{Index: int(row.i)})
		}
		a := &r.Adapters[len(r.Adapters)-1]
		*[]*float64{&a.Requests, &a.E2E, &a.P99E, &a.TTFT}[k] = row.value
	} else if !slices.Contains(workerNames, row.name) {
		r.Values = append(r.Values, result.Value{Name: row.name, Value: row.value})
	}
}

// The files of a cell are named by its hash: it stays as a sweep grows, while the
// index does not.
func (d *Dir) cellPath(c *Cell) string { return filepath.Join(d.Path, cellsDir, c.Hash+".parquet") }

func (d *Dir) failurePath(c *Cell) string {
	return filepath.Join(d.Path, cellsDir, c.Hash+".failed.json")
}

// ErrBroken is the error of [Dir.ReadCell] for a file that exists but is invalid. The next run of the sweep replaces
// the file.
var ErrBroken = errors.New("broken file of a cell")

// ReadCell reads the file of a cell, or of a cell with the same result by [Manifest.Runs]. The error is fs.ErrNotExist
// if none of them has run.
func (d *Dir) ReadCell(c *Cell) (*CellResult, error) {
	r, err := d.readOwn(c)
	for _, i := range d.sharing(c) {
		if err == nil {
			break
		}
		// the first file that is broken is the error
		if other, e := d.readOwn(&d.Cells[i]); e == nil || errors.Is(err, fs.ErrNotExist) {
			r, err = other, e
		}
	}
	return r, err
}

func (d *Dir) readOwn(c *Cell) (*CellResult, error) {
	r, err := readCell(d.base.Files, d.cellPath(c), c.Hash)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return r, err
}

func readCell(files trace.Files, path, hash string) (*CellResult, error) {
	var row cellRow
	file, err := table.Open(context.Background(), path, row.columns(), table.Options{Files: table.Files(files)})
	if err != nil {
		return nil, err
	}
	defer file.Close()
	got := ""
	for _, pair := range file.Meta() {
		if pair[0] == hashKey {
			got = pair[1]
		}
	}
	if got != hash {
		return nil, fmt.Errorf("%s: belongs to another cell (%q, expected %q)", path, got, hash)
	}
	r := &CellResult{}
	for err = file.Read(); err == nil; err = file.Read() {
		r.add(row)
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return r, nil
}

// failure is the file of a cell that failed.
type failure struct {
	Index int    `json:"index"`
	Hash  string `json:"hash"`
	Error string `json:"error"`
}

func (d *Dir) writeFailure(c *Cell, failed error) error {
	data, err := json.Marshal(failure{c.Index, c.Hash, failed.Error()})
	if err != nil {
		return err
	}
	return writeFile(d.failurePath(c), append(data, '\n'))
}

// look reads the file of a finished cell, or the reason of a failure. broken means that a file cannot be read. A cell
// with neither file is missing.
func (d *Dir) look(c *Cell) (r *CellResult, failed *FailedCell, broken bool) {
	r, err := d.ReadCell(c)
	if err == nil {
		return r, nil, false
	}
	reason := err.Error()
	if broken = !errors.Is(err, fs.ErrNotExist); !broken {
		if reason = d.readFailure(c); reason == "" {
			return nil, nil, false
		}
	}
	return nil, &FailedCell{c.Index, d.Describe(c), reason}, broken
}

// readFailure returns the reason why a cell failed, or a cell with the same result. It returns "" if neither failed or
// the file is invalid; the cell then runs again.
func (d *Dir) readFailure(c *Cell) string {
	for _, i := range append([]int{c.Index}, d.sharing(c)...) {
		var f failure
		data, err := textfile.ReadRegular(d.failurePath(&d.Cells[i]), textfile.MaxSettings)
		if err == nil && json.Unmarshal(data, &f) == nil && f.Hash == d.Cells[i].Hash {
			return f.Error
		}
	}
	return ""
}
