package replay

import (
	"errors"
	"fmt"
	"io"
	"math"

	"lorasim/trace"
	"lorasim/trace/azure"
	"lorasim/trace/internal/renewal"
)

// Vanilla replays the invocations of azure_v2 that start within a window, at
// the times they started. It reads the trace twice: once to give its functions
// to the adapters as Config does, then row by row as the requests are asked
// for; Read.Progress sees both.
type Vanilla struct {
	Path      string // file or folder
	Window    azure.Window
	Mapping   Mapping
	TimeScale float64 // multiplies all times: 0.5 replays twice as fast
	Read      azure.Options
}

// reorderWindow is the number of rows held back to restore the order of start
// times. The published trace is in start order already.
const reorderWindow = 1 << 16

// Replay prepares the replay for the adapters. The caller should close the
// source if it does not read it to its end.
func (v Vanilla) Replay(adapters []trace.Adapter) (*VanillaSource, *Traffic, error) {
	if !(v.TimeScale > 0) || math.IsInf(v.TimeScale, 1) {
		return nil, nil, fmt.Errorf("time scale is %v, expected a number > 0", v.TimeScale)
	}
	q := azure.Query{Format: azure.V2, Window: v.Window, Interval: max(v.Window.Minutes(), 1)}
	t, err := v.Mapping.read(v.Path, q, v.Read, len(adapters), v.Mapping.order)
	if err != nil {
		return nil, nil, fmt.Errorf("vanilla replay of %s: %w", v.Path, err)
	}
	rows, err := azure.OpenInvocations(v.Path, v.Read)
	if err != nil {
		return nil, nil, err
	}
	s := &VanillaSource{v: v, adapters: adapters, rows: rows, adapterOf: make(map[azure.Function]int32, len(t.Functions))}
	for i, f := range t.Functions {
		s.adapterOf[f] = t.AdapterOf[i]
	}
	return s, t, nil
}

// VanillaSource yields the requests of a Vanilla replay.
type VanillaSource struct {
	v         Vanilla
	adapters  []trace.Adapter
	adapterOf map[azure.Function]int32
	byIndex   []int32 // adapter by index of function in rows

	rows  *azure.Invocations
	done  bool          // rows has ended
	queue renewal.Queue // rows held back
	taken int64
	last  float64 // start of the last row given out, s
	next  int64
}

func (s *VanillaSource) Adapters() []trace.Adapter { return s.adapters }

func (s *VanillaSource) Len() int64 { return -1 }

// Close closes the trace.
func (s *VanillaSource) Close() error { return s.rows.Close() }

func (s *VanillaSource) Next() (trace.Request, error) {
	for !s.done && len(s.queue) < reorderWindow {
		if err := s.read(); err != nil {
			return trace.Request{}, err
		}
	}
	if len(s.queue) == 0 {
		return trace.Request{}, io.EOF
	}
	e := s.queue[0]
	s.queue.Pop()
	s.last = e.At
	from, _ := s.v.Window.Seconds()
	r := trace.Request{ID: s.next, Arrival: (e.At - from) * s.v.TimeScale, Adapter: e.Item}
	s.next++
	return r, nil
}

// read takes in one row, if it is in the window.
func (s *VanillaSource) read() error {
	row, err := s.rows.Next()
	if errors.Is(err, io.EOF) {
		s.done = true
		return s.rows.Close()
	}
	if err != nil {
		return err
	}
	from, to := s.v.Window.Seconds()
	at := row.Start()
	if at < from || at >= to {
		return nil
	}
	if at < s.last {
		return fmt.Errorf("%s: the invocation starts at %v s, but one at %v s came more than %d rows before: expected rows in order of their start",
			s.rows.Where(), at, s.last, reorderWindow)
	}
	adapter, err := s.adapter(row.Function)
	if err != nil {
		return err
	}
	s.queue.Push(renewal.Event{At: at, Seq: s.taken, Item: adapter})
	s.taken++
	return nil
}

// adapter returns the adapter of a function by its index in rows.
func (s *VanillaSource) adapter(function int32) (int32, error) {
	for i := len(s.byIndex); i <= int(function); i++ {
		k, ok := s.adapterOf[s.rows.Functions()[i]]
		if !ok {
			k = -1 // no traffic in the window
		}
		s.byIndex = append(s.byIndex, k)
	}
	k := s.byIndex[function]
	if k < 0 {
		return 0, fmt.Errorf("%s: the function was not there when the trace was read before: the file has changed", s.rows.Where())
	}
	return k, nil
}
