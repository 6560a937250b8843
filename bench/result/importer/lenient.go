package importer

import (
	"encoding/json"
	"errors"
	"math"

	"lorasim/bench/result"
)

// lenient decodes what clients write. A value of another type than expected is absent: versions of a client differ in
// what describes a run. Figures are decoded as any, see figures.
func lenient(text []byte, to any) error {
	err := json.Unmarshal(text, to)
	if other := (*json.UnmarshalTypeError)(nil); errors.As(err, &other) {
		return nil
	}
	return err
}

// whole is a count, which a client may write as 3, 3.0 or "3".
type whole int64

// UnmarshalJSON implements json.Unmarshaler.
func (w *whole) UnmarshalJSON(text []byte) error {
	if v := number(text); math.Abs(v) < 1<<53 {
		*w = whole(v)
	}
	return nil
}

// number returns the number in a JSON value; NaN if there is none.
func number(text json.RawMessage) float64 {
	var v any
	if len(text) == 0 || json.Unmarshal(text, &v) != nil {
		return math.NaN()
	}
	return result.LooseFloat(v)
}
