package textfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"lorasim/internal/suggest"
)

// Object reads a line that holds one flat JSON object (RFC 8259) and calls
// visit for each of its members, with the key as it is written between the
// quotes and the raw text of the value. Values are numbers, strings, true,
// false, null or arrays of those; nested objects and arrays are errors.
// (encoding/json takes several times as long.)
func Object(line []byte, visit func(key, value []byte) error) error {
	s := scanner{b: line}
	if !s.token('{') {
		return s.expected("'{'")
	}
	if !s.token('}') {
		for {
			if err := s.member(visit); err != nil {
				return err
			}
			if s.token('}') {
				break
			}
			if !s.token(',') {
				return s.expected("',' or '}'")
			}
		}
	}
	if s.space(); s.i < len(s.b) {
		return s.expected("the end of the line")
	}
	return nil
}

// Text returns the string that a raw JSON string stands for.
func Text(raw []byte) ([]byte, error) {
	switch {
	case len(raw) < 2 || raw[0] != '"':
		return nil, fmt.Errorf("%s is not a string", clip(string(raw)))
	case !utf8.Valid(raw):
		return nil, errors.New("string is not valid UTF-8")
	case bytes.IndexByte(raw, '\\') < 0:
		return raw[1 : len(raw)-1], nil
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return []byte(s), err
}

type scanner struct {
	b []byte
	i int
}

func (s *scanner) expected(what string) error {
	if s.i >= len(s.b) {
		return fmt.Errorf("JSON object ends too early, expected %s", what)
	}
	return fmt.Errorf("character %d: found %q, expected %s", s.i+1, s.b[s.i], what)
}

func (s *scanner) space() {
	for s.i < len(s.b) && (s.b[s.i] == ' ' || s.b[s.i] == '\t' || s.b[s.i] == '\r' || s.b[s.i] == '\n') {
		s.i++
	}
}

// take goes past c if that comes next, and token also past space before it.
func (s *scanner) take(c byte) bool {
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

func (s *scanner) token(c byte) bool {
	s.space()
	return s.take(c)
}

// member reads `"key": value`.
func (s *scanner) member(visit func(key, value []byte) error) error {
	s.space()
	start := s.i
	if err := s.str(); err != nil {
		return err
	}
	key := s.b[start+1 : s.i-1]
	if !s.token(':') {
		return s.expected("':'")
	}
	s.space()
	start = s.i
	if err := s.value(); err != nil {
		return err
	}
	return visit(key, s.b[start:s.i])
}

// value reads a scalar or an array of scalars.
func (s *scanner) value() error {
	if !s.take('[') {
		return s.scalar()
	}
	if s.token(']') {
		return nil
	}
	for {
		s.space()
		if err := s.scalar(); err != nil {
			return err
		}
		if s.token(']') {
			return nil
		}
		if !s.token(',') {
			return s.expected("',' or ']'")
		}
	}
}

func (s *scanner) scalar() error {
	if s.i == len(s.b) {
		return s.expected("a value")
	}
	switch c := s.b[s.i]; {
	case c == '"':
		return s.str()
	case c == '-' || isDigit(c):
		return s.number()
	}
	for _, word := range [...]string{"true", "false", "null"} {
		if len(s.b)-s.i >= len(word) && string(s.b[s.i:s.i+len(word)]) == word {
			s.i += len(word)
			return nil
		}
	}
	return s.expected("a number, a string, true, false or null")
}

func (s *scanner) str() error {
	if !s.take('"') {
		return s.expected("'\"'")
	}
	for ; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return nil
		case c < 0x20:
			return s.expected("no control character in a string")
		case c == '\\':
			if err := s.escape(); err != nil {
				return err
			}
		}
	}
	return s.expected("'\"'")
}

// escape goes on to the last character of an escape sequence.
func (s *scanner) escape() error {
	s.i++
	if s.i == len(s.b) || bytes.IndexByte([]byte(`"\/bfnrtu`), s.b[s.i]) < 0 {
		return s.expected("an escaped character")
	}
	if s.b[s.i] != 'u' {
		return nil
	}
	for range 4 {
		if s.i++; s.i == len(s.b) || bytes.IndexByte([]byte("0123456789abcdefABCDEF"), s.b[s.i]) < 0 {
			return s.expected("four hexadecimal digits")
		}
	}
	return nil
}

func (s *scanner) number() error {
	s.take('-')
	if !s.take('0') && !s.digits() {
		return s.expected("a digit")
	}
	if s.take('.') && !s.digits() {
		return s.expected("a digit")
	}
	if s.take('e') || s.take('E') {
		if !s.take('+') {
			s.take('-')
		}
		if !s.digits() {
			return s.expected("a digit")
		}
	}
	return nil
}

func (s *scanner) digits() bool {
	start := s.i
	for s.i < len(s.b) && isDigit(s.b[s.i]) {
		s.i++
	}
	return s.i > start
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

var errNoNumber = errors.New("is empty, expected a number")

// Int reads a whole number.
func Int(b []byte) (int64, error) {
	digits := b
	if len(b) > 0 && b[0] == '-' {
		digits = b[1:]
	}
	var n int64
	for _, c := range digits {
		if !isDigit(c) {
			return 0, fmt.Errorf("%q is not a whole number", clip(string(b)))
		}
		n = n*10 + int64(c-'0')
	}
	switch {
	case len(b) == 0:
		return 0, errNoNumber
	case len(digits) == 0:
		return 0, fmt.Errorf("%q is not a whole number", clip(string(b)))
	case len(digits) > 18: // it may have overflowed
		n, err := strconv.ParseInt(string(b), 10, 64)
		if err != nil {
			err = fmt.Errorf("%s is out of range", clip(string(b)))
		}
		return n, err
	case len(digits) < len(b):
		n = -n
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

// Tokens reads a number of tokens, of which there must be some.
func Tokens(b []byte) (int32, error) {
	n, err := Count(b)
	if err == nil && n == 0 {
		err = errors.New("is 0, expected >= 1 token")
	}
	return n, err
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
	whole, fraction, point := bytes.Cut(b, []byte{'.'})
	switch {
	case len(b) == 0:
		return 0, errNoNumber
	case b[0] == '-' && len(b) > 1:
		return 0, fmt.Errorf("%s is negative, expected >= 0", clip(string(b)))
	case len(whole) == 0 || point && len(fraction) == 0:
		return 0, fmt.Errorf("%q is not a decimal number", clip(string(b)))
	}
	var n int64
	for i := range max(len(whole)+places, len(whole)+len(fraction)) {
		c := byte('0')
		if i < len(whole) {
			c = whole[i]
		} else if i-len(whole) < len(fraction) {
			c = fraction[i-len(whole)]
		}
		switch {
		case !isDigit(c):
			return 0, fmt.Errorf("%q is not a decimal number", clip(string(b)))
		case i >= len(whole)+places && c != '0':
			return 0, fmt.Errorf("%s has more than %d decimal places", clip(string(b)), places)
		case i >= len(whole)+places:
		case n > (math.MaxInt64-int64(c-'0'))/10:
			return 0, fmt.Errorf("%s is too large", clip(string(b)))
		default:
			n = n*10 + int64(c-'0')
		}
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
