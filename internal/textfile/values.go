package textfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"lorasim/internal/suggest"
)

// Object reads the next line, which holds one JSON object (RFC 8259). It calls visit for each member with the raw
// texts of key and value, and returns visit's errors unchanged. At the end of the file the error is io.EOF.
func (f *File) Object(visit func(key, value []byte) error) error {
	line, err := f.Line()
	if err != nil {
		return err
	}
	line = f.plainJSON(line)
	f.json = *bytes.NewBuffer(line)
	d := &f.decoder
	d.Reset(&f.json, jsontext.AllowDuplicateNames(true))
	if d.PeekKind() != '{' {
		return f.Bad("", fmt.Errorf("%q is not a JSON object", suggest.Clip(string(line))))
	}
	value := func() []byte {
		var v []byte
		if err == nil {
			v, err = d.ReadValue()
		}
		end := int(d.InputOffset())
		return line[end-len(v) : end]
	}
	for _, err = d.ReadToken(); err == nil && d.PeekKind() != '}'; {
		key, v := value(), value()
		if err != nil {
			break
		}
		if err := visit(key, v); err != nil {
			return err
		}
	}
	if err == nil {
		d.ReadToken() // }
		if _, err = d.ReadToken(); errors.Is(err, io.EOF) {
			return nil
		}
		err = cmp.Or(err, errors.New("data after the JSON object on this line"))
	}
	var syntax *jsontext.SyntacticError
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("JSON object ends too early")
	} else if errors.As(err, &syntax) {
		err = fmt.Errorf("character %d: %w", syntax.ByteOffset+1, syntax.Err)
	}
	return f.Bad("", err)
}

// plainJSON replaces the numbers that Python writes and JSON lacks (NaN, Infinity, -Infinity) by null. It returns line
// itself if there are none.
func (f *File) plainJSON(line []byte) []byte {
	if !bytes.Contains(line, []byte("NaN")) && !bytes.Contains(line, []byte("Infinity")) {
		return line
	}
	f.plain = f.plain[:0]
	for quoted, i := false, 0; i < len(line); i++ {
		word := 0 // length of a number to replace
		for _, w := range []string{"NaN", "Infinity", "-Infinity"} {
			if !quoted && bytes.HasPrefix(line[i:], []byte(w)) {
				word = len(w)
			}
		}
		switch c := line[i]; {
		case word > 0:
			f.plain = append(f.plain, "null"...)
			i += word - 1
			continue
		case c == '"':
			quoted = !quoted
		case c == '\\' && i+1 < len(line):
			f.plain = append(f.plain, c)
			i++
		}
		f.plain = append(f.plain, line[i])
	}
	return f.plain
}

// Text returns the value of a raw JSON string, such as [File.Object] passes to visit.
func Text(raw []byte) ([]byte, error) {
	switch {
	case raw[0] != '"':
		return nil, fmt.Errorf("%s is not a string", suggest.Clip(string(raw)))
	case bytes.IndexByte(raw, '\\') < 0:
		return raw[1 : len(raw)-1], nil
	}
	return jsontext.AppendUnquote(nil, raw)
}

var errNoNumber = errors.New("is empty, expected a number")

// no is the error of a text that is no number of a kind.
func no(kind string, b []byte) error {
	if len(b) == 0 {
		return errNoNumber
	}
	return fmt.Errorf("%q is not a %s number", suggest.Clip(string(b)), kind)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// Digits reports whether every character of a text is a decimal digit.
func Digits(b []byte) bool {
	for _, c := range b {
		if !isDigit(c) {
			return false
		}
	}
	return true
}

// Int parses a whole number.
func Int(b []byte) (int64, error) {
	digits := bytes.TrimPrefix(b, []byte{'-'})
	var n int64
	for _, c := range digits {
		if !isDigit(c) {
			return 0, no("whole", b)
		}
		n = n*10 + int64(c-'0')
	}
	switch {
	case len(digits) == 0:
		return 0, no("whole", b)
	case len(digits) > 18: // it may have overflowed
		n, err := strconv.ParseInt(string(b), 10, 64)
		if err != nil {
			err = fmt.Errorf("%s is out of range", suggest.Clip(string(b)))
		}
		return n, err
	case len(digits) < len(b):
		n = -n
	}
	return n, nil
}

// Count parses a whole number from 0 to the largest int32.
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

// Tokens parses a number of tokens, from 1 to the largest int32.
func Tokens(b []byte) (int32, error) {
	n, err := Count(b)
	if err == nil && n == 0 {
		err = errors.New("is 0, expected >= 1 token")
	}
	return n, err
}

// Float parses a decimal number and returns the nearest float64.
func Float(b []byte) (float64, error) {
	for _, c := range b {
		// strconv also takes hexadecimals, underscores, inf and nan.
		if !isDigit(c) && c != '.' && c != '-' && c != '+' && c != 'e' && c != 'E' {
			return 0, no("decimal", b)
		}
	}
	x, err := strconv.ParseFloat(string(b), 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%s is out of range", suggest.Clip(string(b)))
	}
	if err != nil {
		return 0, no("decimal", b)
	}
	return x, nil
}

// Fixed parses a decimal number >= 0 without exponent, exactly, in units of 10^-places: Fixed("1.5", 3) is 1500.
func Fixed(b []byte, places int) (int64, error) {
	whole, fraction, point := bytes.Cut(b, []byte{'.'})
	kept := fraction[:min(places, len(fraction))]
	switch {
	case len(b) > 1 && b[0] == '-':
		return 0, fmt.Errorf("%s is negative, expected >= 0", suggest.Clip(string(b)))
	case len(whole) == 0 || point && len(fraction) == 0 || !Digits(whole) || !Digits(fraction):
		return 0, no("decimal", b)
	case len(kept) < len(fraction) && len(bytes.TrimLeft(fraction[len(kept):], "0")) > 0:
		return 0, fmt.Errorf("%s has more than %d decimal places", suggest.Clip(string(b)), places)
	}
	digits := append(append(make([]byte, 0, 32), whole...), kept...)
	for range places - len(kept) {
		digits = append(digits, '0')
	}
	n, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil {
		err = fmt.Errorf("%s is too large", suggest.Clip(string(b)))
	}
	return n, err
}
