package scenario

import (
	"bufio"
	"encoding/json"

	"lorasim/internal/atomicfile"
	"lorasim/sim"
)

// plansFile writes every plan of a run, one JSON object per line.
type plansFile struct {
	file *atomicfile.File
	buf  *bufio.Writer
	json *json.Encoder
	err  error
}

func newPlansFile(path string) (*plansFile, error) {
	f, err := atomicfile.Create(path)
	if err != nil {
		return nil, err
	}
	p := &plansFile{file: f, buf: bufio.NewWriter(f)}
	p.json = json.NewEncoder(p.buf)
	p.json.SetEscapeHTML(false)
	return p, nil
}

// Plan implements sim.PlanObserver.
func (p *plansFile) Plan(r *sim.PlanRecord) {
	if p.err == nil {
		p.err = p.json.Encode(r)
	}
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
