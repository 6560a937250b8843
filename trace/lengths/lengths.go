// Package lengths draws the token lengths of requests: prompt tokens and
// output tokens, independent of each other unless they come from a table.
//
//	s, err := lengths.Parse("azure-conv")
//	src = lengths.Fill(src, s, seed)
//
// Traces that state their own lengths (package llm) need none of this; function
// traces and synthetic arrivals do.
package lengths

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"lorasim/internal/suggest"
	"lorasim/internal/table"
	"lorasim/internal/textfile"
	"lorasim/trace"
)

// Sampler draws the lengths of one request. Both are at least 1 token.
type Sampler interface {
	Draw(r *rand.Rand) (prompt, output int32)
}

// stream keeps the random numbers of lengths apart from those of arrivals and
// adapters, which may come from the same seed.
const stream = 0x6c656e67746873 // "lengths"

// Fill sets the lengths of the requests of a source, in their order, from the
// sampler's first draw on: the same seed gives the same lengths. It clears
// MaxNew, Text and Reply, which belonged to the lengths before.
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

// Constant gives every request the same lengths.
type Constant struct{ Prompt, Output int32 }

// Draw returns the lengths.
func (c Constant) Draw(*rand.Rand) (prompt, output int32) { return c.Prompt, c.Output }

// sampler draws by a function.
type sampler func(r *rand.Rand) (prompt, output int32)

func (s sampler) Draw(r *rand.Rand) (prompt, output int32) { return s(r) }

// span is a range of whole numbers, both ends included.
type span struct{ low, high int32 }

func (s span) draw(r *rand.Rand) int32 { return s.low + r.Int32N(s.high-s.low+1) }

// NewRandom draws both lengths evenly from the whole numbers between
// max(1, int(ratio*len)) and len, both included, as the serving benchmarks do
// for --random-input-len, --random-output-len and --random-range-ratio. Both
// lengths must be >= 1.
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

// ReadTable draws the lengths of rows of a table, with replacement: prompt and output
// of one row together, so that their correlation stays. It reads a CSV file, plain or
// gzip-compressed, with the columns num_prefill_tokens and num_decode_tokens; others
// are ignored. Errors name the file, line and column. It takes 8 bytes of memory per
// row.
func ReadTable(path string) (Sampler, error) {
	f, err := textfile.Open(path, nil)
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

// Budget is a law of max_new_tokens: how many tokens clients ask for at most, which
// engines reserve memory for and routers see, while the output is known to nobody
// before it is there. It returns the budget, >= 1, of a request that would generate
// so many tokens.
type Budget func(output int32, r *rand.Rand) int32

// BudgetForms says what ParseBudget takes.
const BudgetForms = "exact, constant:N or N, factor:F or xF, uniform:LOW,HIGH, lognormal:mean=M,sigma=S[,cap=C], mix:N=WEIGHT[,N=WEIGHT]"

// ParseBudget turns a spec into a law:
//
//	exact                  the output itself, as of benchmarks that ignore the end of text
//	constant:2048, 2048    a constant, as of most clients
//	factor:1.5, x1.5       a multiple of the output, rounded up
//	uniform:256,2048       evenly between two limits, both included
//	lognormal:mean=600,sigma=0.8,cap=4096
//	mix:256=1,1024=3,2048=1  constants of several kinds of client, by weight
func ParseBudget(spec string) (Budget, error) {
	b, err := parseBudget(strings.Cut(spec, ":"))
	if err != nil {
		return nil, fmt.Errorf("max_new_tokens %q: %w", spec, err)
	}
	return b, nil
}

func parseBudget(name, args string, hasArgs bool) (Budget, error) {
	if !hasArgs { // the short forms
		if n, err := length("", name); err == nil {
			name, args = "constant", strconv.Itoa(int(n))
		} else if f, ok := strings.CutPrefix(name, "x"); ok {
			name, args = "factor", f
		}
	}
	switch name {
	case "exact":
		if args != "" {
			return nil, errors.New("exact takes no options")
		}
		return func(output int32, _ *rand.Rand) int32 { return output }, nil
	case "constant":
		n, err := length("constant", args)
		return func(int32, *rand.Rand) int32 { return n }, err
	case "factor":
		f, err := number("factor", args)
		if err == nil && !(f >= 1 && f <= 1e6) {
			err = fmt.Errorf("factor is %s, expected a number from 1 to 1000000", args)
		}
		return func(output int32, _ *rand.Rand) int32 {
			return int32(min(math.Ceil(f*float64(output)), math.MaxInt32))
		}, err
	case "uniform":
		low, high, ok := strings.Cut(args, ",")
		if !ok {
			return nil, errors.New("expected uniform:LOW,HIGH")
		}
		lo, hi, err := twoLengths("low", low, "high", high)
		if err == nil && hi < lo {
			err = fmt.Errorf("high (%d) is below low (%d)", hi, lo)
		}
		return func(_ int32, r *rand.Rand) int32 { return span{lo, hi}.draw(r) }, err
	case "lognormal":
		spec := tokensSpec{which: "budget"}
		given, err := readOptions(args, spec.options("")...)
		if err != nil {
			return nil, fmt.Errorf("%w; expected lognormal:mean=M,sigma=S[,cap=C]", err)
		}
		t, err := spec.tokens("", given)
		return func(_ int32, r *rand.Rand) int32 { return t.Draw(r) }, err
	case "mix":
		return parseMix(args)
	}
	return nil, suggest.Unknown("law", name, []string{"exact", "constant", "factor", "uniform", "lognormal", "mix"})
}

// parseMix reads constants that are drawn by weight.
func parseMix(args string) (Budget, error) {
	var tokens []int32
	var upTo []float64 // cumulative weights
	sum := 0.0
	for part := range strings.SplitSeq(args, ",") {
		count, weight, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fmt.Errorf("%q, expected mix:N=WEIGHT[,N=WEIGHT]", part)
		}
		n, err := length("budget", count)
		if err != nil {
			return nil, err
		}
		w, err := number("weight", weight)
		if err == nil && !(w > 0 && w <= 1e9) {
			err = fmt.Errorf("weight is %s, expected a number above 0, at most 1e9", weight)
		}
		if err != nil {
			return nil, err
		}
		sum += w
		tokens, upTo = append(tokens, n), append(upTo, sum)
	}
	return func(_ int32, r *rand.Rand) int32 {
		u := r.Float64() * sum
		for i, end := range upTo[:len(upTo)-1] {
			if u < end {
				return tokens[i]
			}
		}
		return tokens[len(tokens)-1]
	}, nil
}

const budgetStream = 0x627564676574 // "budget"

// WithBudget sets the budgets of the requests of a source: the same seed gives the
// same budgets. Where a budget is below the output, the output ends there, as it
// would at a server; with keep the budget is raised instead.
func WithBudget(src trace.Source, b Budget, keep bool, seed uint64) trace.Source {
	f := filled{Source: src}
	if inner, ok := src.(*filled); ok && inner.law == nil {
		f = *inner // the same source sets both
	}
	f.law, f.keep, f.budgetRng = b, keep, rand.New(rand.NewPCG(seed, budgetStream))
	return &f
}
