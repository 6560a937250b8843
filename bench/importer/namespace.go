package importer

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ParseNamespace reads the argument list that Python's argparse prints, such as
// Namespace(backend='sglang', request_rate=inf, seed=1), which must begin s. It
// returns the arguments and what follows the closing bracket.
//
// Values are those of Python's repr: None becomes nil, True and False bool,
// whole numbers int64 (float64 beyond its range), other numbers, inf and nan
// float64, strings string, lists, tuples and sets []any, dictionaries
// map[string]any with keys other than strings as their text, a nested Namespace
// map[string]any, and any other object, as in PosixPath('a') or <Enum.X: 1>, its
// text.
func ParseNamespace(s string) (args map[string]any, rest string, err error) {
	p := pyParser{s: s}
	if !p.literal("Namespace(") {
		return nil, "", p.fail("Namespace(")
	}
	args, err = p.arguments()
	if err != nil {
		return nil, "", err
	}
	return args, p.s[p.at:], nil
}

// maxDepth bounds the nesting of values.
const maxDepth = 64

type pyParser struct {
	s     string
	at    int
	depth int
}

// fail says what was expected where; the column counts bytes from 1.
func (p *pyParser) fail(expected string) error {
	found := "the end of the line"
	if p.at < len(p.s) {
		r, _ := utf8.DecodeRuneInString(p.s[p.at:])
		found = strconv.QuoteRune(r)
	}
	return fmt.Errorf("column %d: expected %s, found %s", p.at+1, expected, found)
}

// literal skips text if it comes next.
func (p *pyParser) literal(text string) bool {
	if !strings.HasPrefix(p.s[p.at:], text) {
		return false
	}
	p.at += len(text)
	return true
}

func (p *pyParser) space() {
	for p.at < len(p.s) && p.s[p.at] == ' ' {
		p.at++
	}
}

// list reads elements up to the closing bracket; the opening one is behind.
func (p *pyParser) list(closing string, element func() error) error {
	if p.depth++; p.depth > maxDepth {
		return p.fail(fmt.Sprintf("at most %d brackets", maxDepth))
	}
	defer func() { p.depth-- }()
	for {
		p.space()
		if p.literal(closing) {
			return nil
		}
		if err := element(); err != nil {
			return err
		}
		p.space()
		if p.literal(",") {
			continue
		}
		if !p.literal(closing) {
			return p.fail(", or " + closing)
		}
		return nil
	}
}

// arguments reads name=value pairs up to the closing bracket.
func (p *pyParser) arguments() (map[string]any, error) {
	args := map[string]any{}
	err := p.list(")", func() error {
		name := p.name()
		if name == "" {
			return p.fail("the name of an argument")
		}
		if !p.literal("=") {
			return p.fail("= after " + name)
		}
		v, err := p.value()
		args[name] = v
		return err
	})
	return args, err
}

// name reads an identifier, dots included; "" if there is none.
func (p *pyParser) name() string {
	start := p.at
	n := strings.IndexFunc(p.s[start:], func(r rune) bool {
		return r != '_' && r != '.' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	if n < 0 {
		n = len(p.s) - start
	}
	p.at += n
	return p.s[start:p.at]
}

// value reads one value.
func (p *pyParser) value() (any, error) {
	p.space()
	if p.at == len(p.s) {
		return nil, p.fail("a value")
	}
	switch c := p.s[p.at]; {
	case c == '\'' || c == '"':
		return p.text()
	case c == '[' || c == '(':
		p.at++
		out := []any{}
		closing := map[byte]string{'[': "]", '(': ")"}[c]
		err := p.list(closing, func() error {
			v, err := p.value()
			out = append(out, v)
			return err
		})
		return out, err
	case c == '{':
		p.at++
		return p.braces()
	case c == '<':
		return p.object()
	case c == '-' || c == '+' || c == '.' || '0' <= c && c <= '9':
		return p.number()
	}
	return p.word()
}

// word reads a keyword, or an object printed as a call.
func (p *pyParser) word() (any, error) {
	start := p.at
	name := p.name()
	if name == "" {
		return nil, p.fail("a value")
	}
	if p.literal("(") {
		if name == "Namespace" {
			return p.arguments()
		}
		err := p.list(")", p.callArgument)
		return p.s[start:p.at], err
	}
	switch name {
	case "None":
		return nil, nil
	case "True", "False":
		return name == "True", nil
	case "inf":
		return math.Inf(1), nil
	case "nan":
		return math.NaN(), nil
	}
	if (name == "b" || name == "r" || name == "u") && p.at < len(p.s) && (p.s[p.at] == '\'' || p.s[p.at] == '"') {
		return p.text()
	}
	return name, nil
}

// callArgument skips an argument of a call, with or without a name.
func (p *pyParser) callArgument() error {
	start := p.at
	if p.name() == "" || !p.literal("=") {
		p.at = start
	}
	_, err := p.value()
	return err
}

// braces reads a dictionary or a set; the opening brace is behind.
func (p *pyParser) braces() (any, error) {
	dict, set := map[string]any{}, []any{}
	err := p.list("}", func() error {
		key, err := p.value()
		if err != nil {
			return err
		}
		p.space()
		if !p.literal(":") {
			set = append(set, key)
			return nil
		}
		v, err := p.value()
		if s, ok := key.(string); ok {
			dict[s] = v
		} else {
			dict[fmt.Sprint(key)] = v
		}
		return err
	})
	if len(set) > 0 {
		return set, err
	}
	return dict, err
}

// object reads something like <Enum.X: 1>, as its text.
func (p *pyParser) object() (any, error) {
	start, open := p.at, 0
	for ; p.at < len(p.s); p.at++ {
		switch p.s[p.at] {
		case '<':
			open++
		case '>':
			if open--; open == 0 {
				p.at++
				return p.s[start:p.at], nil
			}
		}
	}
	return nil, p.fail(">")
}

// number reads a whole number or a float; -inf is one too.
func (p *pyParser) number() (any, error) {
	start := p.at
	for p.at < len(p.s) && strings.IndexByte("+-.0123456789eEinfa", p.s[p.at]) >= 0 {
		p.at++
	}
	text := p.s[start:p.at]
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && !math.IsInf(f, 0) {
		p.at = start
		return nil, p.fail("a number")
	}
	return f, nil
}

// text reads a string in quotes, with the escapes that repr prints.
func (p *pyParser) text() (any, error) {
	quote := p.s[p.at]
	p.at++
	var b strings.Builder
	for p.at < len(p.s) {
		c := p.s[p.at]
		p.at++
		switch c {
		case quote:
			return b.String(), nil
		case '\\':
			if err := p.escape(&b); err != nil {
				return nil, err
			}
		default:
			b.WriteByte(c)
		}
	}
	return nil, p.fail(string(quote))
}

// escape reads what follows a backslash.
func (p *pyParser) escape(b *strings.Builder) error {
	if p.at == len(p.s) {
		return p.fail("an escaped character")
	}
	c := p.s[p.at]
	p.at++
	if i := strings.IndexByte(`abfnrtv0`, c); i >= 0 {
		b.WriteByte("\a\b\f\n\r\t\v\x00"[i])
		return nil
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
	if digits == 0 {
		if c != '\\' && c != '\'' && c != '"' { // Python keeps a backslash that escapes nothing
			b.WriteByte('\\')
		}
		b.WriteByte(c)
		return nil
	}
	if len(p.s)-p.at < digits {
		return p.fail(fmt.Sprintf("%d hexadecimal digits", digits))
	}
	v, err := strconv.ParseUint(p.s[p.at:p.at+digits], 16, 32)
	if err != nil {
		return p.fail(fmt.Sprintf("%d hexadecimal digits", digits))
	}
	p.at += digits
	b.WriteRune(rune(v))
	return nil
}
