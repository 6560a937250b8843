package sweep

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/scenario"
)

// Axis is one setting and the values it takes.
type Axis struct {
	Key    string   `json:"key"` // full key of the scenario: "workload.request_rate"
	Values []string `json:"values"`
}

// Leaf is the last part of the key: "request_rate".
func (a Axis) Leaf() string { return a.Key[strings.LastIndexByte(a.Key, '.')+1:] }

// Keys that have a place of their own in a sweep.
const (
	policyKey = "routing.policy"
	seedKey   = "seed"
)

const (
	maxValues = 100_000   // of one axis
	maxCells  = 1_000_000 // of a sweep
)

// ParseSet reads an axis such as "request_rate=4,8,16", "num_workers=1:8",
// "request_rate=1:4:0.5" (both ends included) or "max_loras_per_batch=1:64:x2".
// Values that hold commas themselves are separated by |: "lora_ranks=8|8,16,32";
// a trailing | makes one such value.
func ParseSet(text string) (Axis, error) {
	key, list, ok := strings.Cut(text, "=")
	if !ok {
		return Axis{}, fmt.Errorf("%q: expected KEY=VALUES, such as request_rate=4,8,16", text)
	}
	var values []string
	if strings.Contains(list, "|") {
		values = strings.Split(strings.TrimSuffix(list, "|"), "|")
	} else {
		values = strings.Split(list, ",")
	}
	return NewAxis(strings.TrimSpace(key), values)
}

// NewAxis checks the values of a setting, given by any name it has, and brings
// them into the form in which the scenario shows them.
func NewAxis(key string, values []string) (Axis, error) {
	f, err := scenario.Find(key)
	if err != nil {
		return Axis{}, err
	}
	if f.Key == policyKey {
		values = joinOptions(values)
	}
	a := Axis{Key: f.Key}
	for _, v := range values {
		expanded := []string{strings.TrimSpace(v)}
		if t := f.Type(); (t == "int" || t == "float") && strings.Contains(v, ":") {
			if expanded, err = expand(expanded[0], t == "int"); err != nil {
				return Axis{}, fmt.Errorf("%s: %w", f.Key, err)
			}
		}
		for _, e := range expanded {
			sc := scenario.Default()
			if err := sc.Set(f.Key, e); err != nil {
				return Axis{}, err
			}
			e = f.Get(&sc)
			if slices.Contains(a.Values, e) {
				return Axis{}, fmt.Errorf("%s: %q is given twice", f.Key, e)
			}
			a.Values = append(a.Values, e)
		}
	}
	if len(a.Values) == 0 {
		return Axis{}, fmt.Errorf("%s: no values", f.Key)
	}
	return a, nil
}

// joinOptions puts the options of a policy that commas parted together again:
// a piece with = but without : goes on with the policy before it.
func joinOptions(values []string) []string {
	var out []string
	for _, v := range values {
		if len(out) > 0 && strings.Contains(v, "=") && !strings.Contains(v, ":") && strings.Contains(out[len(out)-1], ":") {
			out[len(out)-1] += "," + v
			continue
		}
		out = append(out, v)
	}
	return out
}

// expand writes out LO:HI (whole numbers), LO:HI:STEP or LO:HI:xFACTOR.
func expand(text string, whole bool) ([]string, error) {
	parts := strings.Split(text, ":")
	if len(parts) == 2 && whole {
		parts = append(parts, "1")
	}
	bad := fmt.Errorf("range %q: expected LO:HI:STEP or LO:HI:xFACTOR, as in 1:4:0.5 or 1:64:x2", text)
	if len(parts) != 3 {
		return nil, bad
	}
	factor := strings.HasPrefix(parts[2], "x")
	var n [3]float64
	for i, p := range parts {
		x, err := strconv.ParseFloat(strings.TrimPrefix(p, "x"), 64)
		if err != nil || math.IsInf(x, 0) || math.IsNaN(x) || i < 2 && strings.HasPrefix(p, "x") {
			return nil, bad
		}
		n[i] = x
	}
	lo, hi, step := n[0], n[1], n[2]
	switch {
	case hi < lo:
		return nil, fmt.Errorf("range %q: ends below its start", text)
	case factor && (step <= 1 || lo <= 0):
		return nil, fmt.Errorf("range %q: expected a factor above 1 and a start above 0", text)
	case !factor && step <= 0:
		return nil, fmt.Errorf("range %q: expected a step above 0", text)
	}
	var out []string
	for i := 0; ; i++ {
		x := lo + float64(i)*step // not by adding up, which would drift
		if factor {
			x = lo * math.Pow(step, float64(i))
		}
		x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', 12, 64), 64) // 0.1+0.2 is meant to be 0.3
		if x > hi*(1+1e-9) && x > hi+1e-12 {
			return out, nil
		}
		if whole && x != math.Trunc(x) {
			return nil, fmt.Errorf("range %q: %v is no whole number", text, x)
		}
		if len(out) == maxValues {
			return nil, fmt.Errorf("range %q: more than %d values", text, maxValues)
		}
		format := byte('g')
		if whole {
			format = 'f'
		}
		out = append(out, strconv.FormatFloat(x, format, -1, 64))
	}
}

// SeedList returns n seeds that begin with first.
func SeedList(first uint64, n int) []uint64 {
	seeds := make([]uint64, n)
	for i := range seeds {
		seeds[i] = first + uint64(i)
	}
	return seeds
}
