package lengths_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat"

	"lorasim/internal/shareddata"
	"lorasim/internal/testutil"
	"lorasim/trace/lengths"
)

// tableRows reads the first two columns of a table with the standard library.
func tableRows(tb testing.TB, path string) [][2]float64 {
	tb.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	lines, err := csv.NewReader(bytes.NewReader(content)).ReadAll()
	if err != nil {
		tb.Fatal(err)
	}
	var rows [][2]float64
	for _, line := range lines[1:] {
		p, _ := strconv.ParseFloat(line[0], 64)
		o, _ := strconv.ParseFloat(line[1], 64)
		rows = append(rows, [2]float64{p, o})
	}
	return rows
}

// TestTableJoint: rows are drawn whole and evenly.
func TestTableJoint(t *testing.T) {
	s := parse(t,
		"table:"+testutil.File(t, "t.csv", "num_decode_tokens,other,num_prefill_tokens\n10,x,1\n20,,2\n30,y,3\n"))
	counts := map[float64]int{}
	prompts, outputs := draws(s, 30_000)
	for i := range prompts {
		if outputs[i] != 10*prompts[i] {
			t.Fatalf("drew %v, %v, which is no row", prompts[i], outputs[i])
		}
		counts[prompts[i]]++
	}
	for p, n := range counts {
		if n < 9600 || n > 10400 { // five standard deviations
			t.Errorf("row %v was drawn %d times of 30000", p, n)
		}
	}
}

func TestTableShareGPT(t *testing.T) {
	path := shareddata.Path(t, "lengths/sharegpt_8k_filtered_stats_llama2_tokenizer.csv")
	rows := tableRows(t, path)
	s := parse(t, "table:"+path)
	if n := len(rows); n != 30731 {
		t.Errorf("%d rows, expected 30731", n)
	}
	var p, o []float64
	for _, row := range rows {
		p, o = append(p, row[0]), append(o, row[1])
	}
	prompts, outputs := draws(s, 500_000)
	near(t, "mean prompt", mean(prompts), mean(p), 0.01)
	near(t, "mean output", mean(outputs), mean(o), 0.01)
	near(t, "95th percentile of prompts", quantile(prompts, 0.95), quantile(p, 0.95), 0.01)
	if got, want := stat.Correlation(prompts, outputs, nil), stat.Correlation(p, o, nil); got < want-0.01 ||
		got > want+0.01 {
		t.Errorf("correlation %v, expected %v", got, want)
	}
}

func TestTableErrors(t *testing.T) {
	head := "num_prefill_tokens,num_decode_tokens\n"
	for content, want := range map[string]string{
		"":                         ": file is empty",
		head:                       ": length table has no rows",
		"num_prefill_tokens\n1\n":  `:1: no column "num_decode_tokens"`,
		head + "1,2\n0,2\n":        `:3: column "num_prefill_tokens": is 0, expected >= 1 token`,
		head + "1,-2\n":            `:2: column "num_decode_tokens": -2 is negative`,
		head + "1,2.0\n":           `:2: column "num_decode_tokens": "2.0" is not a whole number`,
		head + "1\n":               ":2: row has 1 fields, expected 2",
		head + "1,99999999999\n":   `:2: column "num_decode_tokens": 99999999999 is too large`,
		head + "1,2\n\n\n3,\"4\n5": ":5: quote is not closed",
	} {
		path := testutil.File(t, "t.csv", content)
		if _, err := lengths.ReadTable(t.Context(), path); err == nil || !strings.HasPrefix(err.Error(), path+want) {
			t.Errorf("%q: error %v, expected %s%s", content, err, path, want)
		}
	}
}

func FuzzTable(f *testing.F) {
	f.Add([]byte("num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n74,918,992,0.08\n"))
	f.Add([]byte("\"num_decode_tokens\",num_prefill_tokens\r\n1,0\r\n"))
	path := filepath.Join(f.TempDir(), "t.csv")
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		table, err := lengths.ReadTable(t.Context(), path)
		if err != nil {
			if !strings.HasPrefix(err.Error(), path+":") {
				t.Errorf("error does not name the file: %v", err)
			}
			return
		}
		prompts, outputs := draws(table, 20)
		for i := range prompts {
			if prompts[i] < 1 || outputs[i] < 1 {
				t.Fatalf("drew %v, %v", prompts[i], outputs[i])
			}
		}
	})
}

func BenchmarkReadTable(b *testing.B) {
	path := shareddata.Path(b, "lengths/sharegpt_8k_filtered_stats_llama2_tokenizer.csv")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := lengths.ReadTable(context.Background(), path); err != nil {
			b.Fatal(err)
		}
	}
}
