package replay

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"lorasim/router"
	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// version of the JSON form; replay.js refuses others.
const version = 1

// The JSON form. Times are whole microseconds, rounded down. Columns of times are differences: arrivals to the arrival
// before, each other time to the one before it of the same request; -1: it never came.
type file struct {
	Version   int          `json:"version"`
	End       int64        `json:"end"`
	Workers   []fileStart  `json:"workers"`
	Adapters  fileAdapters `json:"adapters"`
	Requests  fileRequests `json:"requests"`
	Plans     []filePlan   `json:"plans"`
	Thinned   fileThinned  `json:"thinned"`
	Keyframes []fileFrame  `json:"keyframes"`
	// Events is flat: for each the time since the event before, its kind, and as many numbers as arity says.
	Events []int64 `json:"events"`
}

type fileStart struct {
	Slots     int          `json:"slots"`
	HostSlots int          `json:"host_slots"`
	Power     record.Power `json:"power"`
	Tier      int          `json:"tier"`
	Tiers     []int64      `json:"tiers"` // adapter, tier, adapter, tier, ...
}

type fileAdapters struct {
	Names []string `json:"names"`
	Ranks []int    `json:"ranks"`
}

type fileRequests struct {
	ID      []int64 `json:"id"`
	Adapter []int32 `json:"adapter"` // -1: base model
	Arrival []int64 `json:"arrival"`
	Sent    []int64 `json:"sent"`
	First   []int64 `json:"first"`
	Finish  []int64 `json:"finish"`
	Prompt  []int32 `json:"prompt"`
	Output  []int32 `json:"output"`
	// Status is an index into the names of record.Status.
	Status []int  `json:"status"`
	Errors []text `json:"errors"`
}

// text is why a request failed.
type text struct {
	Request int    `json:"request"`
	Error   string `json:"error"`
}

type filePlan struct {
	Made      int64      `json:"made"`
	Applied   int64      `json:"applied"`
	Reason    string     `json:"reason"`
	Dropped   string     `json:"dropped,omitempty"`
	Moved     int        `json:"moved"`
	Gone      int        `json:"gone"`
	Load      [][2]int32 `json:"load"` // worker, adapter
	Unload    [][2]int32 `json:"unload"`
	Moves     [][3]int32 `json:"moves"` // request, from, to; of kept requests
	Objective float64    `json:"objective_s,omitempty"`
	Stay      float64    `json:"stay_s,omitempty"`
}

type fileThinned struct {
	Every     int   `json:"every"`
	Requests  int64 `json:"requests"`
	PlanEvery int   `json:"plan_every"`
	Plans     int64 `json:"plans"`
	Until     int64 `json:"until"` // -1: the whole run
}

// fileFrame is the state before an event.
type fileFrame struct {
	At      int64        `json:"at"`    // of the event before
	Event   int          `json:"event"` // index into Events
	Plans   int          `json:"plans"`
	Workers []fileWorker `json:"workers"`
	Moving  []int32      `json:"moving,omitempty"` // request, from, to, ...
	Held    []int32      `json:"held,omitempty"`
}

type fileWorker struct {
	Power   record.Power `json:"p,omitempty"`
	Down    bool         `json:"d,omitempty"`
	Tiers   []int64      `json:"a,omitempty"` // adapter, tier, ...
	Loading []int64      `json:"l,omitempty"` // adapter, slot (1) or host memory (0), from, to, ...
	Queue   []int32      `json:"q,omitempty"`
	Running []int32      `json:"r,omitempty"`
}

// micros is a time in the JSON form.
func micros(t tick.Ticks) int64 { return int64(t / tick.Microsecond) }

// JSON writes the recording in the form that replay.js reads.
func (r *Replay) JSON(w io.Writer) error {
	f := file{Version: version, End: micros(r.End), Requests: r.fileRequests(), Plans: r.filePlans(),
		Thinned: fileThinned{Every: r.Thinned.Every, Requests: r.Thinned.Requests, PlanEvery: r.Thinned.PlanEvery,
			Plans: r.Thinned.Plans, Until: -1}, Keyframes: []fileFrame{}}
	if r.Thinned.Until != tick.Never {
		f.Thinned.Until = micros(r.Thinned.Until)
	}
	for i := range r.Workers {
		s := &r.Workers[i]
		f.Workers = append(f.Workers, fileStart{s.Slots, s.HostSlots, s.Power, int(s.Tier), fileTiers(s.Tiers)})
	}
	f.Adapters = fileAdapters{make([]string, len(r.Adapters)), make([]int, len(r.Adapters))}
	for i, a := range r.Adapters {
		f.Adapters.Names[i], f.Adapters.Ranks[i] = cmp.Or(a.Name, fmt.Sprint(i)), a.Rank
	}
	r.fileEvents(&f)
	if err := json.NewEncoder(w).Encode(&f); err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	return nil
}

// fileTiers lists tiers by adapter.
func fileTiers(tiers map[int32]router.Tier) []int64 {
	list := make([]int64, 0, 2*len(tiers))
	for a, t := range tiers {
		list = append(list, int64(a)<<8|int64(t))
	}
	slices.Sort(list)
	flat := make([]int64, 0, 2*len(list))
	for _, x := range list {
		flat = append(flat, x>>8, x&0xff)
	}
	return flat
}

// fileEvents fills in events and keyframes.
func (r *Replay) fileEvents(f *file) {
	f.Events = make([]int64, 0, 5*len(r.events))
	last, k := int64(0), 0
	for i := range r.events {
		if k < len(r.keyframes) && r.keyframes[k].next == i {
			f.Keyframes = append(f.Keyframes, r.keyframes[k].state.file(last, len(f.Events)))
			k++
		}
		e := &r.events[i]
		at := micros(e.at)
		f.Events = append(f.Events, at-last, int64(e.kind))
		f.Events = e.appendTo(f.Events)
		last = at
	}
}

// appendTo appends the numbers of an event that follow its kind.
func (e *event) appendTo(list []int64) []int64 {
	n, w, x := int64(e.n), int64(e.worker), int64(e.x)
	switch e.kind {
	case queued, running:
		return append(list, n, w)
	case held, gone, plan:
		return append(list, n)
	case moving, tier:
		return append(list, n, w, x)
	case loadOf:
		slot := int64(0)
		if e.load.Slot {
			slot = 1
		}
		return append(list, n, w, slot, micros(e.load.From), micros(e.load.To))
	}
	return append(list, w, x) // power, outage
}

// file is a keyframe's form.
func (s *State) file(at int64, event int) fileFrame {
	f := fileFrame{At: at, Event: event, Plans: s.Plans, Held: s.Held}
	for _, m := range s.Moving {
		f.Moving = append(f.Moving, m.Request, m.From, m.To)
	}
	for i := range s.Workers {
		w := &s.Workers[i]
		fw := fileWorker{Power: w.Power, Down: w.Down, Tiers: fileTiers(w.Tiers), Queue: w.Queue, Running: w.Running}
		for _, l := range w.Loading {
			slot := int64(0)
			if l.Slot {
				slot = 1
			}
			fw.Loading = append(fw.Loading, int64(l.Adapter), slot, micros(l.From), micros(l.To))
		}
		f.Workers = append(f.Workers, fw)
	}
	return f
}

// fileRequests are the columns of requests.
func (r *Replay) fileRequests() fileRequests {
	f := fileRequests{ID: []int64{}, Adapter: []int32{}, Arrival: []int64{}, Sent: []int64{}, First: []int64{},
		Finish: []int64{}, Prompt: []int32{}, Output: []int32{}, Status: []int{}, Errors: []text{}}
	arrived := int64(0)
	for i := range r.Requests {
		q := &r.Requests[i]
		at, sent := micros(record.Ticks(q.Arrival)), micros(record.Ticks(q.Sent))
		f.ID, f.Adapter = append(f.ID, q.ID), append(f.Adapter, q.Adapter)
		f.Arrival, f.Sent = append(f.Arrival, at-arrived), append(f.Sent, sent-at)
		arrived = at
		first, finish := int64(-1), int64(-1)
		last := sent
		if q.Ended && !math.IsNaN(q.FirstToken) {
			last = micros(record.Ticks(q.FirstToken))
			first = last - sent
		}
		if q.Ended {
			finish = micros(record.Ticks(q.Finish)) - last
		}
		f.First, f.Finish = append(f.First, first), append(f.Finish, finish)
		f.Prompt, f.Output = append(f.Prompt, q.Prompt), append(f.Output, q.Output)
		f.Status = append(f.Status, int(q.Status))
		if q.Error != "" && q.Status != record.OK {
			f.Errors = append(f.Errors, text{i, q.Error})
		}
	}
	return f
}

// filePlans are the plans with moves of kept requests.
func (r *Replay) filePlans() []filePlan {
	index := make(map[int64]int32, len(r.Requests))
	for i := range r.Requests {
		index[r.Requests[i].ID] = int32(i)
	}
	list := make([]filePlan, 0, len(r.Plans))
	for _, p := range r.Plans {
		f := filePlan{Made: micros(tick.FromSeconds(p.Made)), Applied: micros(tick.FromSeconds(p.Applied)),
			Reason: p.Plan.Reason, Dropped: p.Dropped, Moved: p.Moved, Gone: p.Gone,
			Load: places(p.Plan.Load), Unload: places(p.Plan.Unload), Moves: [][3]int32{},
			Objective: p.Plan.Objective, Stay: p.Plan.Stay}
		for _, m := range p.Plan.Move {
			if n, ok := index[m.ID]; ok {
				f.Moves = append(f.Moves, [3]int32{n, m.From, m.To})
			}
		}
		list = append(list, f)
	}
	return list
}

func places(list []router.Placement) [][2]int32 {
	out := make([][2]int32, 0, len(list))
	for _, p := range list {
		out = append(out, [2]int32{p.Worker, p.Adapter})
	}
	return out
}
