package series

import "lorasim/internal/tick"

// clock maps time to a fixed number of buckets, whose width doubles when time
// outgrows them.
type clock struct {
	width tick.Ticks
	n     int
}

// reach makes the buckets wide enough for time t; double is called for each
// doubling.
func (c *clock) reach(t tick.Ticks, double func()) {
	for t > c.width*tick.Ticks(c.n) {
		c.width *= 2
		double()
	}
}

// each calls f for every bucket that the time from..to touches, with the part
// of it in ticks.
func (c *clock) each(from, to tick.Ticks, f func(bucket int, d tick.Ticks)) {
	for from < to {
		i := from / c.width
		end := min(to, (i+1)*c.width)
		f(int(i), end-from)
		from = end
	}
}

// sums holds one sum per bucket.
type sums []float64

// double joins neighbours.
func (s sums) double(join func(a, b float64) float64) {
	for i := range s {
		switch {
		case 2*i+1 < len(s):
			s[i] = join(s[2*i], s[2*i+1])
		case 2*i < len(s):
			s[i] = s[2*i]
		default:
			s[i] = 0
		}
	}
}

func plus(a, b float64) float64     { return a + b }
func larger(a, b float64) float64   { return max(a, b) }
func fresh(n int) sums              { return make(sums, n) }
func (s sums) add(i int, v float64) { s[min(i, len(s)-1)] += v }
