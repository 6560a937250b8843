package fleet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"lorasim/internal/format"
)

// Bounds of what a worker may say. They are far above what engines say, and low
// enough that one worker's answer costs no more than some MiB.
const (
	maxAnswer  = 16 << 20 // bytes of an answer
	maxMetrics = 8 << 20  // bytes of /metrics, which is longer in memory than JSON is
	maxList    = 1 << 17  // entries of a list, such as of the adapters that it holds

	maxRequests  = 1 << 20 // that run, or wait
	maxSlots     = 1 << 16 // of adapters
	maxHeld      = 1 << 20 // adapters
	maxKV        = 1 << 40 // tokens
	maxRank      = 1 << 16 // no layers of a model are wider
	maxContext   = 1 << 30 // tokens
	maxGenerated = 1 << 24 // tokens of a reply
	maxClock     = 1e12    // s
	maxAdapters  = 100_000 // that the fleet takes in of all workers: policies take memory for each on each worker
	maxName      = 512     // bytes of the name of an adapter or model
	maxPath      = 4096    // bytes of where an adapter lies
	maxMessage   = 500     // characters of an error
	maxVersion   = 64      // characters
)

// within returns a limit that a worker reports, or 0 (unknown) if the limit makes no sense.
func within[T int | int64](n, most T) T {
	if n < 1 || n > most {
		return 0
	}
	return n
}

// requests limits a number of requests that a worker reports to the valid range.
func requests(n int) int { return min(max(n, 0), maxRequests) }

// sum adds two numbers of requests, which may be out of range.
func sum(a, b int) int { return requests(requests(a) + requests(b)) }

// clean returns a text for operators: on one line, without control characters, of at most the given length.
func clean(s string, most int) string {
	return format.Line(s[:min(len(s), 4*most)], most) // cut before it is taken apart into characters
}

// isName reports whether a text can be the name of an adapter or model, or a path. Such a text is printed, sent to
// other workers, and compared with the names in requests.
func isName(s string, most int) bool {
	return s != "" && len(s) <= most && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// list is a JSON array of at most maxList values.
type list[T any] []T

// UnmarshalJSON implements json.Unmarshaler. It counts the elements before it allocates memory.
func (l *list[T]) UnmarshalJSON(data []byte) error {
	if n := elements(data); n > maxList {
		return fmt.Errorf("a list of %d entries, expected at most %d", n, maxList)
	}
	return json.Unmarshal(data, (*[]T)(l))
}

// elements counts the values of a JSON array up to the first invalid one. It returns 0 if data is not an array.
func elements(data []byte) (n int) {
	d := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '[' {
		return 0
	}
	for d.PeekKind() != ']' && d.SkipValue() == nil {
		n++
	}
	return n
}
