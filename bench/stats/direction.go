package stats

// Direction says which end of a metric is better. As a factor it turns a comparison
// around where higher is better: Direction x value is lower for what is better.
type Direction int

// The directions.
const (
	Higher  Direction = -1
	Neither Direction = 0
	Lower   Direction = 1
)
