package result

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
)

// looseFields are the fields of d for reading what clients write: null, NaN and infinite numbers become NaN, and
// texts may be of any type.
func (d *Details) looseFields() map[string]any {
	fields := d.fields()
	fields["input_lens"], fields["output_lens"] = (*looseCounts)(&d.InputLens), (*looseCounts)(&d.OutputLens)
	fields["ttfts"], fields["latencies"] = (*looseFloats)(&d.TTFTs), (*looseFloats)(&d.Latencies)
	fields["start_times"], fields["itls"] = (*looseFloats)(&d.StartTimes), (*looseLists)(&d.ITLs)
	fields["queue_times"], fields["errors"] = (*looseFloats)(&d.QueueTimes), (*looseTexts)(&d.Errors)
	return fields
}

// LooseFloat returns the number of a JSON value: a number, or a text that holds one. Everything else, and a number that
// is not finite, is NaN.
func LooseFloat(v any) float64 {
	x, ok := v.(float64)
	if text, isText := v.(string); isText {
		var err error
		x, err = strconv.ParseFloat(text, 64)
		ok = err == nil
	}
	if !ok || math.IsInf(x, 0) {
		return math.NaN()
	}
	return x
}

// exact decodes text into to if every value has the type of to, which takes a fraction of the time.
func exact(text []byte, to any) bool {
	return !bytes.Contains(text, []byte("null")) && json.Unmarshal(text, to) == nil
}

type looseFloats []float64

func (fs *looseFloats) UnmarshalJSON(text []byte) error {
	if exact(text, (*[]float64)(fs)) {
		return nil
	}
	var values []any
	if err := json.Unmarshal(text, &values); err != nil {
		return err
	}
	*fs = nil
	for _, v := range values {
		*fs = append(*fs, LooseFloat(v))
	}
	return nil
}

type looseLists [][]float64

func (ls *looseLists) UnmarshalJSON(text []byte) error {
	if exact(text, (*[][]float64)(ls)) {
		return nil
	}
	var lists []looseFloats
	if err := json.Unmarshal(text, &lists); err != nil {
		return err
	}
	*ls = nil
	for _, l := range lists {
		*ls = append(*ls, l)
	}
	return nil
}

type looseCounts []int64

func (cs *looseCounts) UnmarshalJSON(text []byte) error {
	if exact(text, (*[]int64)(cs)) {
		return nil
	}
	var fs looseFloats
	if err := fs.UnmarshalJSON(text); err != nil {
		return err
	}
	*cs = nil
	for _, f := range fs {
		if !(math.Abs(f) < 1<<53) {
			f = 0
		}
		*cs = append(*cs, int64(f))
	}
	return nil
}

type looseTexts []string

func (ts *looseTexts) UnmarshalJSON(text []byte) error {
	var values []json.RawMessage
	if err := json.Unmarshal(text, &values); err != nil {
		return err
	}
	*ts = make([]string, len(values))
	for i, v := range values {
		switch s := string(v); {
		case json.Unmarshal(v, &(*ts)[i]) == nil: // a text, or null
		case s == "false" || s == "0" || s == "{}" || s == "[]":
		default:
			(*ts)[i] = s
		}
	}
	return nil
}
