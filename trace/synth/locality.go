package synth

import (
	"fmt"
	"math"
)

// Locality makes requests repeat adapters: with probability P a request uses
// one of the last Window distinct adapters, all equally likely, instead of its
// own. The own choice may be a recent one too, so repetitions are more frequent
// than P; and since recent adapters are equally likely, a Window > 1 evens out
// their shares somewhat.
type Locality struct {
	P      float64 // 0 to 1; 0: none
	Window int     // distinct adapters, >= 1
}

const (
	defaultWindow = 4
	maxWindow     = 1024 // the window is searched for each request
)

// ParseLocality reads "0.5" (window 4), "0.5,8" (with the window) or "0".
func ParseLocality(s string) (Locality, error) {
	_, args := splitSpec(":" + s)
	xs, err := parseNumbers(args, 1, 2)
	if err != nil {
		return Locality{}, fmt.Errorf("locality %q (probability, window): %w", s, err)
	}
	l := Locality{P: xs[0], Window: defaultWindow}
	if len(xs) == 2 {
		if xs[1] != math.Trunc(xs[1]) || math.Abs(xs[1]) > maxWindow {
			return Locality{}, fmt.Errorf("locality %q: window is %v, expected a whole number from 1 to %d", s, xs[1], maxWindow)
		}
		l.Window = int(xs[1])
	}
	if l.P == 0 {
		l = Locality{}
	}
	if err := l.Check(); err != nil {
		return Locality{}, fmt.Errorf("locality %q: %w", s, err)
	}
	return l, nil
}

// String returns the spec that ParseLocality reads.
func (l Locality) String() string {
	if l.P == 0 {
		return "0"
	}
	return formatSpec("", l.P, float64(l.Window))[1:]
}

// Check says what is wrong with l, or nil.
func (l Locality) Check() error {
	switch {
	case !(l.P >= 0 && l.P <= 1):
		return fmt.Errorf("locality is %v, expected a probability from 0 to 1", l.P)
	case l.P > 0 && (l.Window < 1 || l.Window > maxWindow):
		return fmt.Errorf("locality window is %d, expected 1 to %d adapters", l.Window, maxWindow)
	}
	return nil
}
