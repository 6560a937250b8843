package stats

// A Direction says whether higher or lower values of a metric are better. As a factor it
// makes lower better: Direction x value is lower for the better value.
type Direction int

// The directions.
const (
	Higher  Direction = -1
	Neither Direction = 0
	Lower   Direction = 1
)
