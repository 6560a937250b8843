//go:build linux

package main

import (
	"testing"
	"time"
)

func TestComplete(t *testing.T) {
	stream, whole := request{tokens: 2, stream: true}, request{tokens: 2}
	const two = "data: {\"text\":\" t1\"}\n\ndata: {\"text\":\" t22\"}\n\n"
	for _, c := range []struct {
		r      request
		status int
		text   string
		ok     bool
	}{
		{stream, 200, two + "data: [DONE]\n\n", true},
		{stream, 200, two, false},
		{stream, 200, "data: {\"text\":\" t1\"}\n\ndata: [DONE]\n\n", false},
		{stream, 200, two + "data: {\"error\":{}}\n\ndata: [DONE]\n\n", false},
		{stream, 503, two + "data: [DONE]\n\n", false},
		{whole, 200, `{"usage":{"completion_tokens":2}}`, true},
		{whole, 200, `{"usage":{"completion_tokens":1}}`, false},
		{whole, 200, `{"usage":{"completion`, false},
	} {
		if err := complete(c.r, c.status, []byte(c.text)); (err == nil) != c.ok {
			t.Errorf("%d %q: %v", c.status, c.text, err)
		}
	}
}

// Only a death while the request was in flight, or just before, excuses it.
func TestDied(t *testing.T) {
	at := time.Now()
	c := &cluster{deaths: []death{{at, at}}}
	for _, x := range []struct {
		from, to time.Duration
		want     bool
	}{{-1, 1, true}, {1, 2, true}, {-5, -1, false}, {3, 4, false}, {-1, 30, false}} {
		if got := c.died(at.Add(x.from*time.Second), at.Add(x.to*time.Second)); got != x.want {
			t.Errorf("from %d to %d s: %v", x.from, x.to, got)
		}
	}
}

func TestGrowth(t *testing.T) {
	var m memory
	for i := range 100 {
		m.add(float64(i)/100, float64(i))
	}
	if early, late := m.growth(); early != 14.5 || late != 94.5 || m.peak != 99 {
		t.Errorf("%v, %v, %v", early, late, m.peak)
	}
}
