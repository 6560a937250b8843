package fleet

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// longestPause bounds the pause that a worker can ask for.
const longestPause = 5 * time.Minute

// RetryAfter returns the pause that a response asks for in its header Retry-After, a number of seconds or a date. It
// returns 0 if there is none.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(s) * time.Second
	}
	if date, err := http.ParseTime(text); err == nil {
		return max(date.Sub(now), 0)
	}
	return 0
}

// Postpone notes that worker w has asked for a pause. Until its end the worker gets requests only if no other worker
// can take them.
func (q *Requests) Postpone(w int, pause time.Duration) {
	defer q.table.lock()()
	q.table.tick()
	q.table.workers[w].out.postponed = q.table.wall() + min(pause, longestPause).Seconds()
}
