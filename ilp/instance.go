package ilp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"lorasim/internal/textfile"
)

// Format is the value of the field format in the JSON form of an instance.
const Format = "lorasim.migration/1"

// Instance is a migration problem in dLoRA's form: single requests, one execution time per adapter, and a constant cost
// of moving.
type Instance struct {
	Format    string            `json:"format"`                // [Format]
	Alpha     float64           `json:"alpha_s"`               // cost of a moved request on its new worker, s
	Bandwidth float64           `json:"bandwidth_pages_per_s"` // rate for pages beyond a worker's capacity
	Workers   []InstanceWorker  `json:"workers"`
	Adapters  []InstanceAdapter `json:"adapters"`
	Requests  []InstanceRequest `json:"requests"`
}

// InstanceWorker is a worker of an instance.
type InstanceWorker struct {
	Speed    float64 `json:"speed,omitempty"` // speed relative to the execution times; 0: 1
	Slots    int     `json:"slots"`           // limit of different adapters with requests on the worker
	KVPages  int64   `json:"kv_pages"`        // capacity of the KV cache
	Resident []int32 `json:"resident"`        // indices of adapters on the worker
}

// InstanceAdapter is an adapter of an instance.
type InstanceAdapter struct {
	ExecTime float64 `json:"exec_time_s"` // mean execution time of a request, s
}

// InstanceRequest is a request of an instance.
type InstanceRequest struct {
	Adapter int32 `json:"adapter"` // index of the adapter
	Worker  int32 `json:"worker"`  // index of the current worker
	Pages   int64 `json:"pages"`   // KV pages
}

// ReadInstance reads an instance from JSON and checks it. name is the file name for errors.
func ReadInstance(r io.Reader, name string) (*Instance, error) {
	data, err := textfile.ReadAll(r, name, textfile.MaxData)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var in Instance
	if err := dec.Decode(&in); err != nil {
		return nil, jsonError(err, data, name)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("%s:%d: data after the end of the instance", name, lineAt(data, dec.InputOffset()))
	}
	if err := in.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &in, nil
}

// jsonError says where in a file the JSON is wrong, and what was expected.
func jsonError(err error, data []byte, name string) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("%s:%d: %w", name, lineAt(data, syntax.Offset), err)
	case errors.As(err, &kind):
		expected := "an object"
		switch kind.Type.Kind() {
		case reflect.Int, reflect.Int32, reflect.Int64:
			expected = "a whole number in range"
		case reflect.Float64:
			expected = "a number"
		case reflect.Slice:
			expected = "a list"
		case reflect.String:
			expected = "a string"
		}
		return fmt.Errorf("%s:%d: %s: found %s, expected %s", name, lineAt(data, kind.Offset),
			cmp.Or(kind.Field, "the whole"), kind.Value, expected)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s:%d: the file ends within the instance", name, lineAt(data, int64(len(data))))
	}
	return fmt.Errorf("%s: %s, which %s does not have", name, strings.TrimPrefix(err.Error(), "json: "), Format)
}

func lineAt(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:min(offset, int64(len(data)))], []byte("\n"))
}

// Write writes an instance as JSON, on one line.
func (in *Instance) Write(w io.Writer) error { return json.NewEncoder(w).Encode(in) }

// Check returns an error if the instance is invalid.
func (in *Instance) Check() error {
	if in.Format != Format {
		return fmt.Errorf("format is %q, expected %q", in.Format, Format)
	}
	if !finite(in.Alpha) || !finite(in.Bandwidth) {
		return fmt.Errorf("alpha_s is %v, bandwidth_pages_per_s is %v: expected numbers >= 0", in.Alpha, in.Bandwidth)
	}
	for k, a := range in.Adapters {
		if !finite(a.ExecTime) {
			return fmt.Errorf("adapters[%d]: exec_time_s is %v, expected a number >= 0", k, a.ExecTime)
		}
	}
	for j, w := range in.Workers {
		switch {
		case !finite(w.Speed):
			return fmt.Errorf("workers[%d]: speed is %v, expected a number >= 0", j, w.Speed)
		case w.Slots < 0:
			return fmt.Errorf("workers[%d]: slots is %d, expected >= 0", j, w.Slots)
		case w.KVPages < 0:
			return fmt.Errorf("workers[%d]: kv_pages is %d, expected >= 0", j, w.KVPages)
		}
		for _, k := range w.Resident {
			if int(k) < 0 || int(k) >= len(in.Adapters) {
				return fmt.Errorf("workers[%d]: resident adapter %d, expected 0 to %d", j, k, len(in.Adapters)-1)
			}
		}
	}
	for i, r := range in.Requests {
		switch {
		case int(r.Adapter) < 0 || int(r.Adapter) >= len(in.Adapters):
			return fmt.Errorf("requests[%d]: adapter %d, expected 0 to %d", i, r.Adapter, len(in.Adapters)-1)
		case int(r.Worker) < 0 || int(r.Worker) >= len(in.Workers):
			return fmt.Errorf("requests[%d]: worker %d, expected 0 to %d", i, r.Worker, len(in.Workers)-1)
		case r.Pages < 0:
			return fmt.Errorf("requests[%d]: pages is %d, expected >= 0", i, r.Pages)
		}
	}
	p, _ := in.Problem()
	return p.Check()
}

// Problem converts the instance into a problem. A group holds the requests with the same adapter, worker and pages. The
// second result lists the requests of each group.
func (in *Instance) Problem() (*Problem, [][]int) {
	p := &Problem{Adapters: len(in.Adapters), PageRate: in.Bandwidth}
	for _, w := range in.Workers {
		res := slices.Clone(w.Resident)
		slices.Sort(res)
		p.Workers = append(p.Workers, Worker{Speed: w.Speed, Slots: w.Slots, Pages: float64(w.KVPages),
			Resident: slices.Compact(res)})
	}
	order := make([]int, len(in.Requests))
	for i := range order {
		order[i] = i
	}
	key := func(a, b InstanceRequest) int {
		return cmp.Or(cmp.Compare(a.Adapter, b.Adapter), cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.Pages, b.Pages))
	}
	slices.SortStableFunc(order, func(a, b int) int { return key(in.Requests[a], in.Requests[b]) })
	var members [][]int
	for n, i := range order {
		r := in.Requests[i]
		if n == 0 || key(in.Requests[order[n-1]], r) != 0 {
			p.Groups = append(p.Groups, Group{Adapter: r.Adapter, Worker: r.Worker,
				Work: in.Adapters[r.Adapter].ExecTime, Move: in.Alpha, Pages: float64(r.Pages)})
			members = append(members, nil)
		}
		g := len(p.Groups) - 1
		p.Groups[g].Count++
		members[g] = append(members[g], i)
	}
	return p, members
}

// Assignment converts flows of the instance's problem into the worker of each request. members is the second result of
// [Instance.Problem].
func (in *Instance) Assignment(flows []Flow, members [][]int) []int32 {
	at := make([]int32, len(in.Requests))
	next := make([]int64, len(members))
	for _, f := range flows {
		for range f.Count {
			at[members[f.Group][next[f.Group]]] = f.Worker
			next[f.Group]++
		}
	}
	return at
}

// Generate returns a random instance of dLoRA's problem with J workers and K adapters. Execution times are uniform from
// 1 to 7 s, in whole ms. The popularity of adapters is Zipf 0.9 in random order. Each worker has ceil((J+K-1)/J) slots.
// Every adapter is placed once, round-robin over a random order; the remaining slots are filled at random. Each request
// is on a random worker with its adapter. Pages are log-normal (ln 24, 0.9) from 1 to 512; KV pages are an even share
// times a number from 0.8 to 1.2.
func Generate(workers, adapters, requests int, seed uint64) *Instance {
	rng := rand.New(rand.NewPCG(seed, 0x6d696772617465))
	in := &Instance{Format: Format, Alpha: 0.05, Bandwidth: 4096}
	for range adapters {
		in.Adapters = append(in.Adapters, InstanceAdapter{math.Round(1000*(1+6*rng.Float64())) / 1000})
	}
	slots := (workers + adapters - 1 + workers - 1) / workers
	holders := make([][]int32, adapters)
	in.Workers = slices.Repeat([]InstanceWorker{{Slots: slots}}, workers)
	for n, k := range rng.Perm(adapters) {
		j := n % workers
		in.Workers[j].Resident = append(in.Workers[j].Resident, int32(k))
	}
	for j := range in.Workers {
		w := &in.Workers[j]
		for _, k := range rng.Perm(adapters) {
			if len(w.Resident) >= slots {
				break
			}
			if !slices.Contains(w.Resident, int32(k)) {
				w.Resident = append(w.Resident, int32(k))
			}
		}
		slices.Sort(w.Resident)
		for _, k := range w.Resident {
			holders[k] = append(holders[k], int32(j))
		}
	}
	rank := rng.Perm(adapters)
	cum := make([]float64, adapters)
	sum := 0.0
	for i := range cum {
		sum += math.Pow(float64(i+1), -0.9)
		cum[i] = sum
	}
	total := int64(0)
	for range requests {
		i, _ := slices.BinarySearch(cum, rng.Float64()*sum)
		k := rank[min(i, adapters-1)]
		pages := int64(math.Round(math.Exp(math.Log(24) + 0.9*rng.NormFloat64())))
		pages = min(max(pages, 1), 512)
		total += pages
		in.Requests = append(in.Requests,
			InstanceRequest{Adapter: int32(k), Worker: holders[k][rng.IntN(len(holders[k]))], Pages: pages})
	}
	for j := range in.Workers {
		in.Workers[j].KVPages = int64(float64(total) / float64(workers) * (0.8 + 0.4*rng.Float64()))
	}
	return in
}
