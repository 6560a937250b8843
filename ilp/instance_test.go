package ilp

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const instanceText = `{"format": "lorasim.migration/1", "alpha_s": 0.05, "bandwidth_pages_per_s": 4096,
 "workers": [
  {"slots": 2, "kv_pages": 100, "resident": [1, 0]},
  {"slots": 1, "kv_pages": 50, "resident": [1]}],
 "adapters": [{"exec_time_s": 2.5}, {"exec_time_s": 1}],
 "requests": [
  {"adapter": 0, "worker": 0, "pages": 7},
  {"adapter": 1, "worker": 1, "pages": 3},
  {"adapter": 0, "worker": 0, "pages": 7},
  {"adapter": 0, "worker": 0, "pages": 5}]}
`

func TestReadInstance(t *testing.T) {
	in, err := ReadInstance(strings.NewReader(instanceText), "x.json")
	if err != nil {
		t.Fatal(err)
	}
	p, members := in.Problem()
	want := []Group{
		{Adapter: 0, Worker: 0, Count: 1, Work: 2.5, Move: 0.05, Pages: 5},
		{Adapter: 0, Worker: 0, Count: 2, Work: 2.5, Move: 0.05, Pages: 7},
		{Adapter: 1, Worker: 1, Count: 1, Work: 1, Move: 0.05, Pages: 3}}
	if !reflect.DeepEqual(p.Groups, want) || !reflect.DeepEqual(members, [][]int{{3}, {0, 2}, {1}}) {
		t.Errorf("groups %+v of %v", p.Groups, members)
	}
	if !slices.Equal(p.Workers[0].Resident, []int32{0, 1}) || p.PageRate != 4096 || p.Workers[1].Pages != 50 {
		t.Errorf("workers %+v, page rate %v", p.Workers, p.PageRate)
	}
	at := in.Assignment([]Flow{{0, 1, 1}, {1, 0, 1}, {1, 1, 1}, {2, 1, 1}}, members)
	if !slices.Equal(at, []int32{0, 1, 1, 1}) {
		t.Errorf("assignment %v", at)
	}
}

func TestReadInstanceErrors(t *testing.T) {
	tests := []struct{ name, old, new, want string }{
		{"not JSON", "{\"format\"", "[\"format\"", "x.json:1: "},
		{"cut off", "\"pages\": 5}]}", "\"pages\": 5}", "x.json:11: the file ends within the instance"},
		{"more", "}]}", "}]} {", "x.json:10: data after the end of the instance"},
		{"unknown key", `"alpha_s"`, `"alpha"`, `unknown field "alpha"`},
		{"wrong type", `"slots": 1`, `"slots": "1"`,
			"x.json:4: workers.slots: found string, expected a whole number in range"},
		{"not an object", instanceText, "7", "x.json:1: the whole: found number, expected an object"},
		{"no list", `[{"exec_time_s": 2.5}, {"exec_time_s": 1}]`, `{}`,
			"x.json:5: adapters: found object, expected a list"},
		{"fraction", `"kv_pages": 50`, `"kv_pages": 50.5`,
			"x.json:4: workers.kv_pages: found number 50.5, expected a whole number in range"},
		{"too large", `"worker": 1`, `"worker": 5000000000`,
			"x.json:8: requests.worker: found number 5000000000, expected a whole number in range"},
		{"format", "migration/1", "migration/2",
			`x.json: format is "lorasim.migration/2", expected "lorasim.migration/1"`},
		{"alpha", "0.05", "-0.05", "x.json: alpha_s is -0.05"},
		{"bandwidth", "4096", "-1", "bandwidth_pages_per_s is -1: expected numbers >= 0"},
		{"exec time", "2.5", "-2.5", "adapters[0]: exec_time_s is -2.5, expected a number >= 0"},
		{"kv pages", `"kv_pages": 50`, `"kv_pages": -50`, "workers[1]: kv_pages is -50, expected >= 0"},
		{"speed", `"slots": 1`, `"slots": 1, "speed": -2`, "workers[1]: speed is -2, expected a number >= 0"},
		{"slots", `"slots": 1`, `"slots": -1`, "workers[1]: slots is -1, expected >= 0"},
		{"resident", `"resident": [1]`, `"resident": [2]`, "workers[1]: resident adapter 2, expected 0 to 1"},
		{"adapter", `"adapter": 1, "worker": 1`, `"adapter": 2, "worker": 1`,
			"requests[1]: adapter 2, expected 0 to 1"},
		{"adapter below", `"adapter": 1, "worker": 1`, `"adapter": -1, "worker": 1`,
			"requests[1]: adapter -1, expected 0 to 1"},
		{"worker", `"adapter": 1, "worker": 1`, `"adapter": 1, "worker": 2`, "requests[1]: worker 2, expected 0 to 1"},
		{"pages", `"pages": 3`, `"pages": -3`, "requests[1]: pages is -3, expected >= 0"},
		{"too few slots", `"slots": 2`, `"slots": 0`, "requests of 2 adapters, but the workers have 1 slots"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(instanceText, tt.old, tt.new, 1)
			if text == instanceText {
				t.Fatal("the test changes nothing")
			}
			in, err := ReadInstance(strings.NewReader(text), "x.json")
			if err == nil || in != nil || !strings.Contains(err.Error(), tt.want) ||
				!strings.HasPrefix(err.Error(), "x.json:") {
				t.Errorf("error %v, expected %q", err, tt.want)
			}
		})
	}
}

func TestInstanceRoundTrip(t *testing.T) {
	in := Generate(3, 7, 40, 9)
	var b bytes.Buffer
	if err := in.Write(&b); err != nil {
		t.Fatal(err)
	}
	again, err := ReadInstance(&b, "x.json")
	if err != nil || !reflect.DeepEqual(in, again) {
		t.Errorf("%v\n%+v\n%+v", err, in, again)
	}
}

// TestAssignment: the requests' own workers give the objective of the flows.
func TestAssignment(t *testing.T) {
	in := Generate(4, 9, 60, 3)
	p, members := in.Problem()
	sol, err := Embedded{}.Solve(context.Background(), p, Budget{})
	if err != nil {
		t.Fatal(err)
	}
	busy, pages := make([]float64, 4), make([]int64, 4)
	for i, to := range in.Assignment(sol.Flows, members) {
		r := in.Requests[i]
		busy[to] += in.Adapters[r.Adapter].ExecTime
		if to != r.Worker {
			busy[to] += in.Alpha
		}
		pages[to] += r.Pages
	}
	for j, w := range in.Workers {
		busy[j] += math.Max(0, float64(pages[j]-w.KVPages)) / in.Bandwidth
	}
	if got := slices.Max(busy); math.Abs(got-sol.Objective) > 1e-9*got {
		t.Errorf("busiest worker by requests %v, objective %v", got, sol.Objective)
	}
}

func TestGenerate(t *testing.T) {
	for _, z := range [][3]int{{1, 1, 1}, {2, 4, 32}, {5, 3, 20}, {8, 32, 200}, {3, 7, 0}} {
		in := Generate(z[0], z[1], z[2], 1)
		if err := in.Check(); err != nil {
			t.Fatalf("%v: %v", z, err)
		}
		if !reflect.DeepEqual(in, Generate(z[0], z[1], z[2], 1)) || z[2] > 1 &&
			reflect.DeepEqual(in, Generate(z[0], z[1], z[2], 2)) {
			t.Errorf("%v: the same seed must give the same, another seed another", z)
		}
		slots := int(math.Ceil(float64(z[0]+z[1]-1) / float64(z[0])))
		held := make([]bool, z[1])
		for j, w := range in.Workers {
			if w.Slots != slots || len(w.Resident) != min(slots, z[1]) {
				t.Errorf("%v: worker %d holds %d adapters in %d slots, expected %d", z, j, len(w.Resident), w.Slots,
					slots)
			}
			for _, k := range w.Resident {
				held[k] = true
			}
		}
		if slices.Contains(held, false) {
			t.Errorf("%v: an adapter is on no worker", z)
		}
		for _, a := range in.Adapters {
			if a.ExecTime < 1 || a.ExecTime > 7 {
				t.Errorf("%v: execution time %v", z, a.ExecTime)
			}
		}
		for _, r := range in.Requests {
			if !slices.Contains(in.Workers[r.Worker].Resident, r.Adapter) || r.Pages < 1 || r.Pages > 512 {
				t.Errorf("%v: request %+v", z, r)
			}
		}
	}
}

// TestGenerateDistribution compares moments of a large draw with their values.
func TestGenerateDistribution(t *testing.T) {
	in := Generate(4, 50, 40_000, 1)
	count := make([]float64, 50)
	logs := 0.0
	for _, r := range in.Requests {
		count[r.Adapter]++
		logs += math.Log(float64(r.Pages))
	}
	// the median of the pages is 24; clamping and rounding change little
	if mean := logs / 40_000; math.Abs(mean-math.Log(24)) > 0.02 {
		t.Errorf("mean log of pages %.4f, expected %.4f +- 0.02", mean, math.Log(24))
	}
	slices.Sort(count)
	slices.Reverse(count)
	sum := 0.0
	for i := range count {
		sum += math.Pow(float64(i+1), -0.9)
	}
	for _, i := range []int{0, 1, 9} {
		want := 40_000 * math.Pow(float64(i+1), -0.9) / sum
		if math.Abs(count[i]-want) > 5*math.Sqrt(want) {
			t.Errorf("adapter of rank %d: %v requests, expected %.0f", i+1, count[i], want)
		}
	}
}

func FuzzReadInstance(f *testing.F) {
	f.Add([]byte(instanceText))
	f.Add([]byte(`{"format":"lorasim.migration/1"}`))
	f.Add([]byte(`{"workers":null} 1`))
	f.Fuzz(func(t *testing.T, data []byte) {
		in, err := ReadInstance(bytes.NewReader(data), "x.json")
		if err != nil {
			if in != nil || !strings.HasPrefix(err.Error(), "x.json:") {
				t.Fatalf("%+v, %v", in, err)
			}
			return
		}
		text, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ReadInstance(bytes.NewReader(text), "again")
		if err != nil {
			t.Fatal(err)
		}
		if p, _ := again.Problem(); len(in.Workers)*len(in.Adapters) < 10_000 {
			sol, err := Embedded{}.Solve(t.Context(), p, Budget{Work: 1000})
			if err != nil {
				t.Fatal(err)
			}
			if err := Verify(p, sol); err != nil {
				t.Fatal(err)
			}
		}
	})
}
