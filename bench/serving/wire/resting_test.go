package wire

import (
	"net/http"
	"testing"
	"time"
)

// Of more than maxResting connections that rest, the one that has rested longest
// serves; of fewer, none.
func TestResting(t *testing.T) {
	for _, n := range []int{1, maxResting, maxResting + 1, 3 * maxResting} {
		c := New(&http.Client{})
		c.rest = time.Hour
		p := &pool{}
		c.pools["a"] = p
		for range n {
			p.idle = append(p.idle, &conn{since: time.Now()})
		}
		oldest := p.idle[0]
		if k := c.take("a", 0); (k == oldest) != (n > maxResting) || n <= maxResting && k != nil {
			t.Errorf("%d at rest: took %v", n, k)
		}
	}
}
