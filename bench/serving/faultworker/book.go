package faultworker

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// A Book counts for each request id how often workers began to execute the request, aborted it because the client
// hung up, and completed it. Several workers may share a Book. The zero value is ready to use.
type Book struct {
	mu       sync.Mutex
	requests map[string]Count
	echo     io.Writer // gets a line of JSON for each event; nil: nothing
}

// A Count holds the events of one request, over all workers that share a Book.
type Count struct {
	Executed  int // number of times a worker began to generate
	Aborted   int // number of times the client hung up before the end
	Completed int // number of times the whole reply was written
}

// event is a line printed by a worker in another process.
type event struct {
	ID   string `json:"id"`
	What string `json:"what"`
}

const (
	executed  = "executed"
	aborted   = "aborted"
	completed = "completed"
)

// NewEcho returns a Book that also writes each event to out, for a worker in its own process. Book.Read reads these
// events.
func NewEcho(out io.Writer) *Book { return &Book{echo: out} }

// note enters an event. Requests without an id share the id "".
func (b *Book) note(id, what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.requests == nil {
		b.requests = map[string]Count{}
	}
	c := b.requests[id]
	switch what {
	case executed:
		c.Executed++
	case aborted:
		c.Aborted++
	case completed:
		c.Completed++
	}
	b.requests[id] = c
	if b.echo != nil {
		line, _ := json.Marshal(event{id, what}) // two strings
		b.echo.Write(append(line, '\n'))         // fails only when the reader has gone
	}
}

// Read adds the events that a worker in another process writes, until r ends.
func (b *Book) Read(r io.Reader) error {
	d := json.NewDecoder(r)
	for {
		var e event
		if err := d.Decode(&e); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("events of a worker: %w", err)
		}
		b.note(e.ID, e.What)
	}
}

// Of returns the counts of one request.
func (b *Book) Of(id string) Count {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests[id]
}

// Totals are sums over all requests of a Book with an id.
type Totals struct {
	Requests int // requests executed at least once
	Twice    int // requests executed more than once
	Most     int // highest number of executions of one request
	Count
}

// Totals returns the sums so far.
func (b *Book) Totals() (t Totals) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, c := range b.requests {
		if id == "" { // as those of probes
			continue
		}
		if c.Executed > 0 {
			t.Requests++
		}
		if c.Executed > 1 {
			t.Twice++
		}
		t.Most = max(t.Most, c.Executed)
		t.Executed += c.Executed
		t.Aborted += c.Aborted
		t.Completed += c.Completed
	}
	return t
}
