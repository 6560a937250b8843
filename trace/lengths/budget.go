package lengths

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"lorasim/internal/suggest"
	"lorasim/trace"
)

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
