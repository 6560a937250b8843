package records

import (
	"bytes"
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
	"lorasim/sim/record"
	"lorasim/trace"
	"lorasim/trace/columnar"
)

var adapters = []trace.Adapter{{Name: "lora0", Rank: 8}, {Name: `odd, "name"`}, {Name: "第三"}}

// sample returns records that use every kind of value.
func sample() []record.Request {
	nan := math.NaN()
	return []record.Request{
		{
			ID: 0, Adapter: 0, Rank: 8, Arrival: 0.25, Sent: 0.5, FirstToken: 0.75, Finish: 2,
			Prompt: 100, Output: 4, Requested: 16, WorkerFirst: 1, WorkerLast: 0, Migrations: 1,
			ColdLoad: 0.125, Streamed: record.Streamed, Gaps: []float64{0.5, 0.25, 0.5},
		},
		{
			ID: 1, Adapter: -1, Arrival: 1e-9, Sent: nan, FirstToken: nan, Finish: nan, Prompt: 1,
			Requested: 7, WorkerFirst: -1, WorkerLast: -1, Status: record.Rejected,
			Error: "no worker, \"down\"\nsecond line",
		},
		{
			ID: math.MaxInt64, Adapter: 2, Arrival: 1.0 / 3, Sent: 123456.789012345, FirstToken: 123456.8, Finish: 1e7,
			Prompt: math.MaxInt32, Output: 1, WorkerFirst: 0, WorkerLast: 0, Gaps: []float64{},
		},
		{ID: 2, Adapter: 1, Finish: 3, Prompt: 5, WorkerLast: 3, Status: record.Aborted, Error: "später",
			Streamed: record.NotStreamed},
	}
}

// forFormat is what a format gives back of records.
func forFormat(ext string, rs []record.Request) []record.Request {
	out := make([]record.Request, len(rs))
	for i, r := range rs {
		r.Error = clean(r.Error)
		if ext == ".csv" {
			r.Gaps = nil
		}
		out[i] = r
	}
	return out
}

func write(t testing.TB, path string, rs []record.Request) {
	t.Helper()
	w, err := Create(columnar.Files(), path, adapters, false)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for i := range rs {
		if err := w.Write(&rs[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestRoundTrip(t *testing.T) {
	for _, ext := range table.Extensions() {
		t.Run(ext, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "r"+ext)
			write(t, path, sample())
			got, in, err := ReadAll(t.Context(), columnar.Files(), path)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(forFormat(ext, sample()), got, cmpopts.EquateNaNs()); d != "" {
				t.Errorf("records changed (-written +read):\n%s", d)
			}
			want := map[int32]string{0: "lora0", 1: `odd, "name"`, 2: "第三"}
			if d := cmp.Diff(want, in.Names); d != "" {
				t.Errorf("adapter names (-want +got):\n%s", d)
			}
		})
	}
}

// Empty files have their columns all the same.
func TestEmpty(t *testing.T) {
	for _, ext := range table.Extensions() {
		path := filepath.Join(t.TempDir(), "r"+ext)
		write(t, path, nil)
		got, _, err := ReadAll(t.Context(), columnar.Files(), path)
		if err != nil || len(got) != 0 {
			t.Errorf("%s: %d records, error %v; want none", ext, len(got), err)
		}
	}
}

// More rows than one batch holds.
func TestManyBatches(t *testing.T) {
	const n = 2<<16 + 17
	for _, ext := range []string{".parquet", ".arrow"} {
		path := filepath.Join(t.TempDir(), "r"+ext)
		w, err := Create(columnar.Files(), path, adapters, false)
		if err != nil {
			t.Fatal(err)
		}
		request := func(i int64) record.Request {
			r := record.Request{
				ID: i, Adapter: int32(i % 3), Sent: float64(i), Finish: float64(2 * i), Prompt: 1, Output: 2,
				Gaps: []float64{float64(i)}, Error: fmt.Sprint("reason ", i),
			}
			if i%7 == 0 {
				r.FirstToken, r.Gaps = math.NaN(), nil
			}
			return r
		}
		for i := range int64(n) {
			r := request(i)
			if err := w.Write(&r); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := Open(t.Context(), columnar.Files(), path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		var q record.Request
		for i := range int64(n) {
			if err := r.Read(&q); err != nil {
				t.Fatalf("%s row %d: %v", ext, i+1, err)
			}
			want := request(i)
			same := q.FirstToken == want.FirstToken || math.IsNaN(q.FirstToken) && math.IsNaN(want.FirstToken)
			if q.ID != i || !same || q.Error != want.Error || !slices.Equal(q.Gaps, want.Gaps) ||
				q.Finish != want.Finish {
				t.Fatalf("%s row %d: wrote %+v, read %+v", ext, i+1, want, q)
			}
		}
		if err := r.Read(&q); !errors.Is(err, io.EOF) {
			t.Errorf("%s: after the last row: %v, want EOF", ext, err)
		}
	}
}

var anyFloat = rapid.Custom(func(t *rapid.T) float64 {
	if rapid.IntRange(0, 9).Draw(t, "nan") == 0 {
		return math.NaN()
	}
	return rapid.Float64().Draw(t, "value")
})

var anyRecord = rapid.Custom(func(t *rapid.T) record.Request {
	r := record.Request{
		ID: rapid.Int64().Draw(t, "id"), Adapter: rapid.Int32Range(-1, 9).Draw(t, "adapter"),
		Rank: rapid.Int32().Draw(t, "rank"), Arrival: anyFloat.Draw(t, "arrival"), Sent: anyFloat.Draw(t, "sent"),
		FirstToken: anyFloat.Draw(t, "first"), Finish: anyFloat.Draw(t, "finish"),
		Prompt: rapid.Int32().Draw(t, "prompt"), Output: rapid.Int32().Draw(t, "output"),
		Requested: rapid.Int32().Draw(t, "requested"), WorkerFirst: rapid.Int32().Draw(t, "wf"),
		WorkerLast: rapid.Int32().Draw(t, "wl"), Migrations: rapid.Int32().Draw(t, "mig"),
		ColdLoad: anyFloat.Draw(t, "cold"),
		Status:   record.Status(rapid.IntRange(0, int(record.NumStatus)-1).Draw(t, "status")),
		Error:    rapid.String().Draw(t, "error"),
	}
	if rapid.Bool().Draw(t, "gaps") {
		r.Gaps = rapid.SliceOfN(rapid.Float64(), 0, 5).Draw(t, "gaps")
	}
	return r
})

// readRows reads every row of a file, also those that cannot be requests.
func readRows(t *testing.T, path string) (rs []record.Request, err error) {
	r, err := Open(t.Context(), columnar.Files(), path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for {
		var q record.Request
		if err := r.Read(&q); errors.Is(err, io.EOF) {
			return rs, nil
		} else if err != nil {
			return nil, err
		}
		rs = append(rs, q)
	}
}

func TestRoundTripProperty(t *testing.T) {
	dir := t.TempDir()
	for _, ext := range table.Extensions() {
		t.Run(ext, func(t *testing.T) {
			path := filepath.Join(dir, "p"+ext)
			rapid.Check(t, func(rt *rapid.T) {
				rs := rapid.SliceOfN(anyRecord, 0, 20).Draw(rt, "records")
				for i := range rs { // what subtracting large times gives
					if math.IsInf(rs[i].ClientQueue(), 0) {
						rs[i].Arrival = math.NaN()
					}
				}
				write(t, path, rs)
				got, err := readRows(t, path)
				if err != nil {
					rt.Fatal(err)
				}
				if d := cmp.Diff(forFormat(ext, rs), got, cmpopts.EquateNaNs(), cmpopts.EquateEmpty()); d != "" {
					rt.Fatalf("records changed (-written +read):\n%s", d)
				}
			})
		})
	}
}

func TestSameBytes(t *testing.T) {
	for _, ext := range table.Extensions() {
		var files [2][]byte
		for i := range files {
			path := filepath.Join(t.TempDir(), "r"+ext)
			write(t, path, sample())
			files[i], _ = os.ReadFile(path)
		}
		if !bytes.Equal(files[0], files[1]) {
			t.Errorf("%s: the same records gave different bytes", ext)
		}
	}
}

// CSV and JSONL are fixed by what other programs expect of them.
func TestTextForm(t *testing.T) {
	r := record.Request{
		ID: 3, Adapter: 1, Rank: 8, Arrival: 0.5, Sent: 0.75, FirstToken: math.NaN(), Finish: 1.5, Prompt: 10,
		Output: 2, Requested: 2, WorkerFirst: 0, WorkerLast: 1, Status: record.Failed, Error: `a "b"`,
		Streamed: record.NotStreamed, Gaps: []float64{0.1},
	}
	want := map[string]string{
		".csv": "id,adapter,adapter_name,rank,arrival_s,sent_s,first_token_s,finish_s,prompt_tokens,output_tokens," +
			"requested_output_tokens,worker_first,worker_last,migrations,cold_load_s,client_queue_s,status,error,streamed\n" +
			`3,1,"odd, ""name""",8,0.5,0.75,,1.5,10,2,2,0,1,0,0,0.25,failed,"a ""b""",no` + "\n",
		".jsonl": `{"id":3,"adapter":1,"adapter_name":"odd, \"name\"","rank":8,"arrival_s":0.5,"sent_s":0.75,"first_token_s":null,` +
			`"finish_s":1.5,"prompt_tokens":10,"output_tokens":2,"requested_output_tokens":2,"worker_first":0,"worker_last":1,` +
			`"migrations":0,"cold_load_s":0,"client_queue_s":0.25,"status":"failed","error":"a \"b\"","streamed":"no","token_gaps_s":[0.1]}` + "\n",
	}
	for ext, text := range want {
		path := filepath.Join(t.TempDir(), "r"+ext)
		write(t, path, []record.Request{r})
		got, _ := os.ReadFile(path)
		if d := cmp.Diff(text, string(got)); d != "" {
			t.Errorf("%s (-want +got):\n%s", ext, d)
		}
	}
}

// Only the required columns, in another order, with one that is unknown.
func TestForeignCSV(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.csv")
	text := "\ufeffstatus,note,id,adapter,arrival_s,sent_s,first_token_s,finish_s,prompt_tokens,output_tokens\r\n" +
		"ok,x,7,0,0,1,2,3,4,5\r\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	got, _, err := ReadAll(t.Context(), columnar.Files(), path)
	want := []record.Request{
		{ID: 7, Sent: 1, FirstToken: 2, Finish: 3, Prompt: 4, Output: 5, WorkerFirst: -1, WorkerLast: -1},
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("error %v, records (-want +got):\n%s", err, d)
	}
}

// One bad row costs one row, which the file's info names with its reason.
func TestLeftOut(t *testing.T) {
	const head = "id,adapter,arrival_s,sent_s,first_token_s,finish_s,prompt_tokens,output_tokens,status\n"
	object := func(id int, sent string) string {
		return fmt.Sprintf(`{"id":%d,"adapter":0,"arrival_s":0,"sent_s":%s,"first_token_s":2,"finish_s":3,`+
			`"prompt_tokens":1,"output_tokens":1,"status":"ok"}`, id, sent) + "\n"
	}
	for _, c := range []struct {
		name, text string
		kept       int
		want       []string
	}{
		{"r.csv", head + "1,0,0,0,0,1,1,1,ok\n2,0,0,x,0,1,1,1,ok\n3,0,0,5,6,4,1,1,ok\n4,0\n5,0,0,1,0.5,2,1,1,ok\n" +
			"6,0,0,0,3,1,1,1,ok\n7,0,0,0,,1,1,0,fine\n8,0,0,0,,1,1,0,failed\n9,0,0,,,1,1,1,ok\n", 2, []string{
			`r.csv:3: left out: column "sent_s": "x" is not a decimal number`,
			"r.csv:4: left out: it ends before it was sent",
			"r.csv:5: left out: row has 2 fields, expected 9 (" + strings.TrimSpace(head) + ")",
			"r.csv:6: left out: its first token came before it was sent",
			"r.csv:7: left out: its first token came after its end",
			`r.csv:8: left out: column "status": unknown status "fine": expected ok, failed, rejected, aborted or unfinished`,
			"r.csv:10: left out: it succeeded, but the time of sending or the end is missing",
		}},
		{"r.csv", head + "1,0,0,0,0,1,1,1,ok\n2,0,0,0,0,1,1,2000000000000,ok\n2,0,0,0,0,1,1,2000000000000,ok\n" +
			"5,-7,0,0,0,1,1,1,ok\n6,2000000,0,0,0,1,1,1,ok\n7,0,0,0,0,1,-1,1,ok\n", 1, []string{
			`r.csv:3: left out, and 1 more row: column "output_tokens": 2000000000000 is out of range, expected a 32-bit number`,
			"r.csv:5: left out, and 1 more row: the adapter's index is out of range, expected -1 to 999999",
			"r.csv:7: left out: the number of tokens is negative",
		}},
		{"r.jsonl", object(1, "1") + object(2, "4") + "[]\n" + object(3, "NaN") + object(4, "-Infinity") +
			object(5, "1") + object(6, "2")[:40], 2, []string{
			"r.jsonl:2: left out: it ends before it was sent", `r.jsonl:3: left out: "[]" is not a JSON object`,
			"r.jsonl:4: left out, and 1 more row: it succeeded, but the time of sending or the end is missing",
			"r.jsonl:7: left out: JSON object ends too early",
		}},
		{"r.parquet", "", 1, []string{"r.parquet: row 2: left out: it ends before it was sent"}},
		{"r.arrow", "", 1, []string{"r.arrow: row 2: left out: it ends before it was sent"}},
	} {
		t.Chdir(t.TempDir())
		if c.text == "" {
			write(t, c.name, []record.Request{{Adapter: -1, Finish: 1},
				{ID: 1, Adapter: -1, Sent: 2, FirstToken: 2, Finish: 1}})
		} else if err := os.WriteFile(c.name, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		rs, in, err := ReadAll(t.Context(), columnar.Files(), c.name)
		if err != nil || len(rs) != c.kept {
			t.Errorf("%s: %d records, %v; want %d", c.name, len(rs), err, c.kept)
		}
		if d := cmp.Diff(c.want, in.Left.Lines()); d != "" {
			t.Errorf("%s: left out (-want +got):\n%s", c.name, d)
		}
	}
}

// A file whose rows are all bad is an error, and a file of noise does not fill the memory with reasons.
func TestAllLeftOut(t *testing.T) {
	t.Chdir(t.TempDir())
	text := "id,arrival_s,sent_s,prompt_tokens,output_tokens,ttft_s,e2e_s\n"
	for i := range 1000 {
		text += fmt.Sprintf("x%d,0,0,1,1,1,2\n", i)
	}
	os.WriteFile("bad.csv", []byte(text), 0o644)
	_, in, err := ReadAll(t.Context(), columnar.Files(), "bad.csv")
	if err == nil || err.Error() != `bad.csv:2: column "id": "x0" is not a whole number` {
		t.Error(err)
	}
	if in.Left.Rows() != 1000 || len(in.Left.Reasons) > maxReasons+1 {
		t.Errorf("%d rows, %d reasons", in.Left.Rows(), len(in.Left.Reasons))
	}
}

func TestBadInput(t *testing.T) {
	const head = "id,adapter,arrival_s,sent_s,first_token_s,finish_s,prompt_tokens,output_tokens,status\n"
	const object = `{"id":1,"adapter":0,"arrival_s":0,"sent_s":0,"first_token_s":0,"finish_s":1,"prompt_tokens":1,"output_tokens":1,"status":"ok"}`
	for _, c := range []struct{ name, text, want string }{
		{"r.csv", "", "r.csv: file is empty, expected a header line"},
		{"r.csv", "id,adapter\n",
			`r.csv:1: no column "arrival_s", "sent_s", "prompt_tokens", "output_tokens"; the file has id,adapter`},
		{"r.csv", "id,id\n", `r.csv:1: column "id": appears twice in the header`},
		{"r.csv", head + "1,0,0,0,0,1,1,1,ok\n2,0,0,x,0,1,1,1,ok\n",
			`r.csv:3: column "sent_s": "x" is not a decimal number`},
		{"r.csv", head + "1,0,0,0,0,1,1.5,1,ok\n", `r.csv:2: column "prompt_tokens": "1.5" is not a whole number`},
		{"r.csv", head + "1,0,0,0,0,1,3000000000,1,ok\n",
			`r.csv:2: column "prompt_tokens": 3000000000 is out of range`},
		{"r.csv", head + "1,0,inf,0,0,1,1,1,ok\n", `r.csv:2: column "arrival_s": "inf" is not a decimal number`},
		{"r.csv", head + "1,0,0,0,0,1,1,1,fine\n",
			`r.csv:2: column "status": unknown status "fine": expected ok, failed, rejected, aborted or unfinished`},
		{"r.csv", head + "1,0\n", "r.csv:2: row has 2 fields, expected 9 (id,"},
		{"r.jsonl", object + "\n[]\n", "r.jsonl:2: \"[]\" is not a JSON object"},
		{"r.jsonl", "\n{\"id\":1}\n", `r.jsonl:2: column "arrival_s": is missing`},
		{"r.jsonl", strings.Replace(object, `"ok"`, `"fine"`, 1), `r.jsonl:1: column "status": unknown status`},
		{"r.jsonl", strings.Replace(object, `"id":1`, `"id":null`, 1),
			`r.jsonl:1: column "id": is null, expected a value`},
		{"r.jsonl", strings.Replace(object, `"sent_s":0`, `"sent_s":"0"`, 1),
			`r.jsonl:1: column "sent_s": "\"0\"" is not a decimal number`},
		{"r.jsonl", strings.Replace(object, `"id"`, `"token_gaps_s":[1,null],"id"`, 1),
			`r.jsonl:1: column "token_gaps_s": "null" is not a decimal number`},
		{"r.jsonl", object[:20], "r.jsonl:1: JSON object ends too early"},
		{"r.parquet", "PAR1 no parquet PAR1", "r.parquet: "},
		{"r.parquet", "", "r.parquet: "},
		{"r.arrow", "ARROW1 no arrow file ARROW1", "r.arrow: "},
		{"r.txt", "", `r.txt: unknown file format ".txt" (known: .csv, .jsonl, .parquet, .arrow)`},
	} {
		t.Chdir(t.TempDir())
		if err := os.WriteFile(c.name, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := readRows(t, c.name)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s %q:\n got %v\nwant %s...", c.name, c.text, err, c.want)
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	for _, ext := range table.Extensions() {
		dir := t.TempDir()
		w, err := Create(columnar.Files(), filepath.Join(dir, "r"+ext), nil, false)
		if err != nil {
			t.Fatal(err)
		}
		for want, r := range map[string]record.Request{
			"request 4: finish_s is +Inf":       {ID: 4, Finish: math.Inf(1)},
			"request 5: status is 9":            {ID: 5, Status: 9},
			"request 6: token_gaps_s holds NaN": {ID: 6, Gaps: []float64{math.NaN()}},
		} {
			if err := w.Write(&r); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want ...%s...", ext, err, want)
			}
		}
		w.Abort()
		left, _ := os.ReadDir(dir)
		if len(left) > 0 {
			t.Errorf("%s: Abort left %v behind", ext, left)
		}
	}
	if _, err := Create(columnar.Files(), filepath.Join(t.TempDir(), "r.xls"), nil, false); err == nil ||
		!strings.Contains(err.Error(), "unknown file format") {
		t.Errorf("Create of .xls: %v", err)
	}
}

// A file appears whole or not at all, and an old one stays until then.
func TestCloseRenames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.csv")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	w, err := Create(columnar.Files(), path, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(&sample()[0]); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(path); string(text) != "old" {
		t.Errorf("before Close the file holds %q", text)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w.Abort()
	if err := w.Write(&sample()[0]); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Write after Close: %v", err)
	}
	if rs, _, err := ReadAll(t.Context(), columnar.Files(), path); err != nil || len(rs) != 1 {
		t.Errorf("after Close and Abort: %d records, %v", len(rs), err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("files left behind: %v", left)
	}
}
