// Package average has a moving average.
package average

// Mean is a moving average. It begins as the ordinary mean of all values.
type Mean struct {
	Value float64
	N     float64 // values that it is the mean of, up to a limit
}

// Add adds a value to an average over the latest 50 values or so.
func (m *Mean) Add(x float64) { m.AddUpTo(x, 50) }

// AddUpTo adds a value to an average over at most the given number of values.
func (m *Mean) AddUpTo(x, most float64) {
	m.N = min(m.N+1, most)
	m.Value += (x - m.Value) / m.N
}

// Or returns the average, or a default before the first value.
func (m *Mean) Or(def float64) float64 {
	if m.N == 0 {
		return def
	}
	return m.Value
}
