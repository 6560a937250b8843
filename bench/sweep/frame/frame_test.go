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
	"lorasim/internal/table"
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

// write writes a table and returns the bytes of the file.
func write(t interface{ Fatal(...any) }, f *frame.Frame, dir, name string) []byte {
	path := filepath.Join(dir, name)
	if err := f.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestParquetGivesBack(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		f := draw(t)
		a, b := write(t, f, dir, "a.parquet"), write(t, f, dir, "b.parquet")
		if !bytes.Equal(a, b) {
			t.Fatal("the same table gave other bytes")
		}
		got, err := frame.ReadFile(filepath.Join(dir, "a.parquet"))
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
	path := filepath.Join(t.TempDir(), "x.parquet")
	if err := f.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	got, err := frame.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(f, got, opts); d != "" {
		t.Fatal(d[:min(len(d), 400)])
	}
}

// CSV and JSON lines are read back by the standard library.
func TestTextFormats(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		f := draw(t)
		dec := json.NewDecoder(bytes.NewReader(write(t, f, dir, "x.jsonl")))
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
		lines, err := csv.NewReader(bytes.NewReader(write(t, f, dir, "x.csv"))).ReadAll()
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

func TestReadErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.parquet")
	if err := os.WriteFile(path, []byte("PAR1 is no table PAR1"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := frame.ReadFile(path); err == nil || !strings.HasPrefix(err.Error(), path+": ") {
		t.Error(err)
	}
	var gaps []float64
	w, err := table.Create(path, []table.Column{{Name: "gaps", Value: &gaps}}, table.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := frame.ReadFile(path); err == nil || !strings.Contains(err.Error(), `column "gaps" holds lists, expected text or numbers`) {
		t.Error(err)
	}
}
