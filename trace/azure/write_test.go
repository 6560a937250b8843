package azure

import (
	"bufio"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// drawFunction draws from few names, so that functions repeat.
func drawFunction(t *rapid.T) Function {
	name := rapid.StringMatching(`[a-c]?[\x22 -+;:é]?`)
	return Function{name.Draw(t, "owner"), name.Draw(t, "app"), name.Draw(t, "func")}
}

// writeText writes a file, compressed if its name says so.
func writeText(t interface{ Fatal(...any) }, path, text string) {
	err := writeFile(path, func(w *bufio.Writer) error { _, err := w.WriteString(text); return err })
	if err != nil {
		t.Fatal(err)
	}
}

func minutesText(first int, rows []minuteRow) string {
	text := strings.Join(v1Names, ",")
	for i := range rows[0].Counts {
		text += fmt.Sprint(",", first+i)
	}
	for _, r := range rows {
		text += fmt.Sprintf("\n%s,%s,%s,http", r.Owner, r.App, r.Func)
		for _, n := range r.Counts {
			text += fmt.Sprint(",", n)
		}
	}
	return text + "\n"
}

func rowText(f Function, v Invocation) string {
	number := func(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
	return f.App + "," + f.Func + "," + number(v.End) + "," + number(v.Duration) + "\n"
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
		writeText(t, path, minutesText(first, want))
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
		text := v2Header + "\n"
		for _, r := range want {
			text += rowText(r.Function, Invocation{End: r.End, Duration: r.Duration})
		}
		writeText(t, path, text)
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
