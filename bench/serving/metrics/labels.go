package metrics

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// other is the label value of adapters, workers and statuses beyond a limit.
const other = "other"

// limited bounds the values of a label: the first values get a series of their own, further ones share [other].
type limited struct {
	most int

	mu    sync.RWMutex
	known map[string]bool
}

func newLimited(most int) *limited { return &limited{most: most, known: map[string]bool{}} }

// value returns the label value for v.
func (l *limited) value(v string) string {
	v = strings.ToValidUTF8(v, "\uFFFD") // all that the text format has
	l.mu.RLock()
	known := l.known[v]
	l.mu.RUnlock()
	if known || v == other {
		return v
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.known[v] && len(l.known) >= l.most {
		return other
	}
	l.known[v] = true
	return v
}

// keep removes the values for which keep returns false, and returns them.
func (l *limited) keep(keep func(v string) bool) (gone []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for v := range l.known {
		if !keep(v) {
			gone = append(gone, v)
			delete(l.known, v)
		}
	}
	return gone
}

// statusClientGone is the code of requests whose clients left, as in nginx.
const statusClientGone = 499

// codeLabel returns the label value of an HTTP status: the number, "none" for 0, [other] for statuses that no RFC
// names.
func codeLabel(status int) string {
	switch {
	case status == 0:
		return "none"
	case status == statusClientGone || http.StatusText(status) != "":
		return strconv.Itoa(status)
	}
	return other
}
