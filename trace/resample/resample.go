// Package resample draws workloads from one recorded workload, with replacement. Each seed gives another workload
// that could have come from the same source. The spread of a result over such draws shows how much the result
// depends on the recorded sample (the bootstrap: B. Efron, Bootstrap methods, 1979).
//
//	spec, err := resample.Parse("block:60")
//	w, err := resample.Draw(recorded, spec, seed)
//
// A drawn workload begins at 0 and is as long as the recorded one. The end of the recorded workload is joined to its
// beginning, one mean gap apart, so that every instant is equally likely (D. Politis and J. Romano, A circular
// block-resampling procedure for stationary data, 1992).
package resample

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"

	"lorasim/trace"
	"lorasim/trace/internal/renewal"
	"lorasim/trace/settings"
)

// The kinds of draws.
const (
	// Block draws blocks of time and concatenates them.
	Block = "block"
	// Sessions draws sessions and keeps the time between the starts of consecutive sessions.
	Sessions = "sessions"
	// Adapters draws adapters, each with all of its requests.
	Adapters = "adapters"
)

// A Spec describes what Draw draws.
type Spec struct {
	Kind string
	// Seconds is a time, s. For Block it is the length of a block. For Sessions it is the pause that ends a
	// session; 0: texts of prompts determine the sessions.
	Seconds float64
}

// drawing are the options of one kind.
type drawing interface{ spec() Spec }

type blockOptions struct {
	Seconds float64 `arg:"1" required:"yes" check:">=1e-6 <=1e9" unit:"s" help:"length of a block, as in block:60"`
}

func (o *blockOptions) spec() Spec { return Spec{Block, o.Seconds} }

type sessionsOptions struct {
	Pause float64 `arg:"1" check:">=1e-6 <=1e9" unit:"s" help:"pause that ends a session; default: prompts show which requests belong together"`
}

func (o *sessionsOptions) spec() Spec { return Spec{Sessions, o.Pause} }

type adaptersOptions struct{}

func (*adaptersOptions) spec() Spec { return Spec{Kind: Adapters} }

func drawings() []settings.Kind[drawing] {
	return []settings.Kind[drawing]{
		{Name: Block, Summary: "blocks of time, laid end to end", New: func() drawing { return &blockOptions{} }},
		{Name: Sessions, Summary: "sessions, each with the time since the one before it began",
			New: func() drawing { return &sessionsOptions{} }},
		{Name: Adapters, Summary: "adapters, each with all of its requests",
			New: func() drawing { return &adaptersOptions{} }},
	}
}

// Forms returns the forms that Parse reads.
func Forms() []settings.Form { return settings.Forms(drawings()) }

// Parse parses a spec: "block:60", "sessions", "sessions:300" or "adapters".
func Parse(text string) (Spec, error) {
	s, err := settings.Parse("resample", drawings(), text)
	if err != nil {
		return Spec{}, err
	}
	return s.Value.spec(), nil
}

// String returns the spec in the form that Parse reads.
func (s Spec) String() string {
	if s.Seconds == 0 {
		return s.Kind
	}
	return s.Kind + ":" + strconv.FormatFloat(s.Seconds, 'g', -1, 64)
}

// stream keeps these random numbers apart from others of the same seed.
const stream = 0x726573616d706c65 // "resample"

// Draw draws a workload from a recorded one; the same seed gives the same workload. It holds both in memory.
// Requests are numbered anew. A prefix that prompts of several sessions share, such as a system prompt, stays
// shared. A prefix within one session becomes a new text in every copy, so that copies do not hit each other's
// entries in a prefix cache.
func Draw(w *trace.Workload, s Spec, seed uint64) (*trace.Workload, error) {
	n := len(w.Requests)
	if n < 2 || w.Requests[n-1].Arrival == w.Requests[0].Arrival {
		return nil, fmt.Errorf("%d requests at one time: no interval to draw from", n)
	}
	first, last := w.Requests[0].Arrival, w.Requests[n-1].Arrival
	d := &drawer{w: w, first: first, span: (last - first) * float64(n) / float64(n-1),
		rng: rand.New(rand.NewPCG(renewal.Mix(seed), stream)), adapters: w.Adapters}
	of := sessionsByPrompt(w.Requests)
	d.texts = newTexts(w.Requests, of)
	if err := d.draw(s, of); err != nil {
		return nil, err
	}
	if len(d.out) == 0 {
		return nil, fmt.Errorf("%s drew no request: most of the workload's time is empty", s)
	}
	slices.SortStableFunc(d.out, func(a, b trace.Request) int { return cmp.Compare(a.Arrival, b.Arrival) })
	for i := range d.out {
		d.out[i].ID = int64(i)
	}
	return &trace.Workload{Adapters: d.adapters, Requests: d.out}, nil
}

// drawer draws one workload.
type drawer struct {
	w           *trace.Workload
	first, span float64 // s
	rng         *rand.Rand
	texts       *texts
	adapters    []trace.Adapter
	out         []trace.Request
}

func (d *drawer) draw(s Spec, of []int32) error {
	switch s.Kind {
	case Block:
		if s.Seconds > d.span/2 {
			return fmt.Errorf("blocks of %g s are too long for a workload of %.6g s, expected at most half of that", s.Seconds, d.span)
		}
		d.blocks(s.Seconds)
	case Sessions:
		if s.Seconds > 0 {
			of = sessionsByPause(d.w.Requests, s.Seconds)
		} else if !slices.ContainsFunc(d.w.Requests, func(r trace.Request) bool { return r.Text != nil }) {
			return errors.New("the workload does not say which prompts repeat others (columns hash_ids or text), so its sessions are unknown: give sessions:SECONDS, the pause of an adapter that ends a session, or block:SECONDS")
		}
		d.sessions(of)
	case Adapters:
		if len(d.w.Adapters) == 0 {
			return errors.New("the workload has no adapters")
		}
		d.streams()
	}
	return nil
}

// add adds a copy of a recorded request. Times beyond the end wrap around to the beginning, where the rest of a cut
// session is a new session.
func (d *drawer) add(i int, at float64, copied int64) *trace.Request {
	r := d.w.Requests[i]
	lap := int64(0)
	for ; at >= d.span; at -= d.span {
		lap++
	}
	r.Arrival = at
	r.Text, r.Reply = d.texts.of(r.Text, 2*copied+lap), d.texts.of(r.Reply, 2*copied+lap)
	d.out = append(d.out, r)
	return &d.out[len(d.out)-1]
}

// blocks lays blocks of time end to end; the last one is cut.
func (d *drawer) blocks(length float64) {
	n := len(d.w.Requests)
	for k := 0; float64(k)*length < d.span; k++ {
		from := d.rng.Float64() * d.span
		end := min(length, d.span-float64(k)*length)
		i := sort.Search(n, func(i int) bool { return d.w.Requests[i].Arrival-d.first >= from })
		for lap := 0.0; ; i++ {
			if i == n {
				i, lap = 0, lap+d.span
			}
			offset := d.w.Requests[i].Arrival - d.first + lap - from
			if offset >= end {
				break
			}
			d.add(i, float64(k)*length+offset, int64(k))
		}
	}
}

// sessions draws sessions until they fill the time of the recorded workload. Each
// begins as long after the one drawn before it as in the record.
func (d *drawer) sessions(of []int32) {
	members := grouped(of)
	began := func(s int) float64 { return d.w.Requests[members[s][0]].Arrival - d.first }
	at := 0.0
	for k := int64(0); ; k++ {
		s := d.rng.IntN(len(members))
		gap := d.span - began(len(members)-1) // from the last to the first
		if s > 0 {
			gap = began(s) - began(s-1)
		}
		if at += gap; at >= d.span {
			return
		}
		for _, i := range members[s] {
			d.add(int(i), at+d.w.Requests[i].Arrival-d.first-began(s), k)
		}
	}
}

// streams draws adapters, in the number of the recorded ones. The first copy of an adapter keeps its times. Other
// copies begin at a random instant, as users of different adapters do not send at the same instants. Requests of the
// base model stay.
func (d *drawer) streams() {
	n := len(d.w.Adapters)
	requests := make([][]int, n)
	for i := range d.w.Requests {
		if a := d.w.Requests[i].Adapter; a >= 0 {
			requests[a] = append(requests[a], i)
		} else {
			d.add(i, d.w.Requests[i].Arrival-d.first, int64(n))
		}
	}
	copies, names := make([]int, n), map[string]bool{}
	for _, a := range d.w.Adapters {
		names[a.Name] = true
	}
	d.adapters = nil
	for k := range n {
		of, shift := d.rng.IntN(n), 0.0
		a := d.w.Adapters[of]
		if copies[of]++; copies[of] > 1 {
			shift = d.rng.Float64() * d.span
			a.Name = unused(names, a.Name, copies[of])
		}
		d.adapters = append(d.adapters, a)
		for _, i := range requests[of] {
			d.add(i, d.w.Requests[i].Arrival-d.first+shift, int64(k)).Adapter = int32(k)
		}
	}
}

// unused is the name of a copy of an adapter: NAME#2, NAME#3, ...
func unused(names map[string]bool, name string, n int) string {
	for ; ; n++ {
		if c := name + "#" + strconv.Itoa(n); !names[c] {
			names[c] = true
			return c
		}
	}
}

// grouped returns the requests of each session, in the order in which the sessions begin.
func grouped(of []int32) [][]int32 {
	var members [][]int32
	for i, s := range of {
		if int(s) == len(members) {
			members = append(members, nil)
		}
		members[s] = append(members[s], int32(i))
	}
	return members
}

// sessionsByPause numbers the sessions of requests. Requests to one adapter belong to the same session until a pause
// between two of them is longer than pause, s.
func sessionsByPause(requests []trace.Request, pause float64) []int32 {
	of := make([]int32, len(requests))
	last := map[int32]int{} // request of an adapter
	next := int32(0)
	for i := range requests {
		r := &requests[i]
		before, seen := last[r.Adapter]
		if last[r.Adapter] = i; seen && r.Arrival-requests[before].Arrival <= pause {
			of[i] = of[before]
			continue
		}
		of[i] = next
		next++
	}
	return of
}

// follow is the prompt of an adapter that later prompts may go on with.
type follow struct {
	text    *trace.Text
	adapter int32
}

// sessionsByPrompt numbers the sessions of requests in the order in which they begin. A request belongs to the
// session of an earlier request to the same adapter if its prompt extends the earlier prompt. A request without text
// is a session of its own.
func sessionsByPrompt(requests []trace.Request) []int32 {
	of := make([]int32, len(requests))
	branches := branching(requests)
	known := map[follow]int32{}
	next := int32(0)
	for i := range requests {
		r := &requests[i]
		found := int32(-1)
		for t := r.Text; t != nil && found < 0; t = t.Parent {
			if s, ok := known[follow{t, r.Adapter}]; ok {
				found = s
			}
		}
		if found < 0 {
			found = next
			next++
		}
		of[i] = found
		if t := whole(r); t != nil && (t.Block == 0 || branches[t] <= maxBranches) {
			if _, ok := known[follow{t, r.Adapter}]; !ok {
				known[follow{t, r.Adapter}] = found
			}
		}
	}
	return of
}

// whole returns the text of a prompt. For a prompt of blocks it is the last full block: the next turn has another
// block in place of a partial one.
func whole(r *trace.Request) *trace.Text {
	t := r.Text
	if t != nil && t.Block > 0 && t.Start+t.Block > r.Prompt {
		t = t.Parent
	}
	return t
}

// maxBranches is the number of different blocks that may follow a prompt of a conversation: the rest of its last
// turn, and the next turn. A prefix with more successors is a system prompt, with which many conversations begin.
const maxBranches = 2

// branching counts the different blocks that follow each block.
func branching(requests []trace.Request) map[*trace.Text]int {
	branches, seen := map[*trace.Text]int{}, map[*trace.Text]bool{}
	for i := range requests {
		for t := requests[i].Text; t != nil && t.Block > 0 && !seen[t]; t = t.Parent {
			seen[t] = true
			if t.Parent != nil {
				branches[t.Parent]++
			}
		}
	}
	return branches
}

// texts makes copies of the texts of prompts.
type texts struct {
	session map[*trace.Text]int32 // whose prompts have a text; shared: of several
	copies  map[textCopy]*trace.Text
	next    int64 // ID of the next copy
}

const shared = -1

type textCopy struct {
	text *trace.Text
	copy int64
}

func newTexts(requests []trace.Request, of []int32) *texts {
	x := &texts{session: map[*trace.Text]int32{}, copies: map[textCopy]*trace.Text{}}
	for i := range requests {
		for t := requests[i].Text; t != nil; t = t.Parent {
			s, seen := x.session[t]
			if seen && (s == of[i] || s == shared) {
				break // so are its parents
			}
			if x.session[t] = of[i]; seen {
				x.session[t] = shared
			}
			if t.ID < 1<<52 { // files hold ids exactly up to 2^53
				x.next = max(x.next, t.ID+1)
			}
		}
	}
	return x
}

// of is a copy of a text; shared texts have none but themselves.
func (x *texts) of(t *trace.Text, copied int64) *trace.Text {
	if t == nil || x.session[t] == shared {
		return t
	}
	k := textCopy{t, copied}
	c := x.copies[k]
	if c == nil {
		c = &trace.Text{Parent: x.of(t.Parent, copied), Start: t.Start, Block: t.Block, ID: x.next}
		x.copies[k] = c
		x.next++
	}
	return c
}
