package gateway

import (
	"bytes"
	"io"
)

// scanner finds its way through JSON that is only looked at from outside: where
// strings end and brackets close. Package encoding/json would read every number of
// a prompt, which takes longer than all else that the gateway does.
type scanner struct {
	buf  *bytes.Buffer
	at   int
	more io.Reader // what follows, read as it is needed; nil: nothing
}

// readAhead is how much is read of a long body at a time.
const readAhead = 64 << 10

// has says whether there is a byte at s.at.
func (s *scanner) has() bool {
	for s.at >= s.buf.Len() {
		if s.more == nil {
			return false
		}
		if n, err := io.CopyN(s.buf, s.more, readAhead); n == 0 && err != nil {
			return false
		}
	}
	return true
}

// next skips white space and returns the byte after it, without passing it; 0 at
// the end.
func (s *scanner) next() byte {
	for s.has() {
		switch c := s.buf.Bytes()[s.at]; c {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return c
		}
	}
	return 0
}

// skip passes the value that begins at s.at; false if it has no end. Of a number
// or a word it passes what may be part of one.
func (s *scanner) skip() bool {
	depth := 0
	for s.has() {
		c := s.buf.Bytes()[s.at]
		switch c {
		case '"':
			if !s.skipString() {
				return false
			}
			if depth == 0 {
				return true
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth <= 0 {
				s.at += depth + 1 // a bracket that ends what is around a word is not part of it
				return true
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return true
			}
		}
		s.at++
	}
	return false
}

func (s *scanner) skipString() bool {
	for s.at++; s.has(); {
		text := s.buf.Bytes()[s.at:]
		i := bytes.IndexAny(text, "\"\\")
		switch {
		case i < 0:
			s.at += len(text)
		case text[i] == '"':
			s.at += i + 1
			return true
		default:
			s.at += i + 2
		}
	}
	return false
}
