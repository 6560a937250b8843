package azure

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// drawFunction draws from few names, so that functions repeat.
func drawFunction(t *rapid.T) Function {
	name := rapid.StringMatching(`[a-c]?[\x22 -+;:é]?`)
	return Function{name.Draw(t, "owner"), name.Draw(t, "app"), name.Draw(t, "func")}
}

func TestMinutesRoundTrip(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.IntRange(1, 1440).Draw(t, "first")
		last := rapid.IntRange(first, min(1440, first+20)).Draw(t, "last")
		var want []minuteRow
		for range rapid.IntRange(1, 5).Draw(t, "rows") {
			counts := rapid.SliceOfN(rapid.Int32Range(0, math.MaxInt32), last-first+1, last-first+1).Draw(t, "counts")
			want = append(want, minuteRow{drawFunction(t), first - 1, counts})
		}
		path := filepath.Join(dir, rapid.SampledFrom([]string{"t.csv", "t.csv.gz"}).Draw(t, "name"))
		err := writeFile(path, func(w *bufio.Writer) error {
			return writeMinutes(w, first, last, func(add func(Function, []int32) error) error {
				for _, r := range want {
					if err := add(r.Function, r.Counts); err != nil {
						return err
					}
				}
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := readAllMinutes(path, Window{first - 1, last}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	})
}

func TestInvocationsRoundTrip(t *testing.T) {
	dir := t.TempDir()
	type row struct {
		Function
		End, Duration float64
	}
	rapid.Check(t, func(t *rapid.T) {
		seconds := rapid.Float64Range(0, math.MaxFloat64)
		var want []row
		for range rapid.IntRange(1, 8).Draw(t, "rows") {
			f := drawFunction(t)
			f.Owner = ""
			want = append(want, row{f, seconds.Draw(t, "end"), seconds.Draw(t, "duration")})
		}
		path := filepath.Join(dir, rapid.SampledFrom([]string{"t.txt", "t.csv.gz"}).Draw(t, "name"))
		err := WriteInvocations(path, func(add func(Function, Invocation) error) error {
			for _, r := range want {
				if err := add(r.Function, Invocation{End: r.End, Duration: r.Duration}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		vs, fs, _, err := readAllInvocations(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var got []row
		for _, v := range vs {
			got = append(got, row{fs[v.Function], v.End, v.Duration})
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	})
}

func TestWriterErrors(t *testing.T) {
	dir := t.TempDir()
	minutes := func(f Function, counts ...int32) error {
		return WriteDay(dir, 0, func(add func(Function, []int32) error) error { return add(f, counts) })
	}
	expectError(t, minutes(Function{Func: "f"}, 1, -1), "function f", "count 1 is -1")
	expectError(t, minutes(Function{App: "a,b"}, 1, 1), `"a,b"`)
	row := func(path string, f Function, v Invocation) error {
		return WriteInvocations(path, func(add func(Function, Invocation) error) error { return add(f, v) })
	}
	path := filepath.Join(dir, "a.csv.gz")
	expectError(t, row(path, Function{Func: "a\nb"}, Invocation{}), path, `"a\nb"`)
	for _, x := range []float64{-1, math.NaN(), math.Inf(1)} {
		expectError(t, row(path, Function{Func: "f"}, Invocation{End: 1, Duration: x}), fmt.Sprint(x), ">= 0")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := row(filepath.Join(dir, "no", "such", "folder"), Function{}, Invocation{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, expected that the folder does not exist", err)
	}
}
