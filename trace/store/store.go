// Package store saves workloads and reads them back, so that a simulated and a
// live run replay exactly the same requests. The extension of a file's name
// says its format:
//
//	.csv      for people and spreadsheets; may be gzip-compressed (.csv.gz) to read
//	.jsonl    one JSON object per request; .jsonl.gz too
//	.parquet  Apache Parquet, small and typed
//	.arrow    Apache Arrow IPC file, fastest
//
// All hold the same columns:
//
//	id             ascending whole number
//	arrival_s      s since the start of the workload, never falling
//	adapter        index, or -1 for the base model; csv and jsonl may name adapters
//	               instead, and leave the name empty for the base model
//	prompt_tokens  >= 1
//	output_tokens  >= 1
//	max_new_tokens what the client asks for, 0: output_tokens; optional in csv and jsonl
//	rank           LoRA rank of the adapter; optional, csv and jsonl only
//	hash_ids       list of whole numbers, not in csv: ids of the blocks of the prompt
//	               (see [ReadOptions]); equal ids after equal ones are equal tokens
//	hash_block     tokens of an id, where it is not the 512 of most
//	text           number of what the prompt is the beginning of, as [trace.Text];
//	text_start     it follows so many tokens of text_parent (-1: of none); reply is 1
//	text_parent    where prompts with a later text_start repeat the reply
//	reply
//
// The last six are optional, a value of a text or hash_ids may be absent (-1; null).
//
// Parquet and Arrow files carry the adapters, with names and ranks, as JSON
// under the key "lorasim.adapters" of the schema's metadata. CSV and JSONL
// files are read twice to find them, unless [ReadOptions] states them. Parquet
// and Arrow files of other programs are read if they hold these columns as plain
// numbers (int32 or int64, arrival_s as double) without empty values.
//
//	n, err := store.Write("w.parquet", src, store.WriteOptions{})
//
//	r, err := store.Open("w.parquet", store.ReadOptions{})
//	defer r.Close()
//	w, err := trace.Collect(r)
//
// Reading and writing stream: memory does not grow with the file, but with the
// texts of prompts that are read.
package store

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lorasim/internal/table"
	"lorasim/internal/textfile"
	"lorasim/trace"
)

// Names of the columns.
const (
	idColumn      = "id"
	arrivalColumn = "arrival_s"
	adapterColumn = "adapter"
	promptColumn  = "prompt_tokens"
	outputColumn  = "output_tokens"
	maxNewColumn  = "max_new_tokens"
	rankColumn    = "rank"
	idsColumn     = "hash_ids"
	blockColumn   = "hash_block"
	textColumn    = "text"
	startColumn   = "text_start"
	parentColumn  = "text_parent"
	replyColumn   = "reply"
)

// adaptersKey is the key of the adapters in a schema's metadata.
const adaptersKey = "lorasim.adapters"

// maxAdapters bounds the number of adapters that a file may imply by its
// largest index or state, which would otherwise decide how much memory to take.
const maxAdapters = 1 << 20

// row is one row of a file.
type row struct {
	trace.Request
	text  table.Raw // the adapter in CSV and JSONL
	name  []byte    // of the adapter, where named; empty: base model
	named bool      // the adapter is a name, not an index
	rank  int32     // 0: not stated

	ids          []float64 // of blocks
	block        int32     // tokens of an id; 0: not stated
	of, parent   int64     // texts; -1: none
	start, reply int32
}

func (r *row) columns(adapter any, o WriteOptions) []table.Column {
	columns := []table.Column{
		{Name: idColumn, Value: &r.ID},
		{Name: arrivalColumn, Value: &r.Arrival, Decimal: true},
		{Name: adapterColumn, Value: adapter},
		{Name: promptColumn, Value: &r.Prompt},
		{Name: outputColumn, Value: &r.Output},
	}
	if o.MaxNew {
		columns = append(columns, table.Column{Name: maxNewColumn, Value: &r.MaxNew, Optional: true})
	}
	if o.Ranks {
		columns = append(columns, table.Column{Name: rankColumn, Value: &r.rank, Optional: true})
	}
	if o.Blocks {
		columns = append(columns, table.Column{Name: idsColumn, Value: &r.ids, Optional: true})
	}
	if o.blockTokens {
		columns = append(columns, table.Column{Name: blockColumn, Value: &r.block, Optional: true})
	}
	if o.Texts {
		columns = append(columns, table.Column{Name: textColumn, Value: &r.of, Optional: true},
			table.Column{Name: startColumn, Value: &r.start, Optional: true},
			table.Column{Name: parentColumn, Value: &r.parent, Optional: true},
			table.Column{Name: replyColumn, Value: &r.reply, Optional: true})
	}
	return columns
}

// ReadOptions of Open.
type ReadOptions struct {
	// Adapters of the workload; they replace those of the file. nil: as the
	// file says. A CSV or JSONL file is then read once more before the first
	// request, which a pipe does not allow; adapters that no request uses are
	// unknown, and those without names are called lora0, lora1, ...
	Adapters []trace.Adapter
	// Progress is told the bytes read from the disk so far; where the file is
	// read twice it starts again. Its error ends the reading.
	Progress func(bytesRead int64) error
	// PrefixBlock is the tokens that an id of hash_ids stands for; 0: 512.
	PrefixBlock int32
}

// Reader is a saved workload being read.
type Reader interface {
	trace.Source
	io.Closer
}

// Open opens a saved workload, which must be closed after use. Errors name the
// file, the line (in Parquet and Arrow files the row, from 1) and the column.
// A file without requests is an error.
func Open(path string, o ReadOptions) (Reader, error) {
	n := newNames(o.Adapters)
	if isText(path) && o.Adapters == nil {
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
			return nil, fmt.Errorf("%s: cannot be read twice to find its adapters; state them", path)
		}
		first, err := newReader(path, o, n)
		if err != nil {
			return nil, err
		}
		err = first.findAdapters()
		first.Close()
		if err != nil {
			return nil, err
		}
		n = newNames(n.adapters)
	}
	n.fixed = true
	r, err := newReader(path, o, n)
	if err != nil || r.isText {
		return r, err
	}
	if err := r.openBinary(o.Adapters); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// isText tells CSV and JSONL files.
func isText(path string) bool {
	ext := strings.ToLower(filepath.Ext(strings.TrimSuffix(path, ".gz")))
	return ext == ".csv" || ext == ".jsonl"
}

// reader reads a file of any format.
type reader struct {
	path           string
	isText, isJSON bool
	file           *table.Reader
	row            row
	names          *names
	check          checker
	rows           int64
	texts          texts
}

// Len is known in Parquet and Arrow files.
func (r *reader) Len() int64 {
	if r.isText {
		return -1
	}
	return r.rows - r.check.n
}

func newReader(path string, o ReadOptions, n *names) (*reader, error) {
	r := &reader{path: path, isText: isText(path), isJSON: strings.Contains(strings.ToLower(filepath.Base(path)), ".jsonl"), names: n,
		texts: texts{map[int32]*trace.Blocks{}, map[int64]*trace.Text{}, cmp.Or(o.PrefixBlock, defaultBlock)}}
	r.check.adapters = len(n.adapters)
	all := WriteOptions{MaxNew: true, Blocks: !isCSV(path), blockTokens: !isCSV(path), Texts: true}
	columns := r.row.columns(&r.row.Adapter, all)
	if all.Ranks = r.isText; r.isText {
		columns = r.row.columns(&r.row.text, all)
	}
	var err error
	r.file, err = table.Open(path, columns, table.Options{Strict: true, Progress: o.Progress})
	return r, err
}

// openBinary looks at what a Parquet or Arrow file says of itself.
func (r *reader) openBinary(adapters []trace.Adapter) (err error) {
	if r.rows, err = r.file.Rows(); err != nil {
		return err
	}
	if adapters == nil {
		if r.names.adapters, err = parseAdapters(r.file.Meta()); err != nil {
			return fmt.Errorf("%s: %w", r.path, err)
		}
	}
	r.check.adapters = len(r.names.adapters)
	return nil
}

func (r *reader) Adapters() []trace.Adapter { return r.names.adapters }

func (r *reader) Close() error { return r.file.Close() }

// read reads the next row.
func (r *reader) read() error {
	r.row = row{of: -1, parent: -1}
	if err := r.file.Read(); err != nil || !r.isText {
		return err
	}
	if r.row.rank < 0 {
		return r.file.Bad(rankColumn, fmt.Errorf("%d is negative, expected >= 0", r.row.rank))
	}
	if err := r.row.setAdapter(r.isJSON); err != nil {
		return r.file.Bad(adapterColumn, err)
	}
	return nil
}

// findAdapters is the first pass over a CSV or JSONL file.
func (r *reader) findAdapters() error {
	for {
		if err := r.read(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := r.names.resolve(&r.row); err != nil {
			return r.file.Bad(adapterColumn, err)
		}
	}
}

func (r *reader) Next() (trace.Request, error) {
	if err := r.read(); err != nil {
		if errors.Is(err, io.EOF) && r.check.n == 0 {
			err = fmt.Errorf("%s: %w", r.path, errEmpty)
		}
		return trace.Request{}, err
	}
	if r.isText {
		if err := r.names.resolve(&r.row); err != nil {
			return trace.Request{}, r.file.Bad(adapterColumn, err)
		}
	}
	if err := r.check.check(&r.row.Request); err != nil {
		return trace.Request{}, r.file.Bad("", err)
	}
	if err := r.texts.set(&r.row); err != nil {
		return trace.Request{}, r.file.Bad("", err)
	}
	return r.row.Request, nil
}

var errEmpty = errors.New("empty workload: it holds no request")

// checker checks the requests of a workload one after the other.
type checker struct {
	adapters int
	last     trace.Request
	n        int64 // requests so far
}

func (c *checker) check(r *trace.Request) error {
	if err := r.Check(c.adapters); err != nil {
		return err
	}
	if c.n > 0 && r.Arrival < c.last.Arrival {
		return fmt.Errorf("%s %v comes before that of the request before (%v): requests must be in the order of arrival",
			arrivalColumn, r.Arrival, c.last.Arrival)
	}
	if c.n > 0 && r.ID <= c.last.ID {
		return fmt.Errorf("%s %d is not greater than that of the request before (%d)", idColumn, r.ID, c.last.ID)
	}
	c.last = *r
	c.n++
	return nil
}

// adapterJSON is an adapter as the metadata holds it.
type adapterJSON struct {
	Name string `json:"name"`
	Rank int    `json:"rank,omitempty"`
}

func formatAdapters(as []trace.Adapter) string {
	list := make([]adapterJSON, len(as))
	for i, a := range as {
		list[i] = adapterJSON(a)
	}
	b, _ := json.Marshal(list) // texts and numbers always have a JSON form
	return string(b)
}

func parseAdapters(meta [][2]string) (as []trace.Adapter, err error) {
	at := slices.IndexFunc(meta, func(m [2]string) bool { return m[0] == adaptersKey })
	if at < 0 || meta[at][1] == "" {
		return nil, fmt.Errorf("no adapters under %q in the schema's metadata; state them", adaptersKey)
	}
	var list []adapterJSON
	if err := json.Unmarshal([]byte(meta[at][1]), &list); err != nil {
		return nil, fmt.Errorf("adapters under %q in the schema's metadata: %w", adaptersKey, err)
	}
	if len(list) > maxAdapters {
		return nil, fmt.Errorf("%d adapters, expected at most %d", len(list), maxAdapters)
	}
	as = make([]trace.Adapter, len(list))
	for i, a := range list {
		if a.Rank < 0 {
			return nil, fmt.Errorf("adapter %q has rank %d, expected >= 0", a.Name, a.Rank)
		}
		as[i] = trace.Adapter(a)
	}
	return as, nil
}

// names knows the adapters of a CSV or JSONL file and turns names into indices.
type names struct {
	adapters []trace.Adapter
	index    map[string]int32
	fixed    bool // all adapters are known

	some  bool // a row was seen
	named bool // its adapter was a name
}

func newNames(adapters []trace.Adapter) *names {
	n := &names{adapters: adapters, index: make(map[string]int32, len(adapters))}
	for i, a := range slices.Backward(adapters) {
		n.index[a.Name] = int32(i) // the first one of equal names
	}
	return n
}

// resolve sets the adapter index of a row. Until all adapters are known, new ones
// and ranks are added.
func (n *names) resolve(row *row) error {
	switch {
	case n.some && row.named && !n.named:
		return fmt.Errorf("%q is no index, but the rows before hold indices", row.name)
	case n.some && n.named && !row.named:
		return fmt.Errorf("%d is no name, but the rows before hold names", row.Adapter)
	}
	n.some, n.named = true, row.named
	switch {
	case row.named && len(row.name) == 0:
		row.Adapter = trace.BaseModel
	case row.named:
		i, ok := n.index[string(row.name)]
		switch {
		case !ok && n.fixed:
			return n.unknown(string(row.name))
		case !ok && len(n.adapters) == maxAdapters:
			return fmt.Errorf("more than %d different names", maxAdapters)
		case !ok:
			i = int32(len(n.adapters))
			n.index[string(row.name)] = i
			n.adapters = append(n.adapters, trace.Adapter{Name: string(row.name)})
		}
		row.Adapter = i
	case !n.fixed && row.Adapter >= maxAdapters:
		return fmt.Errorf("%d would mean more than %d adapters", row.Adapter, maxAdapters)
	case !n.fixed:
		for i := len(n.adapters); i <= int(row.Adapter); i++ {
			n.adapters = append(n.adapters, trace.Adapter{Name: fmt.Sprintf("lora%d", i)})
		}
	}
	if n.fixed || row.Adapter < 0 || row.rank == 0 {
		return nil
	}
	a := &n.adapters[row.Adapter]
	if a.Rank != 0 && a.Rank != int(row.rank) {
		return fmt.Errorf("%s has %s %d here and %d before", a.Name, rankColumn, row.rank, a.Rank)
	}
	a.Rank = int(row.rank)
	return nil
}

func (n *names) unknown(name string) error {
	if len(n.adapters) == 0 || len(n.adapters) > 20 {
		return fmt.Errorf("%q is none of the %d adapters", name, len(n.adapters))
	}
	known := make([]string, len(n.adapters))
	for i, a := range n.adapters {
		known[i] = a.Name
	}
	return textfile.Unknown("adapter", name, known)
}

// setAdapter sets the adapter of a row to the index or the name that a CSV or
// JSONL file states.
func (r *row) setAdapter(isJSON bool) (err error) {
	if isJSON && r.text[0] == '"' {
		r.named = true
		r.name, err = textfile.Text(r.text)
		return err
	}
	if !isJSON && !isIndex(r.text) {
		r.name, r.named = r.text, true
		return nil
	}
	i, err := textfile.Int(r.text)
	if err != nil {
		return err
	}
	r.Adapter = int32(i)
	if i < int64(trace.BaseModel) || int64(r.Adapter) != i {
		return errors.New(string(r.text) + " is out of range, expected -1 (base model) or an index")
	}
	return nil
}

// isIndex tells a whole number from the name of an adapter.
func isIndex(b []byte) bool {
	if len(b) > 1 && b[0] == '-' {
		b = b[1:]
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) > 0
}

// WriteOptions of Write. They concern CSV and JSONL; Parquet and Arrow files
// always hold everything.
type WriteOptions struct {
	MaxNew bool // write the column max_new_tokens
	Ranks  bool // write the column rank

	Blocks, Texts bool // write what prompts have in common; set by [Write] where the first request has any
	blockTokens   bool // and the tokens of an id
}

// Write saves a workload and returns the number of requests. The file appears
// under its name only when it is complete: on an error nothing is left behind
// and a file that was there before is kept. Requests are checked as in reading,
// and so is that there is at least one. Without WriteOptions.MaxNew a request
// whose max_new_tokens differs from its output tokens is an error in CSV and
// JSONL.
//
// The same requests give the same bytes.
func Write(path string, src trace.Source, o WriteOptions) (int64, error) {
	if !isText(path) {
		o = WriteOptions{MaxNew: true}
	}
	r, err := src.Next()
	first := r.Text
	if err == nil && first != nil {
		o.Blocks, o.Texts = r.Text.Block > 0, r.Text.Block == 0
		o.blockTokens = o.Blocks && r.Text.Block != defaultBlock
		if o.Blocks && isCSV(path) {
			return 0, fmt.Errorf("%s: a .csv file has no column for the ids of prompts: choose .jsonl, .parquet or .arrow", path)
		}
	}
	var row row
	adapters := src.Adapters()
	w, fault := table.Create(path, row.columns(&row.Adapter, o), table.Options{Meta: [][2]string{{adaptersKey, formatAdapters(adapters)}}})
	if fault != nil {
		return 0, fault
	}
	defer w.Abort()
	c := checker{adapters: len(adapters)}
	for ; !errors.Is(err, io.EOF); r, err = src.Next() {
		if err != nil {
			return 0, err
		}
		if err := c.check(&r); err != nil {
			return 0, fmt.Errorf("%s: request %d: %w", path, c.n, err)
		}
		if r.MaxNew != 0 && r.MaxNew != r.Output && !o.MaxNew {
			return 0, fmt.Errorf("%s: request %d: %s is %d and output_tokens %d, but the file has no column for it: set WriteOptions.MaxNew",
				path, c.n-1, maxNewColumn, r.MaxNew, r.Output)
		}
		if t := r.Text; t != nil && (first == nil || t.Block != first.Block) {
			return 0, fmt.Errorf("%s: request %d: its prompt is told in another way than that of the first request, for which the file has no column", path, c.n-1)
		}
		row.Request, row.rank = r, 0
		if r.Adapter >= 0 {
			row.rank = int32(adapters[r.Adapter].Rank)
		}
		row.putText()
		if err := w.Write(); err != nil {
			return 0, err
		}
	}
	if c.n == 0 {
		return 0, fmt.Errorf("%s: %w", path, errEmpty)
	}
	return c.n, w.Close()
}
