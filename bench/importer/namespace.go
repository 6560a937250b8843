package importer

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

var argument = regexp.MustCompile(`^[\pL\d_.]+=`)

// namespace reads what stands between the brackets of the argument list of a
// Python program, Namespace(a=1, b='x'), up to the closing one. Strings, numbers,
// None, True and False become string, int64, float64, nil and bool; a list, a
// dictionary or an object stays the text that Python prints for it.
func namespace(s string) (map[string]any, error) {
	args := map[string]any{}
	for rest := s; ; {
		rest = strings.TrimLeft(rest, ", ")
		if strings.HasPrefix(rest, ")") {
			return args, nil
		}
		name := argument.FindString(rest)
		if name == "" {
			return nil, fmt.Errorf("character %d: expected NAME=VALUE or )", len(s)-len(rest)+1)
		}
		rest = rest[len(name):]
		end := valueEnd(rest)
		if end <= 0 {
			return nil, fmt.Errorf("character %d: expected the value of %s and a comma or ) behind it", len(s)-len(rest)+1, strings.TrimSuffix(name, "="))
		}
		args[strings.TrimSuffix(name, "=")] = literal(rest[:end])
		rest = rest[end:]
	}
}

// valueEnd is where the next comma or bracket stands that is not part of the
// value; -1 if there is none.
func valueEnd(s string) int {
	depth, quote := 0, byte(0)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0:
			if c == '\\' {
				i++
			} else if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case depth == 0 && (c == ',' || c == ')'):
			return i
		case strings.IndexByte("([{<", c) >= 0:
			depth++
		case strings.IndexByte(")]}>", c) >= 0:
			depth--
		}
	}
	return -1
}

// literal is the value of a Python literal, or its text.
func literal(s string) any {
	switch s {
	case "None":
		return nil
	case "True", "False":
		return s == "True"
	case "nan":
		return math.NaN()
	case "inf":
		return math.Inf(1)
	case "-inf":
		return math.Inf(-1)
	}
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return i
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil && strings.IndexByte("+-.0123456789", s[0]) >= 0 {
		return f
	}
	if n := len(s); n >= 2 && (s[0] == '\'' || s[0] == '"') && s[n-1] == s[0] {
		return unquote(s[1:n-1], s[0])
	}
	return s
}

// unquote undoes the escapes of Python's repr, which are among Go's; text with
// others stays as it is.
func unquote(s string, quote byte) string {
	var b strings.Builder
	for rest := s; rest != ""; {
		r, _, tail, err := strconv.UnquoteChar(rest, quote)
		if err != nil {
			return s
		}
		b.WriteRune(r)
		rest = tail
	}
	return b.String()
}
