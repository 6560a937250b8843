package lengths

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"lorasim/trace"
	"lorasim/trace/settings"
)

// A Budget is a distribution of max_new_tokens, the limit that clients set on outputs. Engines reserve memory for it
// and routers see it; the output length is unknown until the request ends. A Budget returns the limit, >= 1, of a
// request with the given number of output tokens.
type Budget func(output int32, r *rand.Rand) int32

// BudgetHelp describes the specs that ParseBudget reads.
const BudgetHelp = "exact, constant:N or N, factor:F or xF, uniform:LOW,HIGH, lognormal:mean=M,sigma=S[,cap=C], mix:N=WEIGHT[,N=WEIGHT]"

// ParseBudget parses a spec of a Budget:
//
//	exact                  the output itself, as in benchmarks that ignore the end of text
//	constant:2048, 2048    a constant, as in most clients
//	factor:1.5, x1.5       a multiple of the output, rounded up
//	uniform:256,2048       uniform between two limits, both included
//	lognormal:mean=600,sigma=0.8,cap=4096
//	mix:256=1,1024=3,2048=1  constants of several kinds of client, by weight
func ParseBudget(spec string) (Budget, error) {
	s, err := settings.Parse("max_new_tokens", budgetKinds(), longBudget(spec))
	if err != nil {
		return nil, err
	}
	b, err := s.Value.budget()
	if err != nil {
		return nil, fmt.Errorf("max_new_tokens %s: %w", s.Name, err)
	}
	return b, nil
}

// longBudget writes the short forms 2048 and x1.5 in full.
func longBudget(spec string) string {
	text := strings.TrimSpace(spec)
	if _, err := strconv.ParseInt(text, 10, 64); err == nil {
		return "constant:" + text
	}
	if f, ok := strings.CutPrefix(text, "x"); ok {
		return "factor:" + f
	}
	return spec
}

// BudgetForms returns the forms that ParseBudget reads.
func BudgetForms() []settings.Form { return settings.Forms(budgetKinds()) }

// budgetOptions are the options of one kind of budgets.
type budgetOptions interface{ budget() (Budget, error) }

func budgetKinds() []settings.Kind[budgetOptions] {
	return []settings.Kind[budgetOptions]{
		{Name: "exact", Summary: "the output itself, as of benchmarks that ignore the end of text",
			New: func() budgetOptions { return &exactBudget{} }},
		{Name: "constant", Summary: "a constant, as of most clients",
			New: func() budgetOptions { return &constantBudget{} }},
		{Name: "factor", Summary: "a multiple of the output, rounded up",
			New: func() budgetOptions { return &factorBudget{} }},
		{Name: "uniform", Summary: "evenly between two limits, both included",
			New: func() budgetOptions { return &uniformBudget{} }},
		{Name: "lognormal", Summary: "log-normal", New: func() budgetOptions { return &logNormalBudget{} }},
		{Name: "mix", Summary: "constants of several kinds of client, by weight",
			New: func() budgetOptions { return &mixBudget{} }},
	}
}

type exactBudget struct{}

func (*exactBudget) budget() (Budget, error) {
	return func(output int32, _ *rand.Rand) int32 { return output }, nil
}

type constantBudget struct {
	Tokens int32 `arg:"1" required:"yes" check:">=1" unit:"tokens" help:"budget of every request"`
}

func (o *constantBudget) budget() (Budget, error) {
	return func(int32, *rand.Rand) int32 { return o.Tokens }, nil
}

type factorBudget struct {
	Factor float64 `arg:"1" required:"yes" check:">=1 <=1e6" help:"budget as a multiple of the output"`
}

func (o *factorBudget) budget() (Budget, error) {
	return func(output int32, _ *rand.Rand) int32 {
		return int32(min(math.Ceil(o.Factor*float64(output)), math.MaxInt32))
	}, nil
}

type uniformBudget struct {
	Low  int32 `arg:"1" required:"yes" check:">=1" unit:"tokens" help:"smallest budget"`
	High int32 `arg:"2" required:"yes" check:">=1" unit:"tokens" help:"largest budget"`
}

// Check implements settings.Checker.
func (o *uniformBudget) Check(settings.Given) error {
	if o.High < o.Low {
		return fmt.Errorf("high (%d) is below low (%d)", o.High, o.Low)
	}
	return nil
}

func (o *uniformBudget) budget() (Budget, error) {
	return func(_ int32, r *rand.Rand) int32 { return span{o.Low, o.High}.draw(r) }, nil
}

type logNormalBudget struct {
	Mean   float64 `check:">0" unit:"tokens" help:"mean, after capping"`
	Median float64 `check:">0" unit:"tokens" help:"median, in place of the mean"`
	Sigma  float64 `required:"yes" check:">=0 <=10" help:"sigma"`
	Cap    int32   `default:"2147483647" check:">=1" unit:"tokens" help:"largest budget"`
}

// Check implements settings.Checker.
func (o *logNormalBudget) Check(settings.Given) error { return meanOrMedian("", o.Mean, o.Median) }

func (o *logNormalBudget) budget() (Budget, error) {
	t, err := tokensOf(o.Mean, o.Median, o.Sigma, o.Cap)
	return func(_ int32, r *rand.Rand) int32 { return t.Draw(r) }, err
}

type mixBudget struct {
	Weights weights `arg:"1" required:"yes" commas:"yes" pairs:"= ," help:"N=WEIGHT,N=WEIGHT: budgets and how often they occur"`
}

// weights are budgets, tokens, and their cumulative weights.
type weights struct {
	tokens []int32
	upTo   []float64
}

// UnmarshalText implements encoding.TextUnmarshaler. It reads "256=1,1024=3".
func (w *weights) UnmarshalText(text []byte) error {
	*w = weights{}
	sum := 0.0
	for part := range strings.SplitSeq(string(text), ",") {
		count, weight, ok := strings.Cut(part, "=")
		n, err := strconv.ParseInt(strings.TrimSpace(count), 10, 32)
		x, wrong := strconv.ParseFloat(strings.TrimSpace(weight), 64)
		if !ok || err != nil || n < 1 || wrong != nil || !(x > 0 && x <= 1e9) {
			return fmt.Errorf("%q is not N=WEIGHT with a whole number N >= 1 and a weight > 0 and <= 1e9", part)
		}
		sum += x
		w.tokens, w.upTo = append(w.tokens, int32(n)), append(w.upTo, sum)
	}
	return nil
}

func (o *mixBudget) budget() (Budget, error) {
	tokens, upTo := o.Weights.tokens, o.Weights.upTo
	if tokens == nil {
		return nil, errors.New("no budgets")
	}
	return func(_ int32, r *rand.Rand) int32 {
		u := r.Float64() * upTo[len(upTo)-1]
		for i, end := range upTo[:len(upTo)-1] {
			if u < end {
				return tokens[i]
			}
		}
		return tokens[len(tokens)-1]
	}, nil
}

const budgetStream = 0x627564676574 // "budget"

// WithBudget returns the requests of a source with budgets (MaxNew) drawn from b; the same seed gives the same
// budgets. If a budget is below the output, the output ends at the budget, as on a server; with keep the budget is
// raised to the output instead.
func WithBudget(src trace.Source, b Budget, keep bool, seed uint64) trace.Source {
	f := filled{Source: src}
	if inner, ok := src.(*filled); ok && inner.law == nil {
		f = *inner // the same source sets both
	}
	f.law, f.keep, f.budgetRng = b, keep, rand.New(rand.NewPCG(seed, budgetStream))
	return &f
}
