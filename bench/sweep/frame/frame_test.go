package frame_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"lorasim/bench/sweep/frame"
)

var opts = cmp.Options{cmpopts.EquateNaNs(), cmpopts.EquateEmpty()}

func draw(t *rapid.T) *frame.Frame {
	f := frame.New("name", frame.Text, "n", frame.Int, "x", frame.Float)
	if rapid.Bool().Draw(t, "meta") {
		f.Meta = [][2]string{{"hash", rapid.StringMatching(`[a-z0-9]{0,40}`).Draw(t, "hash")}}
	}
	for range rapid.IntRange(0, 40).Draw(t, "rows") {
		x := rapid.Float64().Draw(t, "x")
		if rapid.Bool().Draw(t, "absent") {
			x = math.NaN()
		}
		f.Append(rapid.String().Draw(t, "name"), rapid.Int64().Draw(t, "n"), x)
	}
	return f
}

func TestParquetGivesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := draw(t)
		var a, b bytes.Buffer
		if err := f.WriteParquet(&a); err != nil {
			t.Fatal(err)
		}
		if err := f.WriteParquet(&b); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Fatal("the same table gave other bytes")
		}
		got, err := frame.ReadParquet(bytes.NewReader(a.Bytes()), "x.parquet")
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(f, got, opts); d != "" {
			t.Fatal(d)
		}
	})
}

func TestLargeTable(t *testing.T) {
	f := frame.New("i", frame.Int, "s", frame.Text, "x", frame.Float)
	for i := range 300_000 { // several pages per column
		f.Append(i, "text "+strconv.Itoa(i*7919), float64(i)/3)
	}
	var b bytes.Buffer
	if err := f.WriteParquet(&b); err != nil {
		t.Fatal(err)
	}
	got, err := frame.ReadParquet(bytes.NewReader(b.Bytes()), "x")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(f, got, opts); d != "" {
		t.Fatal(d[:min(len(d), 400)])
	}
}

// CSV and JSON lines are read back by the standard library.
func TestTextFormats(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := draw(t)
		var b bytes.Buffer
		if err := f.WriteJSONL(&b); err != nil {
			t.Fatal(err)
		}
		dec := json.NewDecoder(&b)
		for row := range f.Rows {
			var got struct {
				Name string
				N    int64
				X    *float64
			}
			if err := dec.Decode(&got); err != nil {
				t.Fatal(err)
			}
			want := f.Columns[2].Floats[row]
			if got.N != f.Columns[1].Ints[row] || got.X == nil != math.IsNaN(want) || got.X != nil && *got.X != want {
				t.Fatalf("row %d: %+v", row, got)
			}
			if want := strings.ToValidUTF8(f.Columns[0].Texts[row], "\uFFFD"); got.Name != want {
				t.Fatalf("row %d: %q, want %q", row, got.Name, want)
			}
		}
		b.Reset()
		if err := f.WriteCSV(&b); err != nil {
			t.Fatal(err)
		}
		lines, err := csv.NewReader(&b).ReadAll()
		if err != nil || len(lines) != f.Rows+1 {
			t.Fatal(len(lines), err)
		}
		for row, line := range lines[1:] {
			if line[1] != strconv.FormatInt(f.Columns[1].Ints[row], 10) {
				t.Fatal(line)
			}
		}
	})
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	f := frame.New("x", frame.Float)
	f.Append(1.5)
	for _, ext := range []string{".csv", ".jsonl", ".parquet"} {
		if err := f.WriteFile(filepath.Join(dir, "t"+ext)); err != nil {
			t.Error(err)
		}
	}
	if err := f.WriteFile(filepath.Join(dir, "t.xls")); err == nil || !strings.Contains(err.Error(), ".parquet") {
		t.Error(err)
	}
	if _, err := f.Column("x", frame.Int); err == nil || !strings.Contains(err.Error(), "expected whole numbers") {
		t.Error(err)
	}
	if _, err := f.Column("y", frame.Int); err == nil {
		t.Error("column y was found")
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 3 {
		t.Error(entries)
	}
}

func FuzzReadParquet(f *testing.F) {
	t := frame.New("name", frame.Text, "i", frame.Int, "value", frame.Float)
	t.Meta = [][2]string{{"lorasim.cell", "abc"}}
	t.Append("a", 1, 2.5)
	t.Append("b", 2, math.NaN())
	var b bytes.Buffer
	if err := t.WriteParquet(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(b.Bytes()[:b.Len()-9])
	f.Add([]byte("PAR1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := frame.ReadParquet(bytes.NewReader(data), "x.parquet")
		if err != nil {
			if !strings.HasPrefix(err.Error(), "x.parquet: ") {
				t.Errorf("the error does not name the file: %v", err)
			}
			return
		}
		for _, c := range got.Columns {
			if n := max(len(c.Texts), len(c.Ints), len(c.Floats)); n != got.Rows {
				t.Errorf("column %s has %d values, the table %d rows", c.Name, n, got.Rows)
			}
		}
	})
}
