package replay

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lorasim/internal/shareddata"
	"lorasim/internal/testutil"
	"lorasim/trace"
	"lorasim/trace/azure"

	gocmp "github.com/google/go-cmp/cmp"
)

type invocation struct {
	azure.Function
	azure.Invocation
}

// writeTrace writes a trace with rows in the given order.
func writeTrace(t testing.TB, rows []invocation) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trace.txt")
	var text strings.Builder
	text.WriteString("app,func,end_timestamp,duration\n")
	for _, r := range rows {
		fmt.Fprintf(&text, "%s,%s,%v,%v\n", r.App, r.Func, r.End, r.Duration)
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// makeRows makes rows of some functions in the order of their start.
func makeRows(n int) []invocation {
	r := rand.New(rand.NewPCG(1, 2))
	rows := make([]invocation, n)
	at := 0.0
	for i := range rows {
		at += r.ExpFloat64() * 0.05
		d := math.Round(r.ExpFloat64()*1000) / 1000
		k := int(r.ExpFloat64() * 3)
		f := azure.Function{App: fmt.Sprint("app", k%3), Func: fmt.Sprint("f", k)}
		rows[i] = invocation{f, azure.Invocation{End: at + d, Duration: d}}
	}
	return rows
}

func vanilla(t *testing.T, v Vanilla, adapters int) ([]trace.Request, *Traffic) {
	t.Helper()
	src, traffic, err := v.Replay(t.Context(), trace.Names(adapters, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	w, err := trace.Collect(src)
	if err != nil {
		t.Fatal(err)
	}
	return w.Requests, traffic
}

// slowVanilla sorts all rows of the window.
func slowVanilla(v Vanilla, rows []invocation, traffic *Traffic) []trace.Request {
	from, to := v.Window.Seconds()
	rows = slices.Clone(rows)
	rows = slices.DeleteFunc(rows, func(r invocation) bool { return r.Start() < from || r.Start() >= to })
	slices.SortStableFunc(rows, func(a, b invocation) int { return cmp.Compare(a.Start(), b.Start()) })
	adapterOf := map[azure.Function]int32{}
	for i, f := range traffic.Functions {
		adapterOf[f] = traffic.AdapterOf[i]
	}
	var rs []trace.Request
	for i, r := range rows {
		rs = append(rs, trace.Request{
			ID: int64(i), Arrival: r.Start() - from, Adapter: adapterOf[r.Function],
		})
	}
	return rs
}

func TestVanilla(t *testing.T) {
	rows := makeRows(20_000)
	shuffled := slices.Clone(rows)
	rand.New(rand.NewPCG(3, 4)).Shuffle(len(shuffled), func(i, j int) {
		shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
	})
	for name, rows := range map[string][]invocation{"in order": rows, "small and shuffled": shuffled} {
		t.Run(name, func(t *testing.T) {
			v := Vanilla{
				Path: writeTrace(t, rows), Window: azure.Window{Start: 1, End: 12},
				Mapping: Mapping{Strategy: RoundRobin, Sort: true},
			}
			got, traffic := vanilla(t, v, 4)
			if len(got) < 10_000 {
				t.Fatalf("only %d requests", len(got))
			}
			if d := gocmp.Diff(slowVanilla(v, rows, traffic), got); d != "" {
				t.Error(d)
			}
		})
	}
}

// The window holds its start and not its end.
func TestVanillaWindow(t *testing.T) {
	f := azure.Function{App: "a", Func: "f"}
	var rows []invocation
	for _, at := range []float64{0, math.Nextafter(60, 0), 60, 60, 119.5, 120} {
		rows = append(rows, invocation{f, azure.Invocation{End: at}})
	}
	v := Vanilla{
		Path: writeTrace(t, rows), Window: azure.Window{Start: 1, End: 2}, Mapping: Mapping{Strategy: RoundRobin},
	}
	got, _ := vanilla(t, v, 1)
	if d := gocmp.Diff([]trace.Request{{}, {ID: 1}, {ID: 2, Arrival: 59.5}}, got); d != "" {
		t.Error(d)
	}
}

// TestVanillaReorders puts rows up to a quarter of the window of reordering out
// of their places in a trace that is larger than it.
func TestVanillaReorders(t *testing.T) {
	rows := makeRows(reorderWindow + reorderWindow/2)
	r := rand.New(rand.NewPCG(5, 6))
	place := map[invocation]int{}
	for i, row := range rows {
		place[row] = i + r.IntN(reorderWindow/4)
	}
	mixed := slices.Clone(rows)
	slices.SortStableFunc(mixed, func(a, b invocation) int { return cmp.Compare(place[a], place[b]) })
	v := Vanilla{
		Path: writeTrace(t, mixed), Window: azure.Window{Start: 0, End: 1440}, Mapping: Mapping{Strategy: Stripe},
	}
	got, traffic := vanilla(t, v, 3)
	if d := gocmp.Diff(slowVanilla(v, rows, traffic), got); d != "" {
		t.Error(d)
	}
}

func TestVanillaErrors(t *testing.T) {
	rows := makeRows(reorderWindow + 1000)
	rows[0], rows[len(rows)-1] = rows[len(rows)-1], rows[0] // too far
	v := Vanilla{
		Path: writeTrace(t, rows), Window: azure.Window{Start: 0, End: 1440}, Mapping: Mapping{Strategy: RoundRobin},
	}
	adapters := trace.Names(2, nil)
	src, _, err := v.Replay(t.Context(), adapters)
	if err != nil {
		t.Fatal(err)
	}
	_, err = trace.Collect(src)
	testutil.ExpectError(t, err, fmt.Sprintf("trace.txt:%d:", len(rows)+1), "order of their start")

	_, _, err = v.Replay(t.Context(), trace.Names(1000, nil))
	testutil.ExpectError(t, err, "functions for 1000 adapters")
	v.Window = azure.Window{Start: 5000, End: 5001}
	_, _, err = v.Replay(t.Context(), adapters)
	testutil.ExpectError(t, err, "0 functions for 2 adapters")
}

// A function that was not there at the first reading: the file changes between that
// and what the second one has read already.
func TestVanillaChangedFile(t *testing.T) {
	v := Vanilla{
		Path: writeTrace(t, makeRows(reorderWindow)), Window: azure.Window{Start: 0, End: 1440},
		Mapping: Mapping{Strategy: RoundRobin},
	}
	src, _, err := v.Replay(t.Context(), trace.Names(2, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	text, err := os.ReadFile(v.Path)
	if err == nil {
		err = os.WriteFile(v.Path, bytes.ReplaceAll(text, []byte(",f"), []byte(",g")), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = trace.Collect(src)
	testutil.ExpectError(t, err, "the file has changed")
}

// TestVanillaPublicExcerpt replays real rows at their times.
func TestVanillaPublicExcerpt(t *testing.T) {
	v := Vanilla{
		Path: shareddata.Path(t, "maf/maf2_invitro_first199rows.csv"), Window: azure.Window{Start: 0, End: 60},
		Mapping: Mapping{Strategy: RoundRobin},
	}
	rs, _ := vanilla(t, v, 4)
	if len(rs) != 199 {
		t.Fatalf("%d requests, expected 199", len(rs))
	}
	// The second row: 57.15786004066467 - 57.154.
	if at := rs[1].Arrival; math.Abs(at-0.00386004066467) > 1e-12 {
		t.Errorf("request 1 at %v s", at)
	}
}
