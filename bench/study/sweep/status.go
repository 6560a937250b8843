package sweep

// Status is how far a sweep is.
type Status struct {
	Name    string       `json:"name"`
	Hash    string       `json:"hash"`
	Cells   int          `json:"cells"`
	Done    int          `json:"done"`
	Missing int          `json:"missing"`
	Shared  int          `json:"shared"` // cells that take the result of another one, see Manifest.Runs
	Failed  []FailedCell `json:"failed"`
	Broken  []FailedCell `json:"broken"` // their files cannot be read; they run again

	firstMissing int
}

// FailedCell names a cell that failed, or whose file is broken, and why.
type FailedCell struct {
	Index int    `json:"index"`
	What  string `json:"cell"`
	Error string `json:"error"`
}

// Status looks at the files of the sweep.
func (d *Dir) Status() *Status { return d.survey(nil) }

// survey is Status; results, where not nil, gets what the cells hold that are done.
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
