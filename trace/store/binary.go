package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"lorasim/internal/arrowfile"
	"lorasim/trace"
	"lorasim/trace/internal/textfile"
)

const (
	// batchRows is the number of requests of one Parquet row group or Arrow
	// record batch, which is also what is held in memory.
	batchRows = 1 << 16
	// adaptersKey is the key of the adapters in a schema's metadata.
	adaptersKey = "lorasim.adapters"
)

// binaryColumns are the columns of Parquet and Arrow files, in their order.
var binaryColumns = []string{idColumn, arrivalColumn, adapterColumn, promptColumn, outputColumn, maxNewColumn}

// columnIndices finds the columns of a file by name: the i-th result is the
// index of binaryColumns[i], or -1 for an absent max_new_tokens.
func columnIndices(names []string) ([6]int, error) {
	index := [6]int{-1, -1, -1, -1, -1, -1}
	for i, name := range names {
		known := false
		for k, want := range binaryColumns {
			if name != want {
				continue
			}
			if index[k] >= 0 {
				return index, fmt.Errorf("column %q appears twice", name)
			}
			index[k], known = i, true
		}
		if !known {
			return index, textfile.Unknown("column", name, binaryColumns)
		}
	}
	for k, want := range binaryColumns[:5] {
		if index[k] < 0 {
			return index, fmt.Errorf("no column %q", want)
		}
	}
	return index, nil
}

// batch holds a number of requests by column.
type batch struct {
	id      []int64
	arrival []float64
	small   [4][]int32 // adapter, prompt_tokens, output_tokens, max_new_tokens
}

func (b *batch) resize(n int) {
	if cap(b.id) < n {
		b.id = make([]int64, n)
		b.arrival = make([]float64, n)
		for i := range b.small {
			b.small[i] = make([]int32, n)
		}
	}
	b.id, b.arrival = b.id[:n], b.arrival[:n]
	for i := range b.small {
		b.small[i] = b.small[i][:n]
	}
}

func (b *batch) at(i int) trace.Request {
	return trace.Request{
		ID: b.id[i], Arrival: b.arrival[i], Adapter: b.small[0][i],
		Prompt: b.small[1][i], Output: b.small[2][i], MaxNew: b.small[3][i],
	}
}

func (b *batch) set(i int, r trace.Request) {
	b.id[i], b.arrival[i], b.small[0][i] = r.ID, r.Arrival, r.Adapter
	b.small[1][i], b.small[2][i], b.small[3][i] = r.Prompt, r.Output, r.MaxNew
}

// blocks reads a Parquet or Arrow file batch by batch.
type blocks interface {
	adapters() (string, bool) // the value under adaptersKey
	rows() int64
	next(*batch) error // io.EOF at the end
}

// binaryReader reads a Parquet or Arrow file.
type binaryReader struct {
	path     string
	source   *source
	file     *arrowfile.File
	blocks   blocks
	adapters []trace.Adapter
	check    checker
	rows     int64
	batch    batch
	i        int // next request of the batch
}

var (
	_ Reader      = (*binaryReader)(nil)
	_ trace.Sized = (*binaryReader)(nil)
)

func openBinary(path string, o ReadOptions, newBlocks func(*arrowfile.File) (blocks, error)) (Reader, error) {
	src, err := openSource(path, o.Progress)
	if err != nil {
		return nil, err
	}
	r := &binaryReader{path: path, source: src, adapters: o.Adapters}
	if err := guard(path, func() error { return r.open(newBlocks) }); err != nil {
		src.Close()
		return nil, err
	}
	return r, nil
}

func (r *binaryReader) open(newBlocks func(*arrowfile.File) (blocks, error)) (err error) {
	if r.file, err = arrowfile.New(r.source); err != nil {
		return err
	}
	if r.blocks, err = newBlocks(r.file); err != nil {
		return err
	}
	r.source.read = 0 // Arrow files are read once to count the rows
	r.rows = r.blocks.rows()
	// A corrupt count must not decide how much memory a caller takes.
	if most := r.file.Size() * 1024; r.rows < 0 || r.rows > most {
		return fmt.Errorf("states %d rows, which its %d bytes cannot hold", r.rows, r.file.Size())
	}
	if r.adapters == nil {
		r.adapters, err = parseAdapters(r.blocks)
	}
	r.check.adapters = len(r.adapters)
	return err
}

func (r *binaryReader) Adapters() []trace.Adapter { return r.adapters }
func (r *binaryReader) Len() int64                { return r.rows - r.check.n }
func (r *binaryReader) Close() error              { return r.source.Close() }

func (r *binaryReader) Next() (trace.Request, error) {
	for r.i == len(r.batch.id) {
		r.i = 0
		r.file.NextBatch()
		err := guard(r.path, func() error { return r.blocks.next(&r.batch) })
		if err != nil {
			r.batch.resize(0)
			if errors.Is(err, io.EOF) && r.check.n == 0 {
				err = fmt.Errorf("%s: %w", r.path, errEmpty)
			}
			return trace.Request{}, err
		}
	}
	q := r.batch.at(r.i)
	if err := r.check.check(q); err != nil {
		return trace.Request{}, fmt.Errorf("%s: row %d: %w", r.path, r.check.n+1, err)
	}
	r.i++
	return q, nil
}

// guard calls f and names the file in errors other than io.EOF, also where the
// Arrow library panics.
func guard(path string, f func() error) error {
	err := arrowfile.Guard(f)
	if err != nil && err != io.EOF {
		return fmt.Errorf("%s: %w", path, err)
	}
	return err
}

// adapterJSON is an adapter as the metadata holds it.
type adapterJSON struct {
	Name string `json:"name"`
	Rank int    `json:"rank,omitempty"`
}

func formatAdapters(as []trace.Adapter) (string, error) {
	list := make([]adapterJSON, len(as))
	for i, a := range as {
		list[i] = adapterJSON(a)
	}
	b, err := json.Marshal(list)
	return string(b), err
}

func parseAdapters(b blocks) ([]trace.Adapter, error) {
	text, ok := b.adapters()
	if !ok {
		return nil, fmt.Errorf("no adapters under %q in the schema's metadata; state them", adaptersKey)
	}
	var list []adapterJSON
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("adapters under %q in the schema's metadata: %w", adaptersKey, err)
	}
	if len(list) > maxAdapters {
		return nil, fmt.Errorf("%d adapters, expected at most %d", len(list), maxAdapters)
	}
	as := make([]trace.Adapter, len(list))
	for i, a := range list {
		if a.Rank < 0 {
			return nil, fmt.Errorf("adapter %q has rank %d, expected >= 0", a.Name, a.Rank)
		}
		as[i] = trace.Adapter(a)
	}
	return as, nil
}

// source is a file that tells how much of it was read.
type source struct {
	*os.File
	read     int64
	progress func(int64) error
}

func openSource(path string, progress func(int64) error) (*source, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: not a regular file", path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &source{File: f, progress: progress}, nil
}

func (s *source) ReadAt(p []byte, at int64) (int, error) {
	n, err := s.File.ReadAt(p, at)
	if s.progress != nil {
		s.read += int64(n)
		if stop := s.progress(s.read); stop != nil {
			return 0, stop
		}
	}
	return n, err
}
