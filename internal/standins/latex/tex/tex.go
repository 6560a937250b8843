// Package tex has the names of go-latex's package that gonum/plot uses.
package tex

type (
	// Node would be a box.
	Node interface {
		Width() float64
		Height() float64
		Depth() float64
	}
	// Tree would be boxes within boxes.
	Tree interface{ Node }
	// Ship would place boxes.
	Ship struct{}
)

// Call does nothing.
func (*Ship) Call(_, _ float64, _ Tree) {}
