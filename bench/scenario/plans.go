package scenario

import (
	"bufio"
	"encoding/json"

	"lorasim/internal/atomicfile"
	"lorasim/internal/record"
	"lorasim/sim"
)

// plansFile writes every plan of a run, one JSON object per line, on the way to
// the next observer.
type plansFile struct {
	record.Observer
	file *atomicfile.File
	buf  *bufio.Writer
	json *json.Encoder
	err  error
}

func newPlansFile(path string, next record.Observer) (*plansFile, error) {
	f, err := atomicfile.Create(path)
	if err != nil {
		return nil, err
	}
	p := &plansFile{Observer: next, file: f, buf: bufio.NewWriter(f)}
	p.json = json.NewEncoder(p.buf)
	p.json.SetEscapeHTML(false)
	return p, nil
}

// Plan implements sim.PlanObserver.
func (p *plansFile) Plan(r *sim.PlanRecord) {
	if p.err == nil {
		p.err = p.json.Encode(r)
	}
	sim.PassPlan(p.Observer, r)
}

func (p *plansFile) close() error {
	if p.err != nil {
		return p.err
	}
	if err := p.buf.Flush(); err != nil {
		return err
	}
	return p.file.Commit()
}
