package report

import "lorasim/internal/format"

// Section is a part of a page that a study makes of its own figures.
type Section struct {
	ID, Title, Note string
	Text            string     // lines, as on a terminal
	Table           [][]string // the first row is the head
	Chart           *Chart     // nil: none
}

// Chart draws lines, or single points with intervals.
type Chart struct {
	Label, X, Y string
	Names       []string // of the points 0, 1, ... on the x axis; nil: they are numbers
	Lines       []Line
}

// Line is a line of a chart; Dots: its points are not joined.
type Line struct {
	Name   string
	Dots   bool
	Points [][4]float64 // x, y, and the ends of the interval of y; NaN: there is none
}

func (s *Section) data() format.Object {
	o := format.Object{"id", s.ID, "title", s.Title, "note", s.Note, "text,omitempty", s.Text,
		"table,omitempty", s.Table}
	if c := s.Chart; c != nil {
		lines := []any{}
		for _, l := range c.Lines {
			lines = append(lines, format.Object{"name", l.Name, "dots", l.Dots, "points", l.Points})
		}
		o = append(o, "chart", format.Object{"label", c.Label, "x", c.X, "y", c.Y, "names,omitempty", c.Names,
			"lines", lines})
	}
	return o
}
