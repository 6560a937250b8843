package scenario

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"lorasim/internal/bounds"
	"lorasim/internal/suggest"
	"lorasim/router"
	"lorasim/trace/azure"
	"lorasim/trace/lengths"
	"lorasim/trace/synth"
)

// The tag check of a setting says which values it takes:
//
//	">=0 <1"        numbers in these bounds (package bounds)
//	"oneof a b c"   these words; the empty one, too, where it is the default
//	"parse"         what its parser takes
//	"any"           any text; what it names is looked for when it is used
//
// Switches need none.

// Fault is an error of the scenario itself, not of its files or its run.
type Fault struct{ err error }

func (f *Fault) Error() string { return f.err.Error() }
func (f *Fault) Unwrap() error { return f.err }

func fault(err error) error {
	if err == nil {
		return nil
	}
	return &Fault{err}
}

// parsers check the settings whose tag says so. Empty texts never get there
// where they are the default.
var parsers = map[string]func(string) error{
	"lora_ranks": dropValue(synth.ParseRanks),
	"popularity": dropValue(synth.ParsePopularity),
	"arrivals":   dropValue(synth.ParseArrivals),
	"pattern":    dropValue(synth.ParsePattern),
	"locality":   dropValue(synth.ParseLocality),
	"max_new_tokens": func(text string) error {
		if text == "auto" || text == budgetOfTrace {
			return nil
		}
		_, err := lengths.ParseBudget(text)
		return err
	},
	"sessions":         dropValue(synth.ParseSessions),
	"lengths":          checkLengths,
	"trace_start_time": dropValue(azure.ParseInstant),
	"trace_end_time":   dropValue(azure.ParseInstant),
	"trace_histogram":  checkHistogram,
	"outages":          dropValue(parseOutages),
	"policy":           router.CheckSpec,
}

func dropValue[T any](parse func(string) (T, error)) func(string) error {
	return func(s string) error { _, err := parse(s); return err }
}

func checkLengths(s string) error {
	// files are looked for when they are used
	if slices.Contains([]string{"auto", "random", NoLengths}, s) || strings.HasPrefix(s, "table:") || strings.HasPrefix(s, "copula:") {
		return nil
	}
	_, err := lengths.Parse(s)
	return err
}

func checkHistogram(s string) error {
	if strings.HasSuffix(s, ".json") {
		return nil
	}
	counts, err := parseHistogram(s)
	for _, row := range counts {
		for _, n := range row {
			if n > 0 {
				return err
			}
		}
	}
	return cmp.Or(err, fmt.Errorf("%q holds no requests", s))
}

// defaults are those of Default, for the words that stand for "not given".
var defaults = Default()

// parse turns a text into a value of the setting. Errors tell what was expected.
func (f Field) parse(text string) (reflect.Value, error) {
	var v any
	var err error
	switch f.kind.Kind() {
	case reflect.String:
		v, err = text, f.checkText(text)
	case reflect.Bool:
		if v, err = strconv.ParseBool(text); err != nil {
			err = fmt.Errorf("%q is not true or false", text)
		}
	case reflect.Int, reflect.Int64:
		n, e := strconv.ParseInt(text, 10, 64)
		v, err = n, f.checkNumber(text, float64(n), e, "a whole number")
	case reflect.Uint64:
		n, e := strconv.ParseUint(text, 10, 64)
		v, err = n, f.checkNumber(text, float64(n), e, "a whole number")
	case reflect.Float64:
		x, e := strconv.ParseFloat(text, 64)
		v, err = x, f.checkNumber(text, x, e, "a number")
	case reflect.Slice:
		var xs []float64
		for part := range strings.SplitSeq(text, ",") {
			x, e := strconv.ParseFloat(strings.TrimSpace(part), 64)
			if err = f.checkNumber(text, x, e, "a list of numbers"); err != nil {
				break
			}
			xs = append(xs, x)
		}
		v = xs
	default:
		panic("scenario: no values for " + f.kind.String())
	}
	if err != nil {
		return reflect.Value{}, err
	}
	return reflect.ValueOf(v).Convert(f.kind), nil
}

// Check says what is wrong with a value in the form of a flag, or nil.
func (f Field) Check(text string) error {
	_, err := f.parse(text)
	return err
}

func (f Field) checkNumber(text string, x float64, err error, what string) error {
	b := bounds.MustParse(f.check)
	if err == nil && b.Has(x) && !math.IsNaN(x) {
		return nil
	}
	return fmt.Errorf("%q is not %s", text, strings.TrimSpace(what+" "+b.String()))
}

func (f Field) checkText(text string) error {
	if text == "" && f.Get(&defaults) == "" {
		return nil
	}
	if words, ok := strings.CutPrefix(f.check, "oneof "); ok {
		if known := strings.Fields(words); !slices.Contains(known, text) {
			return suggest.Unknown("value", text, known)
		}
	}
	if f.check == "parse" {
		return parsers[f.Leaf()](text)
	}
	return nil
}
