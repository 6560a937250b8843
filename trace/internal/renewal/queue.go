package renewal

// Event is something that happens to an item, such as the next arrival of a
// process. Events are ordered by At, then by Seq, then by Item.
type Event struct {
	At   float64 // time
	Seq  int64   // 0 where items have one event at a time
	Item int32
}

func (e Event) before(f Event) bool {
	return e.At < f.At || e.At == f.At && (e.Seq < f.Seq || e.Seq == f.Seq && e.Item < f.Item)
}

// Queue is a binary heap of events, the first of which is at index 0. Written
// out because container/heap goes through interfaces, which costs several times
// as much.
type Queue []Event

// Push adds an event.
func (q *Queue) Push(e Event) {
	*q = append(*q, e)
	h := *q
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(h[parent]) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = e
}

// Pop removes the first event.
func (q *Queue) Pop() {
	last := len(*q) - 1
	e := (*q)[last]
	*q = (*q)[:last]
	if last > 0 {
		q.Replace(e)
	}
}

// Replace puts e in the place of the first event.
func (q Queue) Replace(e Event) {
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
