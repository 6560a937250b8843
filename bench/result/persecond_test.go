package result

import (
	"testing"

	"lorasim/sim/tick"
)

// The peaks are those of the busiest second, also where the seconds between have no counts, and a request may be in
// flight over all of them.
func TestPeaksFarApart(t *testing.T) {
	const far = 10_000_000
	p := &perSecond{}
	for _, c := range []struct{ sec, n int64 }{{far, 7}, {3, 5}, {far + 1, 4}, {3, 1}} {
		p.addTokens(tick.Ticks(c.sec)*tick.Second, c.n)
	}
	if got := p.peakTokens(); got != 7 {
		t.Errorf("%d tokens in the busiest second, expected 7", got)
	}
	p.addRequest(2*tick.Second, far*tick.Second)
	p.addRequest(far*tick.Second, (far+2)*tick.Second)
	p.addRequest((far+1)*tick.Second, (far+1)*tick.Second)
	if got := p.peakRequests(); got != 2 {
		t.Errorf("%d requests in flight, expected 2: the first ends in the second in which the next one begins", got)
	}
	if n := len(p.tokens) + len(p.change); n > 2*(far/blockSeconds+2) || p.tokens[1] != nil {
		t.Errorf("%d blocks, and one for a time without tokens", n)
	}
}
