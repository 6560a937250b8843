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
// before it is there.
type Budget interface {
	// Draw returns the budget, >= 1, of a request that would generate so many tokens.
	Draw(output int32, r *rand.Rand) int32
}

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
	name, args, _ := strings.Cut(spec, ":")
	b, err := parseBudget(name, args)
	if err != nil {
		return nil, fmt.Errorf("max_new_tokens %q: %w", spec, err)
	}
	return b, nil
}

func parseBudget(name, args string) (Budget, error) {
	if n, err := strconv.ParseInt(name, 10, 32); err == nil && n >= 1 && args == "" {
		return constantBudget(n), nil
	}
	if f, ok := strings.CutPrefix(name, "x"); ok && args == "" {
		return parseFactor(f)
	}
	switch name {
	case "exact":
		if args != "" {
			return nil, errors.New("exact takes no options")
		}
		return exactBudget{}, nil
	case "constant":
		n, err := length("constant", args)
		return constantBudget(n), err
	case "factor":
		return parseFactor(args)
	case "uniform":
		low, high, ok := strings.Cut(args, ",")
		if !ok {
			return nil, errors.New("expected uniform:LOW,HIGH")
		}
		lo, err := length("low", low)
		if err != nil {
			return nil, err
		}
		hi, err := length("high", high)
		if err == nil && hi < lo {
			err = fmt.Errorf("high (%d) is below low (%d)", hi, lo)
		}
		return uniformBudget{lo, hi}, err
	case "lognormal":
		return parseLogNormalBudget(args)
	case "mix":
		return parseMix(args)
	}
	return nil, suggest.Unknown("law", name, []string{"exact", "constant", "factor", "uniform", "lognormal", "mix"})
}

type exactBudget struct{}

func (exactBudget) Draw(output int32, _ *rand.Rand) int32 { return output }

type constantBudget int32

func (c constantBudget) Draw(int32, *rand.Rand) int32 { return int32(c) }

type factorBudget float64

func parseFactor(text string) (Budget, error) {
	f, err := number("factor", text)
	if err == nil && !(f >= 1 && f <= 1e6) {
		err = fmt.Errorf("factor is %s, expected a number from 1 to 1000000", text)
	}
	return factorBudget(f), err
}

func (f factorBudget) Draw(output int32, _ *rand.Rand) int32 {
	return int32(min(math.Ceil(float64(f)*float64(output)), math.MaxInt32))
}

type uniformBudget span

func (u uniformBudget) Draw(_ int32, r *rand.Rand) int32 { return span(u).draw(r) }

type logNormalBudget Tokens

func parseLogNormalBudget(args string) (Budget, error) {
	options := map[string]string{}
	for _, part := range strings.Split(args, ",") {
		key, value, ok := strings.Cut(part, "=")
		if _, twice := options["budget_"+key]; !ok || twice || key != "mean" && key != "median" && key != "sigma" && key != "cap" {
			return nil, fmt.Errorf("%q, expected lognormal:mean=M,sigma=S[,cap=C]", part)
		}
		options["budget_"+key] = value
	}
	t, err := parseTokens("budget", options)
	return logNormalBudget(t), err
}

func (l logNormalBudget) Draw(_ int32, r *rand.Rand) int32 { return Tokens(l).Draw(r) }

// mixBudget draws constants by weight.
type mixBudget struct {
	tokens []int32
	upTo   []float64 // cumulative weights
}

func parseMix(args string) (Budget, error) {
	m := mixBudget{}
	sum := 0.0
	for _, part := range strings.Split(args, ",") {
		tokens, weight, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fmt.Errorf("%q, expected mix:N=WEIGHT[,N=WEIGHT]", part)
		}
		n, err := length("budget", tokens)
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
		m.tokens, m.upTo = append(m.tokens, n), append(m.upTo, sum)
	}
	return m, nil
}

func (m mixBudget) Draw(_ int32, r *rand.Rand) int32 {
	u := r.Float64() * m.upTo[len(m.upTo)-1]
	for i, end := range m.upTo {
		if u < end {
			return m.tokens[i]
		}
	}
	return m.tokens[len(m.tokens)-1]
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
