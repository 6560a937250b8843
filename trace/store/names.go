package store

import (
	"errors"
	"fmt"

	"lorasim/internal/textfile"
	"lorasim/trace"
)

// names knows the adapters of a CSV or JSONL file and turns names into indices.
type names struct {
	adapters []trace.Adapter
	fixed    bool // all adapters are known
	index    map[string]int32

	some  bool // a row was seen
	named bool // its adapter was a name
}

// start makes ready for the first row of the last pass.
func (n *names) start() {
	n.some = false
	n.index = make(map[string]int32, len(n.adapters))
	for i, a := range n.adapters {
		if _, ok := n.index[a.Name]; !ok {
			n.index[a.Name] = int32(i)
		}
	}
}

// same checks that a file has only names or only indices.
func (n *names) same(row *row) error {
	if !n.some {
		n.some, n.named = true, row.named
		return nil
	}
	if n.named == row.named {
		return nil
	}
	if row.named {
		return fmt.Errorf("%q is no index, but the rows before hold indices", row.name)
	}
	return fmt.Errorf("%d is no name, but the rows before hold names", row.Adapter)
}

// add takes note of the adapter of a row, in the first pass.
func (n *names) add(row *row) error {
	if err := n.same(row); err != nil {
		return err
	}
	i := int(row.Adapter)
	switch {
	case !row.named && i >= maxAdapters:
		return fmt.Errorf("%d would mean more than %d adapters", i, maxAdapters)
	case !row.named:
		if i >= len(n.adapters) {
			n.adapters = append(n.adapters, unnamed(len(n.adapters), i+1)...)
		}
	case len(row.name) == 0:
		return nil
	default:
		known, ok := n.index[string(row.name)]
		if !ok {
			if len(n.adapters) == maxAdapters {
				return fmt.Errorf("more than %d different names", maxAdapters)
			}
			if n.index == nil {
				n.index = make(map[string]int32)
			}
			known = int32(len(n.adapters))
			n.index[string(row.name)] = known
			n.adapters = append(n.adapters, trace.Adapter{Name: string(row.name)})
		}
		i = int(known)
	}
	if i >= 0 && row.rank > 0 {
		a := &n.adapters[i]
		if a.Rank != 0 && a.Rank != int(row.rank) {
			return fmt.Errorf("%s has %s %d here and %d before", a.Name, rankColumn, row.rank, a.Rank)
		}
		a.Rank = int(row.rank)
	}
	return nil
}

// unnamed returns the adapters from index first to end-1 of a file that has
// only indices.
func unnamed(first, end int) []trace.Adapter {
	as := make([]trace.Adapter, 0, end-first)
	for i := first; i < end; i++ {
		as = append(as, trace.Adapter{Name: fmt.Sprintf("lora%d", i)})
	}
	return as
}

// resolve sets the adapter index of a row.
func (n *names) resolve(row *row) error {
	if err := n.same(row); err != nil || !row.named {
		return err
	}
	if len(row.name) == 0 {
		row.Adapter = trace.BaseModel
		return nil
	}
	i, ok := n.index[string(row.name)]
	if !ok {
		return n.unknown(string(row.name))
	}
	row.Adapter = i
	return nil
}

func (n *names) unknown(name string) error {
	const most = 20
	if len(n.adapters) == 0 || len(n.adapters) > most {
		return fmt.Errorf("%q is none of the %d adapters", name, len(n.adapters))
	}
	known := make([]string, len(n.adapters))
	for i, a := range n.adapters {
		known[i] = a.Name
	}
	return textfile.Unknown("adapter", name, known)
}

// setAdapter sets the adapter of a row to the index or the name that a CSV or
// JSONL file states.
func (r *row) setAdapter(isJSON bool) (err error) {
	if isJSON && r.text[0] == '"' {
		r.named = true
		r.name, err = textfile.Text(r.text)
		return err
	}
	if !isJSON && !isIndex(r.text) {
		r.name, r.named = r.text, true
		return nil
	}
	i, err := textfile.Int(r.text)
	if err != nil {
		return err
	}
	r.Adapter = int32(i)
	if i < int64(trace.BaseModel) || int64(r.Adapter) != i {
		return errors.New(string(r.text) + " is out of range, expected -1 (base model) or an index")
	}
	return nil
}

// isIndex tells a whole number from the name of an adapter.
func isIndex(b []byte) bool {
	if len(b) > 1 && b[0] == '-' {
		b = b[1:]
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) > 0
}
