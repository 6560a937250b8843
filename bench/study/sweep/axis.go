package sweep

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/scenario"
)

// An Axis is one setting with its values.
type Axis struct {
	Key    string   `json:"key"` // full key of the scenario: "workload.request_rate"
	Values []string `json:"values"`
}

// Leaf returns the last part of the key: "request_rate".
func (a Axis) Leaf() string { return a.Key[strings.LastIndexByte(a.Key, '.')+1:] }

// Numeric reports whether all values of the axis are finite numbers.
func (a Axis) Numeric() bool {
	return !slices.ContainsFunc(a.Values, func(v string) bool { return math.IsNaN(a.Number(v)) })
}

// Number returns a value of the axis as a number; NaN if it is not a finite number.
func (a Axis) Number(v string) float64 {
	x, err := strconv.ParseFloat(v, 64)
	if err != nil || math.IsInf(x, 0) {
		return math.NaN()
	}
	return x
}

const maxValues = 100_000 // of one axis

// ParseSet reads an axis such as "request_rate=4,8,16", "num_workers=1:8", "request_rate=1:4:0.5" (both ends included)
// or "max_loras_per_batch=1:64:x2". The separator is | for values that contain commas: "lora_ranks=8|8,16,32". A
// trailing | makes the text a single value.
func ParseSet(text string) (Axis, error) {
	key, list, ok := strings.Cut(text, "=")
	if !ok {
		return Axis{}, fmt.Errorf("%q: expected KEY=VALUES, such as request_rate=4,8,16", text)
	}
	separator := ","
	if strings.Contains(list, "|") {
		separator, list = "|", strings.TrimSuffix(list, "|")
	}
	return NewAxis(strings.TrimSpace(key), strings.Split(list, separator))
}

// NewAxis checks the values of a setting and converts them to the form that the scenario shows. The key is any name of
// the setting.
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
			if err := f.Set(&sc, e); err != nil {
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

// list writes values as ParseSet reads them; "": it cannot.
func list(values []string) string {
	switch text := strings.Join(values, "|"); {
	case strings.Count(text, "|") != len(values)-1:
		return ""
	case strings.Contains(text, ",") && len(values) == 1:
		return text + "|"
	case strings.Contains(text, ","):
		return text
	default:
		return strings.ReplaceAll(text, "|", ",")
	}
}

// joinOptions rejoins the options of a policy that were split at commas: a piece with = but without : belongs to the
// policy before it.
func joinOptions(values []string) (out []string) {
	for _, v := range values {
		last := len(out) - 1
		if last >= 0 && strings.Contains(v, "=") && !strings.Contains(v, ":") && strings.Contains(out[last], ":") {
			out[last] += "," + v
		} else {
			out = append(out, v)
		}
	}
	return out
}

// expand writes out LO:HI (whole numbers), LO:HI:STEP or LO:HI:xFACTOR. HI must be
// one of the values: a range that steps over its end is an error that names the
// nearest ranges that do not.
func expand(text string, whole bool) ([]string, error) {
	parts := strings.Split(text, ":")
	if len(parts) == 2 && whole {
		parts = append(parts, "1")
	}
	bad := fmt.Errorf("range %q: expected LO:HI:STEP or LO:HI:xFACTOR, as in 1:4:0.5 or 1:64:x2", text)
	if len(parts) != 3 {
		return nil, bad
	}
	var factor bool
	given := parts[2] // with the x of a factor
	parts[2], factor = strings.CutPrefix(parts[2], "x")
	var n [3]float64
	for i, p := range parts {
		if n[i] = (Axis{}).Number(p); math.IsNaN(n[i]) {
			return nil, bad
		}
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
	format := byte('g')
	if whole {
		format = 'f'
	}
	write := func(x float64) string { return strconv.FormatFloat(x, format, -1, 64) }
	var out []string
	for i := 0; ; i++ {
		x := lo + float64(i)*step // not by adding up, which would drift
		if factor {
			x = lo * math.Pow(step, float64(i))
		}
		x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', 12, 64), 64) // 0.1+0.2 is meant to be 0.3
		isWhole := x == math.Trunc(x)
		switch {
		case x > hi*(1+1e-9) && x > hi+1e-12:
			last := out[len(out)-1]
			if (Axis{}).Number(last) >= hi-1e-9*math.Abs(hi)-1e-12 {
				return out, nil
			}
			ranges := strings.Join([]string{parts[0], last, given}, ":")
			if !whole || isWhole {
				ranges += " or " + strings.Join([]string{parts[0], write(x), given}, ":")
			}
			return nil, fmt.Errorf("range %q ends at %s, not at %s: expected %s", text, last, parts[1], ranges)
		case whole && !isWhole:
			return nil, fmt.Errorf("range %q: %v is not a whole number", text, x)
		case len(out) == maxValues:
			return nil, fmt.Errorf("range %q: more than %d values", text, maxValues)
		}
		out = append(out, write(x))
	}
}
