// Package lengths draws the token lengths of requests: prompt tokens and output tokens. A [Sampler] draws lengths,
// independent or correlated; a [Budget] draws max_new_tokens.
//
//	s, err := lengths.Parse(ctx, "azure-conv")
//	src = lengths.Fill(src, s, seed)
//
// Function traces and synthetic arrivals need it; traces that hold lengths (package llm) do not.
package lengths

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"lorasim/internal/table"
	"lorasim/internal/textfile"
	"lorasim/trace"
)

// A Sampler draws the lengths of one request. Both are at least 1 token.
type Sampler interface {
	Draw(r *rand.Rand) (prompt, output int32)
}

// stream keeps the random numbers of lengths apart from those of arrivals and
// adapters, which may come from the same seed.
const stream = 0x6c656e67746873 // "lengths"

// Fill returns the requests of a source with lengths drawn from the sampler, in order; the same seed gives the same
// lengths. It clears MaxNew, Text and Reply, which depend on the replaced lengths.
func Fill(src trace.Source, s Sampler, seed uint64) trace.Source {
	return &filled{Source: src, sampler: s, rng: rand.New(rand.NewPCG(seed, stream))}
}

// filled sets lengths, budgets or both: one source of two costs less than two,
// a request being copied by each.
type filled struct {
	trace.Source
	sampler Sampler // nil: lengths are kept
	rng     *rand.Rand

	law       Budget // nil: no budgets are set
	keep      bool   // raise the budget where it is below the output
	budgetRng *rand.Rand
}

func (f *filled) Next() (trace.Request, error) {
	r, err := f.Source.Next()
	if err != nil {
		return r, err
	}
	if f.sampler != nil {
		r.Prompt, r.Output = f.sampler.Draw(f.rng)
		r.MaxNew, r.Text, r.Reply = 0, nil, nil
	}
	if f.law != nil {
		r.MaxNew = f.law(r.Output, f.budgetRng)
		if f.keep {
			r.MaxNew = max(r.MaxNew, r.Output)
		}
		r.Output = min(r.Output, r.MaxNew)
	}
	return r, nil
}

// Constant is a Sampler that gives every request the same lengths, tokens.
type Constant struct{ Prompt, Output int32 }

// Draw returns the lengths.
func (c Constant) Draw(*rand.Rand) (prompt, output int32) { return c.Prompt, c.Output }

// sampler draws by a function.
type sampler func(r *rand.Rand) (prompt, output int32)

func (s sampler) Draw(r *rand.Rand) (prompt, output int32) { return s(r) }

// span is a range of whole numbers, both ends included.
type span struct{ low, high int32 }

func (s span) draw(r *rand.Rand) int32 { return s.low + r.Int32N(s.high-s.low+1) }

// NewRandom returns a Sampler that draws both lengths uniformly from max(1, int(ratio*len)) to len, both included,
// as the serving benchmarks do for --random-input-len, --random-output-len and --random-range-ratio. Both lengths
// must be >= 1.
func NewRandom(prompt, output int32, ratio float64) (Sampler, error) {
	if !(ratio >= 0 && ratio <= 1) {
		return nil, fmt.Errorf("range ratio is %v, expected 0 to 1", ratio)
	}
	from := func(high int32) span { return span{max(1, int32(float64(high)*ratio)), high} }
	p, o := from(prompt), from(output)
	return sampler(func(r *rand.Rand) (int32, int32) { return p.draw(r), o.draw(r) }), nil
}

// maxRows bounds the rows of a table of lengths, 8 bytes each.
const maxRows = 1 << 24

// ReadTable returns a Sampler that draws rows of a table, with replacement. Prompt and output come from the same
// row, so their correlation stays. The table is a CSV file, plain or gzip-compressed, with the columns
// num_prefill_tokens and num_decode_tokens; other columns are ignored. Errors name the file, line and column. Memory
// is 8 bytes per row.
func ReadTable(ctx context.Context, path string) (Sampler, error) {
	f, err := textfile.Open(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	var cells [2]table.Raw
	columns := []table.Column{{Name: "num_prefill_tokens", Value: &cells[0]},
		{Name: "num_decode_tokens", Value: &cells[1]}}
	csv, err := table.OpenText(f, false, columns, false)
	if err != nil {
		return nil, err
	}
	defer csv.Close()
	var rows [][2]int32
	for err = csv.Read(); err == nil; err = csv.Read() {
		if len(rows) == maxRows {
			return nil, fmt.Errorf("%s: more than %d rows, the most that are read", path, maxRows)
		}
		var row [2]int32
		for i, text := range cells {
			if row[i], err = textfile.Tokens(text); err != nil {
				return nil, csv.Bad(columns[i].Name, err)
			}
		}
		rows = append(rows, row)
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s: length table has no rows", path)
	}
	return sampler(func(r *rand.Rand) (prompt, output int32) {
		row := &rows[r.IntN(len(rows))]
		return row[0], row[1]
	}), nil
}
