package textfile

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"lorasim/internal/suggest"
)

var errNoNumber = errors.New("is empty, expected a number")

// Int reads a whole number.
func Int(b []byte) (int64, error) {
	digits := b
	if len(b) > 0 && b[0] == '-' {
		digits = b[1:]
	}
	if len(digits) == 0 || len(digits) > 18 { // 18 digits cannot overflow
		return slowInt(b)
	}
	var n int64
	for _, c := range digits {
		if !isDigit(c) {
			return slowInt(b)
		}
		n = n*10 + int64(c-'0')
	}
	if len(digits) < len(b) {
		n = -n
	}
	return n, nil
}

// slowInt reads the numbers that the fast path leaves and words the errors.
func slowInt(b []byte) (int64, error) {
	if len(b) == 0 {
		return 0, errNoNumber
	}
	for i, c := range b {
		if !isDigit(c) && (c != '-' || i > 0 || len(b) == 1) {
			return 0, fmt.Errorf("%q is not a whole number", clip(string(b)))
		}
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is out of range", clip(string(b)))
	}
	return n, nil
}

// Count reads a whole number >= 0 that an int32 can hold.
func Count(b []byte) (int32, error) {
	n, err := Int(b)
	switch {
	case err != nil:
		return 0, err
	case n < 0:
		return 0, fmt.Errorf("%d is negative, expected >= 0", n)
	case n > math.MaxInt32:
		return 0, fmt.Errorf("%d is too large, expected <= %d", n, math.MaxInt32)
	}
	return int32(n), nil
}

// Float reads a decimal number, to the nearest float64.
func Float(b []byte) (float64, error) {
	if len(b) == 0 {
		return 0, errNoNumber
	}
	for _, c := range b {
		// strconv also takes hexadecimals, underscores, inf and nan.
		if !isDigit(c) && c != '.' && c != '-' && c != '+' && c != 'e' && c != 'E' {
			return 0, fmt.Errorf("%q is not a decimal number", clip(string(b)))
		}
	}
	x, err := strconv.ParseFloat(string(b), 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%s is out of range", clip(string(b)))
	}
	if err != nil {
		return 0, fmt.Errorf("%q is not a decimal number", clip(string(b)))
	}
	return x, nil
}

// Fixed reads a decimal number >= 0 without exponent, exactly, as a whole
// number of 10^-places: Fixed("1.5", 3) is 1500.
func Fixed(b []byte, places int) (int64, error) {
	if len(b) == 0 {
		return 0, errNoNumber
	}
	var n int64
	digits, point := 0, -1
	for i, c := range b {
		switch {
		case c == '.' && point < 0 && digits > 0:
			point = i
		case !isDigit(c):
			if c == '-' && i == 0 && len(b) > 1 {
				return 0, fmt.Errorf("%s is negative, expected >= 0", clip(string(b)))
			}
			return 0, fmt.Errorf("%q is not a decimal number", clip(string(b)))
		default:
			if point >= 0 && i-point > places {
				if c != '0' {
					return 0, fmt.Errorf("%s has more than %d decimal places", clip(string(b)), places)
				}
				continue
			}
			if n > (math.MaxInt64-int64(c-'0'))/10 {
				return 0, fmt.Errorf("%s is too large", clip(string(b)))
			}
			n = n*10 + int64(c-'0')
			digits++
		}
	}
	if point == len(b)-1 {
		return 0, fmt.Errorf("%q is not a decimal number", clip(string(b)))
	}
	missing := places
	if point >= 0 {
		missing = max(0, places-(len(b)-1-point))
	}
	for range missing {
		if n > math.MaxInt64/10 {
			return 0, fmt.Errorf("%s is too large", clip(string(b)))
		}
		n *= 10
	}
	return n, nil
}

// Unknown is the error for a word of a file that is not one of the known ones; it
// may be of any length.
func Unknown(what, word string, known []string) error {
	return suggest.Unknown(what, clip(word), known)
}

// clip shortens a text for an error message.
func clip(s string) string {
	const most = 120
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
