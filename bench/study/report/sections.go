package report

import "lorasim/internal/format"

// A Section is a part of a page that a study adds.
type Section struct {
	ID, Title, Note string
	Text            string     // lines, as in a terminal
	Table           [][]string // the first row is the head
	Chart           *Chart     // nil: none
}

// A Chart shows lines, or single points with intervals.
type Chart struct {
	Label, X, Y string
	Names       []string // names of the points 0, 1, ... on the x axis; nil: x is a number
	Lines       []Line
}

// A Line is a line of a chart, or single points if Dots is set.
type Line struct {
	Name   string
	Dots   bool
	Points [][4]float64 // x, y, and the ends of the interval of y; NaN: no interval
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
