package textfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Object reads a line that holds one flat JSON object (RFC 8259) and calls
// visit for each of its members, with the key as it is written between the
// quotes and the raw text of the value. Values are numbers, strings, true,
// false, null or arrays of those; nested objects and arrays are errors.
func Object(line []byte, visit func(key, value []byte) error) error {
	s := scanner{b: line}
	s.space()
	if !s.take('{') {
		return s.expected("'{'")
	}
	s.space()
	if !s.take('}') {
		for {
			if err := s.member(visit); err != nil {
				return err
			}
			if s.take('}') {
				break
			}
			if !s.take(',') {
				return s.expected("',' or '}'")
			}
		}
	}
	s.space()
	if s.i < len(s.b) {
		return s.expected("the end of the line")
	}
	return nil
}

// Text returns the string that a raw JSON string stands for.
func Text(raw []byte) ([]byte, error) {
	if len(raw) < 2 || raw[0] != '"' {
		return nil, fmt.Errorf("%s is not a string", clip(string(raw)))
	}
	if !utf8.Valid(raw) {
		return nil, errors.New("string is not valid UTF-8")
	}
	for _, c := range raw {
		if c == '\\' {
			var s string
			err := json.Unmarshal(raw, &s)
			return []byte(s), err
		}
	}
	return raw[1 : len(raw)-1], nil
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
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\r', '\n':
			s.i++
		default:
			return
		}
	}
}

func (s *scanner) take(c byte) bool {
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// member reads `"key": value`, with the space around it.
func (s *scanner) member(visit func(key, value []byte) error) error {
	s.space()
	start := s.i
	if err := s.str(); err != nil {
		return err
	}
	key := s.b[start+1 : s.i-1]
	s.space()
	if !s.take(':') {
		return s.expected("':'")
	}
	s.space()
	start = s.i
	if s.take('[') {
		if err := s.array(); err != nil {
			return err
		}
	} else if err := s.scalar(); err != nil {
		return err
	}
	if err := visit(key, s.b[start:s.i]); err != nil {
		return err
	}
	s.space()
	return nil
}

// array reads the rest of an array after its '['.
func (s *scanner) array() error {
	s.space()
	if s.take(']') {
		return nil
	}
	for {
		s.space()
		if err := s.scalar(); err != nil {
			return err
		}
		s.space()
		if s.take(']') {
			return nil
		}
		if !s.take(',') {
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
	for s.i < len(s.b) {
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
		default:
			s.i++
		}
	}
	return s.expected("'\"'")
}

func (s *scanner) escape() error {
	s.i++ // the backslash
	if s.i == len(s.b) {
		return s.expected("an escaped character")
	}
	switch s.b[s.i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i++
		return nil
	case 'u':
		s.i++
		for range 4 {
			if s.i == len(s.b) || !isHex(s.b[s.i]) {
				return s.expected("four hexadecimal digits")
			}
			s.i++
		}
		return nil
	}
	return s.expected("an escaped character")
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

func isHex(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
