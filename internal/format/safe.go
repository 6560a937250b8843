package format

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

// Texts of workers, files and clients can hold characters that a terminal interprets instead of showing: escape
// sequences that change its title or its clipboard, a carriage return that overwrites the line, marks that reverse
// the direction of writing. Before such a text is printed, they are replaced by their escapes in Go and JSON, such
// as \u001b for the escape character.

// obeyed reports whether a terminal may interpret a character: control characters (C0, DEL, C1), direction marks,
// line separators, and the invisible "tags".
func obeyed(r rune) bool {
	switch {
	case r < ' ', 0x7f <= r && r <= 0x9f,
		r == 0x061c, r == 0x200e, r == 0x200f, 0x2028 <= r && r <= 0x202e, 0x2066 <= r && r <= 0x2069,
		0xe0000 <= r && r <= 0xe007f:
		return true
	}
	return false
}

// Line returns s as one line of at most the given number of characters that are safe to print; 0: no limit.
func Line(s string, most int) string {
	if strings.ContainsFunc(s, obeyed) || !utf8.ValidString(s) {
		s = string(appendSafe(nil, []byte(s), false))
	}
	if most > 0 && utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most-1]) + "…"
	}
	return s
}

// appendSafe appends a text with unsafe characters replaced. With lines, line ends and tabs stay.
func appendSafe(b, text []byte, lines bool) []byte {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case lines && (r == '\n' || r == '\t' || r == '\r' && len(text) > 1 && text[1] == '\n'):
			b = append(b, byte(r))
		case r > 0xffff && obeyed(r): // JSON has no other form
			b = fmt.Appendf(b, `\u%04x\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		case obeyed(r):
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = utf8.AppendRune(b, r) // U+FFFD for what is not UTF-8
		}
		text = text[n:]
	}
	return b
}

// A SafeWriter writes to a terminal, or to what may be one. Several goroutines may use it.
type SafeWriter struct {
	w    io.Writer
	mu   sync.Mutex
	rest []byte // incomplete character at the end of the last Write
}

// Safe returns a writer that replaces the characters that a terminal would interpret instead of showing.
func Safe(w io.Writer) *SafeWriter { return &SafeWriter{w: w} }

// Unwrap returns the underlying writer, for programs that control the terminal themselves.
func (s *SafeWriter) Unwrap() io.Writer { return s.w }

// Write writes p with one call of the underlying writer.
func (s *SafeWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := p
	if len(s.rest) > 0 {
		text = append(bytes.Clone(s.rest), p...)
		s.rest = s.rest[:0]
	}
	if cut := incomplete(text); cut < len(text) {
		s.rest = append(s.rest, text[cut:]...)
		text = text[:cut]
	}
	if !harmless(text) {
		text = appendSafe(make([]byte, 0, len(text)+64), text, true)
	}
	if len(text) == 0 {
		return len(p), nil
	}
	if _, err := s.w.Write(text); err != nil {
		return 0, err
	}
	return len(p), nil
}

// harmless reports whether a text is ASCII with nothing to replace.
func harmless(text []byte) bool {
	for _, c := range text {
		if c < ' ' && c != '\n' && c != '\t' || c >= 0x7f {
			return false
		}
	}
	return true
}

// incomplete returns the index of an incomplete character at the end of a text, else the length of the text.
func incomplete(text []byte) int {
	for i := len(text) - 1; i >= max(0, len(text)-utf8.UTFMax+1); i-- {
		if utf8.RuneStart(text[i]) {
			if text[i] >= utf8.RuneSelf && !utf8.FullRune(text[i:]) {
				return i
			}
			break
		}
	}
	return len(text)
}
