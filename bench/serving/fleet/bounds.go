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

// within is a limit that a worker states; 0, not known, where it is none that makes
// sense.
func within[T int | int64](n, most T) T {
	if n < 1 || n > most {
		return 0
	}
	return n
}

// requests is a number of requests that a worker states.
func requests(n int) int { return min(max(n, 0), maxRequests) }

// sum adds up numbers of requests of which there may be any.
func sum(a, b int) int { return requests(requests(a) + requests(b)) }

// clean is a text for people, on one line and without control characters.
func clean(s string, most int) string {
	return format.Line(s[:min(len(s), 4*most)], most) // cut before it is taken apart into characters
}

// isName says whether a text can be the name of an adapter or model, or a path. It
// is printed, sent to other workers, and compared with what clients ask for.
func isName(s string, most int) bool {
	return s != "" && len(s) <= most && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// list is a JSON array of at most maxList values.
type list[T any] []T

// UnmarshalJSON implements json.Unmarshaler: it counts before it makes room.
func (l *list[T]) UnmarshalJSON(data []byte) error {
	if n := elements(data); n > maxList {
		return fmt.Errorf("a list of %d entries, expected at most %d", n, maxList)
	}
	return json.Unmarshal(data, (*[]T)(l))
}

// elements counts the values of a JSON array up to the first that is not JSON; 0 of what is not an array.
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
