package replay

// event is something that happens to an adapter. Events are ordered by time,
// and those at the same time by seq.
type event struct {
	at      float64
	seq     int64
	adapter int32
}

func (e event) before(f event) bool { return e.at < f.at || e.at == f.at && e.seq < f.seq }

// heap is a binary heap of events with the first one at index 0. Written out
// because container/heap goes through interfaces, which costs several times as
// much.
type heap []event

func (h *heap) push(e event) {
	*h = append(*h, e)
	q := *h
	i := len(q) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(q[parent]) {
			break
		}
		q[i] = q[parent]
		i = parent
	}
	q[i] = e
}

// pop removes the first event.
func (h *heap) pop() {
	q := *h
	last := len(q) - 1
	e := q[last]
	*h = q[:last]
	if last > 0 {
		h.replace(e)
	}
}

// replace puts e in the place of the first event.
func (h *heap) replace(e event) {
	q := *h
	i := 0
	for {
		child := 2*i + 1
		if child >= len(q) {
			break
		}
		if child+1 < len(q) && q[child+1].before(q[child]) {
			child++
		}
		if !q[child].before(e) {
			break
		}
		q[i] = q[child]
		i = child
	}
	q[i] = e
}
