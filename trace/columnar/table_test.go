package columnar

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"lorasim/internal/table"
	"lorasim/internal/testutil"
)

// files has all formats.
var files = table.Files(Files())

// cells is a row with a cell of every type.
type cells struct {
	ID       int64
	Count    int32
	Time     float64
	Maybe    float64 // NaN: absent
	Text     string
	Gaps     []float64 // nil: absent
	Optional int32
}

func (c *cells) columns() []table.Column {
	return []table.Column{
		{Name: "id", Value: &c.ID},
		{Name: "count", Value: &c.Count},
		{Name: "time_s", Value: &c.Time, Decimal: true},
		{Name: "maybe, \"s\"", Value: &c.Maybe, Nullable: true},
		{Name: "text", Value: &c.Text},
		{Name: "gaps_s", Value: &c.Gaps, Optional: true},
		{Name: "optional", Value: &c.Optional, Optional: true},
	}
}

// save writes rows and returns the bytes of the file.
func save(t interface{ Fatal(...any) }, path string, rows []cells, o table.Options) []byte {
	var c cells
	w, err := table.Create(path, c.columns(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for _, c = range rows {
		if err := w.Write(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// load reads a whole file.
func load(path string, o table.Options) (rows []cells, err error) {
	var c cells
	r, err := table.Open(context.Background(), path, c.columns(), o)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for err = r.Read(); err == nil; err = r.Read() {
		rows = append(rows, c)
		c = cells{}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return rows, err
}

var anyCells = rapid.Custom(func(t *rapid.T) cells {
	c := cells{
		ID: rapid.Int64().Draw(t, "id"), Count: rapid.Int32().Draw(t, "count"), Time: rapid.Float64().Draw(t, "time"),
		Maybe: rapid.Float64().Draw(t, "maybe"), Text: strings.ReplaceAll(rapid.String().Draw(t, "text"), "\r", "\n"),
		Optional: rapid.Int32().Draw(t, "optional"),
	}
	if rapid.Bool().Draw(t, "absent") {
		c.Maybe = math.NaN()
	}
	if rapid.Bool().Draw(t, "gaps") {
		c.Gaps = rapid.SliceOfN(rapid.Float64(), 0, 5).Draw(t, "gaps")
	}
	return c
})

var equal = cmp.Options{cmpopts.EquateNaNs()}

// Every format gives back what was written, except for lists in CSV, and the same
// rows give the same bytes.
func TestRoundTrip(t *testing.T) {
	dir := t.TempDir()
	for _, ext := range table.Extensions() {
		path := filepath.Join(dir, "t"+ext)
		rapid.Check(t, func(t *rapid.T) {
			rows := rapid.SliceOfN(anyCells, 0, 20).Draw(t, "rows")
			if !bytes.Equal(save(t, path, rows, table.Options{Files: files}), save(t, path, rows,
				table.Options{Files: files})) {
				t.Fatal("the same rows gave different bytes")
			}
			got, err := load(path, table.Options{Files: files, Strict: true})
			if err != nil {
				t.Fatal(err)
			}
			for i := range rows {
				if ext == ".csv" {
					rows[i].Gaps = nil
				}
			}
			if d := cmp.Diff(rows, got, equal, cmpopts.EquateEmpty()); d != "" {
				t.Fatalf("%s (-written +read):\n%s", ext, d)
			}
		})
	}
}

// same is much faster than cmp.Equal.
func (c cells) same(d cells) bool {
	return c.ID == d.ID && c.Count == d.Count && c.Time == d.Time && c.Text == d.Text && c.Optional == d.Optional &&
		(c.Maybe == d.Maybe || math.IsNaN(c.Maybe) && math.IsNaN(d.Maybe)) && (c.Gaps == nil) == (d.Gaps == nil) &&
		slices.Equal(c.Gaps, d.Gaps)
}

// An empty list is not an absent one, rows go over several batches, and what a
// file says of itself comes back.
func TestManyRows(t *testing.T) {
	const n = batchRows + 17
	row := func(i int) cells {
		c := cells{ID: int64(i), Count: int32(i % 7), Time: float64(i) / 3, Maybe: math.NaN(),
			Text: fmt.Sprint("row ", i)}
		if i%3 == 0 {
			c.Maybe, c.Gaps = float64(-i), []float64{}
		}
		if i%5 == 0 {
			c.Gaps = []float64{1, float64(i), 3}
		}
		return c
	}
	rows := make([]cells, n)
	for i := range rows {
		rows[i] = row(i)
	}
	meta := [][2]string{{"a", "1"}, {"b", ""}}
	for _, ext := range []string{".jsonl", ".parquet", ".arrow"} {
		path := filepath.Join(t.TempDir(), "t"+ext)
		save(t, path, rows, table.Options{Files: files, Meta: meta})
		got, err := load(path, table.Options{Files: files})
		if err != nil || len(got) != n {
			t.Fatalf("%s: %d rows, %v", ext, len(got), err)
		}
		for i := range got {
			if !row(i).same(got[i]) {
				t.Fatalf("%s row %d: %+v, expected %+v", ext, i, got[i], row(i))
			}
		}
		var c cells
		r, err := table.Open(t.Context(), path, c.columns(), table.Options{Files: files})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		stated, err := r.Rows()
		if ext == ".jsonl" {
			if stated != -1 || r.Meta() != nil {
				t.Errorf("%s states %d rows and %v", ext, stated, r.Meta())
			}
		} else if stated != n || err != nil || !cmp.Equal(r.Meta(), meta) {
			t.Errorf("%s states %d rows (%v) and %v", ext, stated, err, r.Meta())
		}
	}
}

// Text is fixed by what other programs expect of it.
func TestTextForm(t *testing.T) {
	rows := []cells{
		{ID: 1, Count: -2, Time: 1e-6, Maybe: math.NaN(), Text: "a,\"b\"\nc", Gaps: []float64{0.5, 1e-6}},
		{Time: 1e15, Maybe: 1e-6, Text: "ä"},
	}
	for ext, want := range map[string]string{
		".csv": "id,count,time_s,\"maybe, \"\"s\"\"\",text,optional\n" +
			"1,-2,0.000001,,\"a,\"\"b\"\"\nc\",0\n0,0,1e+15,1e-06,ä,0\n",
		".jsonl": `{"id":1,"count":-2,"time_s":0.000001,"maybe, \"s\"":null,"text":"a,\"b\"\nc","gaps_s":[0.5,1e-06],"optional":0}` + "\n" +
			`{"id":0,"count":0,"time_s":1e+15,"maybe, \"s\"":1e-06,"text":"ä","gaps_s":null,"optional":0}` + "\n",
	} {
		if d := cmp.Diff(want, string(save(t, filepath.Join(t.TempDir(), "t"+ext), rows,
			table.Options{Files: files}))); d != "" {
			t.Errorf("%s (-want +got):\n%s", ext, d)
		}
	}
}

// Text of other programs: another order, other columns, empty fields, gzip.
func TestForeignText(t *testing.T) {
	want := []cells{{ID: 1, Count: 2, Time: 3, Maybe: math.NaN(), Text: "a\n\nb"},
		{ID: -4, Count: 5, Time: 0.5, Maybe: 7, Text: ""}}
	for name, content := range map[string]string{
		"t.csv": "\ufefftext,x,optional,count,time_s,\"maybe, \"\"s\"\"\",id\r\n\"a\r\n\r\nb\",,,2,3,,1\r\n\r\n,\"q\",,5,5e-1,7,-4",
		"t.jsonl": `{"text":"a\n\nb","x":[1,"y"],"count":2,"time_s":3,"maybe, \"s\"":null,"id":1}` + "\n\n" +
			`{"id":-4,"count":5,"time_s":0.5,"maybe, \"s\"":7,"text":"","gaps_s":null}`,
	} {
		for name, content := range map[string][]byte{name: []byte(content), name + ".gz": testutil.Gzip(t, content)} {
			path := testutil.File(t, name, content)
			var c cells
			r, err := table.Open(t.Context(), path, c.columns(), table.Options{Files: files})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			for i := range want {
				c = cells{}
				if err := r.Read(); err != nil || !cmp.Equal(want[i], c, equal) {
					t.Errorf("%s row %d: %+v, %v; expected %+v", name, i, c, err, want[i])
				}
			}
			if err := r.Read(); err != io.EOF {
				t.Errorf("%s: %v after the last row", name, err)
			}
		}
	}
}

func TestBadText(t *testing.T) {
	const head = "id,count,time_s,\"maybe, \"\"s\"\"\",text\n"
	const object = `{"id":1,"count":1,"time_s":1,"text":"","maybe, \"s\"":1}`
	for _, c := range []struct{ name, content, want string }{
		{"t.csv", "", "t.csv: file is empty, expected a header line"},
		{"t.csv", "id,text\n", `t.csv:1: no column "count", "time_s", "maybe, \"s\""; the file has id,text`},
		{"t.csv", "id,idd\n", `t.csv:1: unknown column "idd", did you mean "id"?`},
		{"t.csv", "id,id\n", `t.csv:1: column "id": appears twice`},
		{"t.csv", head + "1,1,1,,\n\"1\n\n", `t.csv:4: quote is not closed`},
		{"t.csv", head + "1,1,1,,\n1,1,,,\n", `t.csv:3: column "time_s": is empty, expected a number`},
		{"t.csv", head + "1,3000000000,1,,\n",
			`t.csv:2: column "count": 3000000000 is out of range, expected a 32-bit number`},
		{"t.csv", head + "x,1,1,,\n", `t.csv:2: column "id": "x" is not a whole number`},
		{"t.csv", head + "1,1,NaN,,\n", `t.csv:2: column "time_s": "NaN" is not a decimal number`},
		{"t.csv", strings.Replace(head, "text", "text,gaps_s", 1) + "1,1,1,,,\n1,1,1,,,[1]\n",
			`t.csv:3: column "gaps_s": lists are not read from CSV`},
		{"t.jsonl", `{"id":1}`, `t.jsonl:1: column "count": is missing`},
		{"t.jsonl", `{"id":1,"id":1}`, `t.jsonl:1: column "id": appears twice`},
		{"t.jsonl", `{"idd":1}`, `t.jsonl:1: unknown key "idd", did you mean "id"?`},
		{"t.jsonl", `{"id":null}`, `t.jsonl:1: column "id": is null, expected a value`},
		{"t.jsonl", `{"text":null}`, `t.jsonl:1: column "text": is null, expected a value`},
		{"t.jsonl", `{"text":1}`, `t.jsonl:1: column "text": 1 is not a string`},
		{"t.jsonl", "\n" + `{"gaps_s":1}`, `t.jsonl:2: column "gaps_s": 1 is not a list of numbers`},
		{"t.jsonl", `{"gaps_s":[1, null]}`, `t.jsonl:1: column "gaps_s": "null" is not a decimal number`},
		{"t.jsonl", object[:9], "t.jsonl:1: JSON object ends too early"},
		{"t.txt", "", `t.txt: unknown file format ".txt" (known: .csv, .jsonl, .parquet, .arrow)`},
		{"t", "", "t: no extension to tell the format, expected .csv, .jsonl, .parquet or .arrow"},
		{"t.parquet", "PAR1", "t.parquet: not a Parquet file: too short"},
		{"t.arrow", "", "t.arrow: not an Arrow file: too short"},
	} {
		t.Chdir(t.TempDir())
		if err := os.WriteFile(c.name, []byte(c.content), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := load(c.name, table.Options{Files: files, Strict: true}); err == nil ||
			!strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s %q:\n got %v\nwant %s...", c.name, c.content, err, c.want)
		}
	}
}

// A file appears whole or not at all, and an old one stays until then.
func TestClose(t *testing.T) {
	for _, ext := range table.Extensions() {
		dir := t.TempDir()
		path := filepath.Join(dir, "t"+ext)
		if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
			t.Fatal(err)
		}
		var c cells
		w, err := table.Create(path, c.columns(), table.Options{Files: files})
		if err != nil {
			t.Fatal(err)
		}
		w.Write()
		w.Abort()
		if text, _ := os.ReadFile(path); string(text) != "old" {
			t.Errorf("%s: after Abort the file holds %q", ext, text)
		}
		if err := errors.Join(w.Write(), w.Close()); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s: after Abort: %v", ext, err)
		}
		if left, _ := os.ReadDir(dir); len(left) != 1 {
			t.Errorf("%s: left behind %v", ext, left)
		}
		if _, err := table.Create(filepath.Join(dir, "none", "t"+ext), c.columns(),
			table.Options{Files: files}); !os.IsNotExist(err) {
			t.Errorf("%s: error %v, expected that the folder does not exist", ext, err)
		}
		if _, err := table.Open(t.Context(), filepath.Join(dir, "none"+ext), c.columns(),
			table.Options{Files: files}); !os.IsNotExist(err) {
			t.Errorf("%s: error %v, expected that the file does not exist", ext, err)
		}
	}
	if _, err := table.Create(filepath.Join(t.TempDir(), "t.xls"), nil, table.Options{Files: files}); err == nil ||
		!strings.Contains(err.Error(), "unknown file format") {
		t.Error(err)
	}
	if _, err := table.Open(t.Context(), "/dev/null.parquet/..", nil, table.Options{Files: files}); err == nil {
		t.Error("opened nothing")
	}
}

// Errors of the last bytes, such as a footer, are not lost.
func TestDiskFull(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full")
	}
	for _, ext := range table.Extensions() {
		f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var c cells
		out := bufio.NewWriter(f)
		e, err := table.NewEncoder(ext, f, out, c.columns(), table.Options{Files: files})
		if err == nil {
			err = e.Write()
		}
		if err == nil {
			err = errors.Join(e.Close(), out.Flush())
		}
		if err == nil || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("%s: error %v, expected that no space is left", ext, err)
		}
	}
}

// Progress tells the bytes read, and its error ends the reading.
func TestProgress(t *testing.T) {
	rows := make([]cells, 50_000)
	for i := range rows {
		rows[i].ID, rows[i].Text = int64(i)*7919, fmt.Sprint(i)
	}
	stop := errors.New("stop")
	for _, ext := range table.Extensions() {
		path := filepath.Join(t.TempDir(), "t"+ext)
		size := len(save(t, path, rows, table.Options{Files: files}))
		var last int64
		if _, err := load(path, table.Options{Files: files,
			Progress: func(n int64) error { last = n; return nil }}); err != nil {
			t.Fatal(err)
		}
		if math.Abs(float64(last)/float64(size)-1) > 0.05 {
			t.Errorf("%s: told %d of %d bytes", ext, last, size)
		}
		if _, err := load(path, table.Options{Files: files,
			Progress: func(n int64) error { return stop }}); !errors.Is(err, stop) {
			t.Errorf("%s: error %v, expected that it stops", ext, err)
		}
	}
}
