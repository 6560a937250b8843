// Package geom takes the place of github.com/twpayne/go-geom. parquet-go alone imports it, to write columns of
// geometries and their statistics; lorasim writes none, and reads them as bytes. These are the names that parquet-go
// uses.
package geom

// T would be a geometry. No type of this program is one.
type T interface {
	Layout() Layout
	Bounds() *Bounds
}

// Layout would be the dimensions of a geometry.
type Layout int

// The layouts.
const (
	XYZ Layout = iota + 1
	XYM
	XYZM
)

// ZIndex returns no index.
func (Layout) ZIndex() int { return -1 }

// MIndex returns no index.
func (Layout) MIndex() int { return -1 }

// Bounds would be a box.
type Bounds struct{}

// IsEmpty returns true.
func (*Bounds) IsEmpty() bool { return true }

// Max returns 0.
func (*Bounds) Max(int) float64 { return 0 }

// Min returns 0.
func (*Bounds) Min(int) float64 { return 0 }

// The types of geometries.
type (
	Point              struct{ T }
	LineString         struct{ T }
	Polygon            struct{ T }
	MultiPoint         struct{ T }
	MultiLineString    struct{ T }
	MultiPolygon       struct{ T }
	GeometryCollection struct{ T }
)
