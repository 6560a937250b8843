package fleet

import (
	"net/http"
	"testing"
	"time"
)

// Retry-After is a number of seconds or a date.
func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, " 7 ": 7 * time.Second, "-1": 0, "1.5": 0, "soon": 0,
		"99999999999":                    0,
		"Fri, 27 Nov 2026 08:00:30 GMT":  30 * time.Second,
		"Fri, 27 Nov 2026 07:59:30 GMT":  0,
		"Friday, 27-Nov-26 08:01:00 GMT": time.Minute,
	} {
		if got := RetryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("%q: %v, expected %v", text, got, want)
		}
	}
}
