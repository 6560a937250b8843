package sweep

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/series"
	"lorasim/bench/steady"
	"lorasim/internal/atomicfile"
	"lorasim/internal/format"
	"lorasim/internal/table"
)

// Dir is a folder with a sweep: its manifest, one file for each cell in cells/,
// and the merged tables.
type Dir struct {
	Path string
	*Manifest
}

const (
	manifestFile = "manifest.json"
	cellsDir     = "cells"
	hashKey      = "lorasim.cell" // what the file of a cell says of itself
)

// Create puts a planned sweep into a folder. If the folder holds a sweep already
// that differs in policies, seeds and values alone, that is gone on with: the
// manifest then has those of both, and cells that are done stay so. If it holds
// another one, that is an error that tells what differs.
func Create(path string, m *Manifest) (*Dir, error) {
	if err := m.moveTo(path); err != nil {
		return nil, err
	}
	if IsDir(path) {
		old, err := Open(path)
		if err != nil {
			return nil, err
		}
		if err := m.grow(old.Manifest); err != nil {
			return nil, fmt.Errorf("%s holds another sweep: %w; choose another folder, or remove it to begin again", path, err)
		}
	}
	if err := os.MkdirAll(filepath.Join(path, cellsDir), 0o755); err != nil {
		return nil, err
	}
	var data bytes.Buffer
	if err := format.JSON(&data, m, " "); err != nil {
		return nil, err
	}
	file := filepath.Join(path, manifestFile)
	if old, err := os.ReadFile(file); err != nil || !bytes.Equal(old, data.Bytes()) {
		if err := writeFile(file, data.Bytes()); err != nil {
			return nil, err
		}
	}
	return &Dir{path, m}, nil
}

func writeFile(path string, data []byte) error {
	return atomicfile.Write(path, func(f *atomicfile.File) error { _, err := f.Write(data); return err })
}

// Open opens a folder with a sweep.
func Open(path string) (*Dir, error) {
	file := filepath.Join(path, manifestFile)
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s holds no sweep: %w", path, err)
	}
	if err != nil {
		return nil, err
	}
	m, err := ReadManifest(data, file)
	if err != nil {
		return nil, err
	}
	m.dir = path
	return &Dir{path, m}, nil
}

// IsDir says whether path is a folder with a sweep.
func IsDir(path string) bool {
	_, err := os.Stat(filepath.Join(path, manifestFile))
	return err == nil
}

// grow takes everything of an earlier manifest of the same folder into m: its
// policies, seeds and values of axes. The cells of both stay what they are. An
// error tells what else differs.
func (m *Manifest) grow(old *Manifest) error {
	if err := m.sameBase(old); err != nil {
		return err
	}
	m.base = old.base // but for settings that the cells have their own values of
	m.Policies = union(old.Policies, m.Policies)
	m.Seeds = sortedUnion(old.Seeds, m.Seeds, cmp.Compare)
	for i, was := range old.Axes {
		k := slices.IndexFunc(m.Axes, func(a Axis) bool { return a.Key == was.Key })
		m.Axes[i], m.Axes[k] = m.Axes[k], m.Axes[i]
		if a := &m.Axes[i]; was.Numeric() && a.Numeric() {
			a.Values = sortedUnion(was.Values, a.Values, func(x, y string) int { return cmp.Compare(a.Number(x), a.Number(y)) })
		} else {
			a.Values = union(was.Values, a.Values)
		}
	}
	if m.anyBaseline {
		m.Baseline = old.Baseline
	}
	m.Inputs = union(old.Inputs, m.Inputs)
	if _, err := m.cells(); err != nil {
		return err
	}
	return m.write()
}

// sameBase makes sure that nothing differs but policies, seeds and values.
func (m *Manifest) sameBase(old *Manifest) error {
	if m.Goodput != old.Goodput {
		return fmt.Errorf("goodput is %q there, %q here", old.Goodput, m.Goodput)
	}
	if m.Oracle != old.Oracle {
		return errors.New("only one of them has the bound of perfect knowledge")
	}
	var differ []string
	for _, f := range scenario.Fields() {
		here, there := m.varies(f.Key), old.varies(f.Key)
		switch was, is := f.Get(&old.base), f.Get(&m.base); {
		case there && !here:
			return fmt.Errorf("%s is varied there, but not here", f.Key)
		case here && !there:
			return fmt.Errorf("%s is varied here, but not there", f.Key)
		case was != is && f.Key != seedKey && !here:
			differ = append(differ, fmt.Sprintf("%s is %q there, %q here", f.Key, was, is))
		}
	}
	if len(differ) > 0 {
		return errors.New(strings.Join(differ, "; "))
	}
	for _, in := range old.Inputs {
		for _, is := range m.Inputs {
			if in.Path == is.Path && in.SHA256 != is.SHA256 {
				return fmt.Errorf("%s has changed since", m.resolve(in.Path))
			}
		}
	}
	return nil
}

func (m *Manifest) varies(key string) bool {
	return key == policyKey || slices.ContainsFunc(m.Axes, func(a Axis) bool { return a.Key == key })
}

// union is old and what new has beyond it; in the order of new if that has all.
func union[T comparable](old, new []T) []T {
	both := slices.Concat(old, slices.DeleteFunc(slices.Clone(new), func(v T) bool { return slices.Contains(old, v) }))
	if len(both) == len(new) {
		return new
	}
	return both
}

// sortedUnion is union, in ascending order where both lists are.
func sortedUnion[T comparable](old, new []T, compare func(a, b T) int) []T {
	out := union(old, new)
	if slices.IsSortedFunc(old, compare) && slices.IsSortedFunc(new, compare) {
		out = slices.SortedStableFunc(slices.Values(out), compare)
	}
	return out
}

// CellResult is what the file of a cell holds.
type CellResult struct {
	Values          []result.Value
	E2E, TTFT, TPOT []float64 // quantiles, ms
	Adapters        []CellAdapter
}

// CellAdapter is how an adapter fared in a cell.
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
	return []table.Column{{Name: "name", Value: &r.name, Nullable: true}, {Name: "i", Value: &r.i, Nullable: true}, {Name: "value", Value: &r.value, Nullable: true}}
}

// writeTable writes a file of rows, which the columns hold whenever rows calls
// write. Cells may be absent.
func writeTable(path string, columns []table.Column, meta [][2]string, rows func(write func() error) error) error {
	for i := range columns {
		columns[i].Nullable = true
	}
	w, err := table.Create(path, columns, table.Options{Meta: meta})
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
	return writeTable(d.cellPath(c), row.columns(), meta, func(write func() error) (err error) {
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

// State is the state of the run; "": unknown, as in sweeps of older versions.
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

// ErrBroken is an error of [Dir.ReadCell]: the file is there, but not what it
// should be. Running the sweep again replaces it.
var ErrBroken = errors.New("broken file of a cell")

// ReadCell reads the file of a cell, or of one that must have the same result;
// fs.ErrNotExist if none of them has run.
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
	r, err := readCell(d.cellPath(c), c.Hash)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return r, err
}

func readCell(path, hash string) (*CellResult, error) {
	var row cellRow
	file, err := table.Open(path, row.columns(), table.Options{})
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

// look reads the file of a cell that is done, or says why it failed or, with
// broken, cannot be read. A cell of which there is neither is missing.
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

// readFailure says why a cell failed, or one that must have the same result; "":
// neither did, or what the file says is nonsense, and the cell runs again.
func (d *Dir) readFailure(c *Cell) string {
	for _, i := range append([]int{c.Index}, d.sharing(c)...) {
		var f failure
		data, err := os.ReadFile(d.failurePath(&d.Cells[i]))
		if err == nil && json.Unmarshal(data, &f) == nil && f.Hash == d.Cells[i].Hash {
			return f.Error
		}
	}
	return ""
}

// Status is how far a sweep is.
type Status struct {
	Name    string       `json:"name"`
	Hash    string       `json:"hash"`
	Cells   int          `json:"cells"`
	Done    int          `json:"done"`
	Missing int          `json:"missing"`
	Shared  int          `json:"shared"` // cells that take the result of another one, see Manifest.Runs
	Failed  []FailedCell `json:"failed"`
	Broken  []FailedCell `json:"broken"` // their files cannot be read; they run again

	firstMissing int
}

// FailedCell names a cell that failed, or whose file is broken, and why.
type FailedCell struct {
	Index int    `json:"index"`
	What  string `json:"cell"`
	Error string `json:"error"`
}

// Status looks at the files of the sweep.
func (d *Dir) Status() *Status { return d.survey(nil) }

// survey is Status; results, where not nil, gets what the cells hold that are done.
func (d *Dir) survey(results []*CellResult) *Status {
	s := &Status{Name: d.Name, Hash: d.Hash, Cells: len(d.Cells), Shared: d.Shared(), Failed: []FailedCell{}, Broken: []FailedCell{}}
	for i := range d.Cells {
		r, failed, broken := d.look(&d.Cells[i])
		switch {
		case r != nil:
			if s.Done++; results != nil {
				results[i] = r
			}
		case broken:
			s.Broken = append(s.Broken, *failed)
		case failed != nil:
			s.Failed = append(s.Failed, *failed)
		default:
			if s.Missing++; s.Missing == 1 {
				s.firstMissing = i
			}
		}
	}
	return s
}

// writable makes sure, before anything is run, that results can be written.
func (d *Dir) writable() error {
	for _, dir := range []string{d.Path, filepath.Join(d.Path, cellsDir)} {
		f, err := os.CreateTemp(dir, ".writable.*.tmp")
		if err != nil {
			return fmt.Errorf("the sweep's folder cannot be written to: %w", err)
		}
		if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
			return err
		}
	}
	return nil
}

// removeTemporaries removes what interrupted runs left of files, once no file is
// missing any more.
func (d *Dir) removeTemporaries() error {
	var failed error
	for _, names := range []string{cellsDir + "/.*.tmp", ".*.tmp"} {
		stale, err := filepath.Glob(filepath.Join(d.Path, names))
		failed = cmp.Or(failed, err)
		for _, f := range stale {
			if err := os.Remove(f); !errors.Is(err, fs.ErrNotExist) {
				failed = cmp.Or(failed, err)
			}
		}
	}
	return failed
}
