package azure

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func failing(w io.Writer) error {
	if _, err := io.WriteString(w, v2Header); err != nil {
		return err
	}
	return errors.New("disk full")
}

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
		err := WriteFile(path, func(w io.Writer) error {
			m, err := NewMinuteWriter(w, first, last)
			if err != nil {
				return err
			}
			for _, r := range want {
				if err := m.Write(r.Function, "http", r.Counts); err != nil {
					return err
				}
			}
			return m.Flush()
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
		err := WriteFile(path, func(w io.Writer) error {
			iw, err := NewInvocationWriter(w)
			if err != nil {
				return err
			}
			for _, r := range want {
				if err := iw.Write(r.Function, Invocation{End: r.End, Duration: r.Duration}); err != nil {
					return err
				}
			}
			return iw.Flush()
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
	_, err := NewMinuteWriter(io.Discard, 0, 5)
	expectError(t, err, "minute columns 0 to 5", "1 to 1440")
	m, err := NewMinuteWriter(io.Discard, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	expectError(t, m.Write(Function{Func: "f"}, "http", []int32{1}), "function f", "1 counts, expected 2")
	expectError(t, m.Write(Function{Func: "f"}, "http", []int32{1, -1}), "count 1 is -1")
	expectError(t, m.Write(Function{App: "a,b"}, "http", []int32{1, 1}), `"a,b"`)
	w, err := NewInvocationWriter(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	expectError(t, w.Write(Function{Func: "a\nb"}, Invocation{}), `"a\nb"`)
	for _, x := range []float64{-1, math.NaN(), math.Inf(1)} {
		expectError(t, w.Write(Function{Func: "f"}, Invocation{End: 1, Duration: x}), fmt.Sprint(x), ">= 0")
	}
	if err := WriteFile(filepath.Join(t.TempDir(), "no", "such", "folder"), failing); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, expected that the folder does not exist", err)
	}
}
