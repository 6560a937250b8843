package sweep

// Status is the progress of a sweep.
type Status struct {
	Name    string       `json:"name"`
	Hash    string       `json:"hash"`
	Cells   int          `json:"cells"`
	Done    int          `json:"done"`
	Missing int          `json:"missing"`
	Shared  int          `json:"shared"` // cells that take their result from another cell, see Manifest.Runs
	Failed  []FailedCell `json:"failed"`
	Broken  []FailedCell `json:"broken"` // cells with unreadable files; they run again

	firstMissing int
}

// A FailedCell is a cell that failed, or whose file is broken, with the reason.
type FailedCell struct {
	Index int    `json:"index"`
	What  string `json:"cell"`
	Error string `json:"error"`
}

// Status returns the progress of the sweep, from its files.
func (d *Dir) Status() *Status { return d.survey(nil) }

// survey returns the Status. It also stores the results of finished cells in results, unless results is nil.
func (d *Dir) survey(results []*CellResult) *Status {
	s := &Status{
		Name: d.Name, Hash: d.Hash, Cells: len(d.Cells), Shared: d.Shared(), Failed: []FailedCell{},
		Broken: []FailedCell{},
	}
	for i := range d.Cells {
		r, failed, broken := d.look(&d.Cells[i])
		switch {
		case r != nil:
			if s.Done++; results != nil {
				results[i] = r
			}
		case broken:
			s.Broken = append(s.Broken, *failed)
		case failed != nil:
			s.Failed = append(s.Failed, *failed)
		default:
			if s.Missing++; s.Missing == 1 {
				s.firstMissing = i
			}
		}
	}
	return s
}
