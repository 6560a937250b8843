// Package llm reads public traces of LLM requests as workloads: the Azure LLM inference traces, BurstGPT, Mooncake
// and Qwen-Bailian. These hold arrival times and token counts but no adapters, so the caller assigns an adapter to
// each request.
//
//	r, err := llm.Open(ctx, llm.AzureLLM, "AzureLLMInferenceTrace_conv.csv", llm.Options{
//		Adapters: trace.Names(4, nil),
//		Assign:   func() int32 { return rng.Int32N(4) },
//	})
//	defer r.Close()
//	w, err := trace.Collect(r)
//
// [ReadUsage] reads records of adapter use, which hold no token counts. Files may be gzip-compressed. A path may be
// a folder that holds one matching file. A [Reader] streams: memory does not grow with the file, except for sorting
// and for the distinct blocks of prompts, where the trace holds them.
package llm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"lorasim/internal/suggest"
	"lorasim/internal/table"
	"lorasim/internal/textfile"
	"lorasim/trace"
)

// Format is the name of a trace format.
type Format string

// The formats.
const (
	// AzureLLM is the Azure LLM inference trace of 2023 or 2024, or the multimodal one of 2025
	// (AzurePublicDataset). A request with zero context or generated tokens cannot be replayed and counts as a
	// bad row.
	AzureLLM Format = "azure_llm"
	// BurstGPT is BurstGPT_1, _2 or _3 (arXiv:2401.17644). A request with zero response tokens failed: the
	// reader skips it and counts it in Stats.Failed.
	BurstGPT Format = "burstgpt"
	// Mooncake is the JSONL trace of Mooncake (FAST'25). It identifies common prefixes of prompts in blocks of
	// 512 tokens.
	Mooncake Format = "mooncake"
	// QwenBailian is a JSONL trace of Qwen-Bailian (arXiv:2506.02634). It identifies common prefixes of prompts
	// in blocks of 16 tokens. Its fields on conversations follow from the blocks and are not read.
	QwenBailian Format = "qwen_bailian"
)

// Options are the options of Open and ReadUsage.
type Options struct {
	Adapters []trace.Adapter
	// Assign returns the adapter index of the next request; nil: all requests are to the base model.
	Assign func() int32

	// Start and End bound the part of the trace to read, s after its first row: Start <= time < End. End 0 means
	// the end of the trace. Arrivals count from Start.
	Start, End float64

	SkipBadRows bool // count malformed rows instead of failing
	Sort        bool // sort the rows by time, in memory

	// Progress, if not nil, is called with the number of bytes read from the disk so far. If it returns an
	// error, reading ends with this error.
	Progress func(bytesRead int64) error
}

// Stats counts the rows read so far, by outcome.
type Stats struct {
	Requests int64 // requests that Next returned
	Failed   int64 // skipped: failed requests of BurstGPT
	Bad      int64 // skipped: malformed rows, with SkipBadRows
}

// A Reader reads a trace. It is a trace.Source whose requests are numbered from 0.
type Reader struct {
	path    string
	table   *table.Reader
	read    func() (row, error) // the next row of the file
	options Options
	start   int64 // ns after the first row
	end     int64

	any   bool  // a row was read
	first int64 // time of the first row
	last  int64 // time of the last row read
	stats Stats
}

// row is one row of a trace.
type row struct {
	at             int64 // ns since some point in time
	prompt, output int32 // output 0: it failed
	text           *trace.Text
}

var _ trace.Source = (*Reader)(nil)

// Open opens a trace. ctx ends the wait for a pipe. The caller must close the reader. Open returns an error for a
// missing column, an unknown format or contradictory options. Errors of a row come from Next and name file, line and
// column.
func Open(ctx context.Context, format Format, path string, o Options) (*Reader, error) {
	f, ok := formats[format]
	if !ok {
		return nil, suggest.Unknown("trace format", string(format), formatNames)
	}
	path, err := textfile.Find(path, f.files...)
	if err != nil {
		return nil, fmt.Errorf("trace %s: %w", format, err)
	}
	file, err := textfile.Open(ctx, path, o.Progress)
	if err != nil {
		return nil, err
	}
	nanoseconds := func(s float64) int64 { return int64(math.Round(s * 1e9)) }
	r := &Reader{path: path, options: o, start: nanoseconds(o.Start), end: math.MaxInt64}
	if o.End > 0 {
		r.end = nanoseconds(o.End)
	}
	if r.table, r.read, err = f.open(file); err != nil {
		return nil, err
	}
	if o.Sort {
		if err := r.sort(); err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, nil
}

// Adapters returns the adapters given to Open.
func (r *Reader) Adapters() []trace.Adapter { return r.options.Adapters }

// Len returns -1: the number of requests is unknown.
func (r *Reader) Len() int64 { return -1 }

// Stats returns the numbers of rows read so far.
func (r *Reader) Stats() Stats { return r.stats }

// Close closes the file.
func (r *Reader) Close() error { return r.table.Close() }

// Next returns the next request, or io.EOF after the last one. A trace or window without any request is an error.
func (r *Reader) Next() (trace.Request, error) {
	for {
		w, err := r.next()
		if errors.Is(err, io.EOF) {
			return trace.Request{}, r.done()
		}
		if err != nil {
			return trace.Request{}, err
		}
		at := w.at - r.first
		switch {
		case at < r.start:
			continue
		case at >= r.end:
			return trace.Request{}, r.done()
		case w.output == 0:
			r.stats.Failed++
			continue
		}
		return r.request(w, at)
	}
}

// next returns the next well-formed row in the order of time.
func (r *Reader) next() (row, error) {
	w, err := r.wellFormed()
	if err != nil {
		return row{}, err
	}
	if !r.any {
		r.any, r.first, r.last = true, w.at, w.at
	}
	if w.at < r.last {
		return row{}, r.table.Bad("",
			fmt.Errorf("row is %v earlier than the one before; rows must be in the order of time, or be sorted",
				time.Duration(r.last-w.at)))
	}
	r.last = w.at
	return w, nil
}

// wellFormed returns the next row of the file, past bad ones if they are to be
// skipped.
func (r *Reader) wellFormed() (row, error) {
	for {
		w, err := r.read()
		if !r.options.skip(err, &r.stats.Bad) {
			return w, err
		}
	}
}

// skip reports whether an error is that of a bad row to be left out, and counts it.
func (o *Options) skip(err error, bad *int64) bool {
	var fault *textfile.RowError
	if !o.SkipBadRows || !errors.As(err, &fault) {
		return false
	}
	*bad++
	return true
}

// sort reads the whole file and makes next read its rows in the order of time.
// Rows of equal times keep their order.
func (r *Reader) sort() error {
	var rows []row
	w, err := r.wellFormed()
	for ; err == nil; w, err = r.wellFormed() {
		rows = append(rows, w)
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.at, b.at) })
	r.read = func() (row, error) {
		if len(rows) == 0 {
			return row{}, io.EOF
		}
		w := rows[0]
		rows = rows[1:]
		return w, nil
	}
	return nil
}

// request makes the request of a row that is at ns after the first one.
func (r *Reader) request(w row, at int64) (trace.Request, error) {
	q := trace.Request{ID: r.stats.Requests, Arrival: float64(at-r.start) / 1e9,
		Adapter: trace.BaseModel, Prompt: w.prompt, Output: w.output, Text: w.text}
	if r.options.Assign != nil {
		q.Adapter = r.options.Assign()
	}
	if err := q.Check(len(r.options.Adapters)); err != nil {
		return trace.Request{}, r.table.Bad("", err)
	}
	r.stats.Requests++
	return q, nil
}

// done is the error at the end of the trace: io.EOF if there were requests.
func (r *Reader) done() error {
	if r.stats.Requests > 0 {
		return io.EOF
	}
	left := ""
	if r.stats.Bad > 0 || r.stats.Failed > 0 {
		left = fmt.Sprintf(" (left out: %d bad, %d failed)", r.stats.Bad, r.stats.Failed)
	}
	if r.any && (r.options.Start > 0 || r.options.End > 0) {
		return fmt.Errorf("%s: no request in the window from %v s%s; the last row read is at %.3f s",
			r.path, r.options.Start, left, float64(r.last-r.first)/1e9)
	}
	return fmt.Errorf("%s: empty trace: it holds no request%s", r.path, left)
}

// ReadUsage reads records of adapter use, such as the references to LoRA adapters in Alibaba's image generation
// trace (cluster-trace-v2026-GenAI, GenTD26). The file is CSV with the columns time_s and adapter; other columns are
// ignored, and rows may have any order.
//
// Options.Adapters replace the adapters of the file in the order of first use; if there are fewer, they are used in
// turn. If Options.Adapters is nil, the adapters have the names in the file and, if ranks is not nil, the ranks that
// ranks returns for n adapters.
//
// ReadUsage returns the references as requests without token counts, with the first one at time 0, and the number of
// rows that were skipped.
func ReadUsage(ctx context.Context, path string, o Options, ranks func(n int) []int) (w *trace.Workload,
	skipped int64, err error) {
	refs, skipped, err := readReferences(ctx, path, o)
	if err != nil {
		return nil, skipped, err
	}
	w = &trace.Workload{Adapters: o.Adapters}
	index := map[int64]int32{} // of adapters
	for _, r := range refs {
		at := r.at - refs[0].at
		if at < o.Start || o.End > 0 && at >= o.End {
			continue
		}
		k, ok := index[r.adapter]
		if !ok {
			if k = int32(len(index)); o.Adapters == nil {
				w.Adapters = append(w.Adapters, trace.Adapter{Name: "adapter" + strconv.FormatInt(r.adapter, 10)})
			} else {
				k %= int32(len(o.Adapters))
			}
			index[r.adapter] = k
		}
		w.Requests = append(w.Requests, trace.Request{ID: int64(len(w.Requests)),
			Arrival: at - o.Start, Adapter: k})
	}
	if len(w.Requests) == 0 {
		return nil, skipped, fmt.Errorf("%s: no request in the window from %v s; the last of %d is at %v s",
			path, o.Start, len(refs), refs[len(refs)-1].at-refs[0].at)
	}
	if o.Adapters == nil && ranks != nil {
		for i, r := range ranks(len(w.Adapters)) {
			w.Adapters[i].Rank = r
		}
	}
	return w, skipped, nil
}

// reference is that to an adapter at a time, s.
type reference struct {
	at      float64
	adapter int64
}

// readReferences reads them in the order of time.
func readReferences(ctx context.Context, path string, o Options) (refs []reference, skipped int64, err error) {
	const maxTime = 1e10 // s, three centuries: sums of times stay exact enough
	path, err = textfile.Find(path, "*lora_refs*.csv")
	if err != nil {
		return nil, 0, err
	}
	f, err := textfile.Open(ctx, path, o.Progress)
	if err != nil {
		return nil, 0, err
	}
	var r reference
	rows, err := table.OpenText(f, false, []table.Column{{Name: "time_s", Value: &r.at},
		{Name: "adapter", Value: &r.adapter}}, false)
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	for {
		err := rows.Read()
		if err == nil && !(math.Abs(r.at) <= maxTime) {
			err = rows.Bad("time_s", fmt.Errorf("is %v, expected at most %g s", r.at, float64(maxTime)))
		}
		switch {
		case o.skip(err, &skipped):
		case errors.Is(err, io.EOF) && len(refs) == 0:
			return nil, skipped, fmt.Errorf("%s: empty trace: it holds no request", path)
		case errors.Is(err, io.EOF):
			slices.SortStableFunc(refs, func(a, b reference) int { return cmp.Compare(a.at, b.at) })
			return refs, skipped, nil
		case err != nil:
			return nil, skipped, err
		default:
			refs = append(refs, r)
		}
	}
}

// format describes one trace format.
type format struct {
	files                 []string                         // patterns of its files' names
	block                 int32                            // JSON lines with ids of so many tokens; 0: CSV
	stamp, prompt, output string                           // columns
	at                    func(text []byte) (int64, error) // the time of a row, ns since some point in time
	// count reads a number of tokens. Where it takes 0, a request without output
	// failed.
	count func(text []byte) (int32, error)
}

var formats = map[Format]format{
	AzureLLM: {
		files: []string{"AzureLLMInferenceTrace*.csv", "AzureLMMInferenceTrace*.csv"},
		stamp: "TIMESTAMP", prompt: "ContextTokens", output: "GeneratedTokens",
		at: stamp, count: textfile.Tokens,
	},
	BurstGPT: {
		files: []string{"BurstGPT*.csv"},
		stamp: "Timestamp", prompt: "Request tokens", output: "Response tokens",
		at: func(s []byte) (int64, error) { return textfile.Fixed(s, 9) }, count: textfile.Count,
	},
	Mooncake: {
		files: []string{"*.jsonl"}, block: 512,
		stamp: "timestamp", prompt: "input_length", output: "output_length",
		at: func(ms []byte) (int64, error) { return textfile.Fixed(ms, 6) }, count: textfile.Tokens,
	},
	QwenBailian: {
		files: []string{"qwen*.jsonl"}, block: 16,
		stamp: "timestamp", prompt: "input_length", output: "output_length",
		at: func(s []byte) (int64, error) { return textfile.Fixed(s, 9) }, count: textfile.Tokens,
	},
}

var formatNames = []string{string(AzureLLM), string(BurstGPT), string(Mooncake), string(QwenBailian)}

// open returns a function that reads the next row of a file, which is closed on
// an error.
func (f format) open(file *textfile.File) (*table.Reader, func() (row, error), error) {
	const hashColumn = "hash_ids" // JSON only
	var at, prompt, output, ids table.Raw
	columns := []table.Column{{Name: f.stamp, Value: &at}, {Name: f.prompt, Value: &prompt},
		{Name: f.output, Value: &output}}
	if f.block > 0 {
		columns = append(columns, table.Column{Name: hashColumn, Value: &ids})
	}
	t, err := table.OpenText(file, f.block > 0, columns, false)
	if err != nil {
		return nil, nil, err
	}
	blocks := trace.Blocks{Tokens: f.block}
	var hashes []int64
	return t, func() (w row, err error) {
		if err := t.Read(); err != nil {
			return row{}, err
		}
		if w.at, err = f.at(at); err != nil {
			return row{}, t.Bad(f.stamp, err)
		}
		if w.output, err = f.count(output); err != nil {
			return row{}, t.Bad(f.output, err)
		}
		if w.prompt, err = f.count(prompt); err == nil && w.prompt == 0 && w.output > 0 {
			_, err = textfile.Tokens(prompt)
		}
		if err != nil {
			return row{}, t.Bad(f.prompt, err)
		}
		if f.block > 0 {
			if hashes, err = wholeNumbers(ids, hashes[:0]); err == nil {
				w.text, err = blocks.Text(hashes, w.prompt)
			}
			if err != nil {
				return row{}, t.Bad(hashColumn, err)
			}
		}
		return w, nil
	}, nil
}

// wholeNumbers appends the numbers of an array to a list. They fit a float64, as
// which saved workloads hold them.
func wholeNumbers(array []byte, to []int64) ([]int64, error) {
	if array[0] != '[' {
		return to, fmt.Errorf("is %.40q, expected an array of whole numbers", array)
	}
	const most = 1e15
	n, digits, negative := int64(0), 0, false
	for i, c := range array {
		switch {
		case '0' <= c && c <= '9' && n < most/10:
			n, digits = n*10+int64(c-'0'), digits+1
		case c == '-' && digits == 0:
			negative = true
		case c == ' ' || c == '\t' || c == '[' && i == 0:
		case (c == ',' || c == ']') && digits > 0:
			if negative {
				n = -n
			}
			to = append(to, n)
			n, digits, negative = 0, 0, false
		case c == ']' && len(to) == 0:
		default:
			return to, errors.New("expected an array of whole numbers of up to 15 digits")
		}
	}
	return to, nil
}

// stamp reads a time stamp such as "2023-11-16 18:15:46.6805900", with 'T' instead
// of the space, decimal places or none, and "Z" or an offset "+00:00" at the end or
// nothing (UTC), as ns since 1970.
func stamp(b []byte) (int64, error) {
	const date, stamp, longest = 10, len("2006-01-02 15:04:05"), len("2006-01-02 15:04:05.123456789+00:00")
	const end = 7289654400 // s: the year 2201; int64 nanoseconds end in 2262
	var text [longest + 1]byte
	n := copy(text[:longest], b)
	if n == len(b) && n >= stamp && (b[date] == ' ' || b[date] == 'T') {
		text[date] = 'T'
		if !bytes.ContainsAny(b[stamp:], "Z+-") {
			text[n], n = 'Z', n+1
		}
		at, err := time.ParseInLocation(time.RFC3339, string(text[:n]), time.UTC) // the layout that is read fastest
		if s := at.Unix(); err == nil && s >= 0 && s < end {
			return at.UnixNano(), nil
		}
	}
	return 0, fmt.Errorf(
		"%.60q is not a time stamp, expected one like 2023-11-16 18:15:46.6805900 or 2024-05-12T00:00:00.123+00:00", b)
}
