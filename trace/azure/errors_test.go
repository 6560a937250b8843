package azure

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/internal/textfile"
)

func TestMinutesErrors(t *testing.T) {
	const head = "HashOwner,HashApp,HashFunction,Trigger,1,2,3\n"
	for _, c := range []struct {
		name string
		data string
		want []string
	}{
		{"empty", "", []string{"t.csv: the file is empty", "HashOwner"}},
		{"no rows", head, []string{"t.csv: no rows"}},
		{"wrong column", "HashOwner,App,HashFunction,Trigger,1,2,3\n", []string{
			"t.csv:1:", "column 2", `"App"`, "HashApp",
		}},
		{"missing column", "HashOwner,HashApp\n", []string{"t.csv:1:", "2 columns", "HashFunction"}},
		{"no minutes", "HashOwner,HashApp,HashFunction,Trigger\n", []string{"t.csv:1:", "no minute columns"}},
		{"strange minute", "HashOwner,HashApp,HashFunction,Trigger,1,x\n", []string{
			"t.csv:1:", "column 6", `"x"`, "1 to 1440",
		}},
		{"minute 1441", "HashOwner,HashApp,HashFunction,Trigger,1440,1441\n", []string{
			"column 6", `"1441"`, "1 to 1440",
		}},
		{"minutes out of order", "HashOwner,HashApp,HashFunction,Trigger,1,3\n", []string{
			"column 6", `"3"`, "minutes follow one another",
		}},
		{"other minutes", "HashOwner,HashApp,HashFunction,Trigger,3,4\n", []string{"columns 2 to 3", "has 3 to 4"}},
		{"fields missing", head + "o,a,f,http,1,2,3\no,a,f,http,1,2\n", []string{"t.csv:3:", "6 fields", "expected 7"}},
		{"not a number", head + "o,a,f,http,1,2,x\n", []string{"t.csv:2:", "column 3", `"x"`, "whole number"}},
		{"negative", head + "o,a,f,http,1,-2,3\n", []string{"t.csv:2:", "column 2", `"-2"`}},
		{"no count", head + "o,a,f,http,1,2,\n", []string{"t.csv:2:", "column 3", `""`}},
		{"too large", head + "o,a,f,http,1,2,2147483648\n", []string{"t.csv:2:", "column 3", "2147483647"}},
		{"NaN", head + "o,a,f,http,1,NaN,3\n", []string{"t.csv:2:", "column 2", `"NaN"`}},
		{"endless line", head + strings.Repeat("o", textfile.MaxLine+1<<20), []string{"t.csv:2:", "longer than"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := readAllMinutes(testutil.File(t, "t.csv", []byte(c.data)), Window{1, 3}, Options{})
			testutil.ExpectError(t, err, c.want...)
		})
	}
}

func TestInvocationsErrors(t *testing.T) {
	const head = v2Header + "\n"
	for _, c := range []struct {
		name string
		data string
		want []string
	}{
		{"empty", "", []string{"t.txt: the file is empty", v2Header}},
		{"no rows", head, []string{"t.txt: no rows"}},
		{"wrong column", "app,func,end,duration\n", []string{"t.txt:1:", "column 3", `"end"`, "end_timestamp"}},
		{"missing column", "app,func,end_timestamp\n", []string{"t.txt:1:", "3 columns", "duration"}},
		{"column too many", "app,func,end_timestamp,duration,x\n", []string{"t.txt:1:", "5 columns"}},
		{"no header", "a,f,1,2\n", []string{"t.txt:1:", "column 1", "expected app"}},
		{"fields missing", head + "a,f,1\n", []string{"t.txt:2:", "3 fields", v2Header}},
		{"not a number", head + "a,f,1,2\na,f,soon,2\n", []string{"t.txt:3:", "end_timestamp", `"soon"`}},
		{"negative", head + "a,f,1,-2\n", []string{"t.txt:2:", "duration", `"-2"`, ">= 0"}},
		{"NaN", head + "a,f,NaN,2\n", []string{"t.txt:2:", "end_timestamp", `"NaN"`}},
		{"infinite", head + "a,f,1,Inf\n", []string{"t.txt:2:", "duration", `"Inf"`}},
		{"too large", head + "a,f,1e999,1\n", []string{"t.txt:2:", "end_timestamp", `"1e999"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, _, err := readAllInvocations(testutil.File(t, "t.txt", []byte(c.data)), Options{})
			testutil.ExpectError(t, err, c.want...)
		})
	}
}

func TestUnreadableFiles(t *testing.T) {
	zipped := testutil.Gzip(t, v2Text)
	corrupt := bytes.Clone(zipped)
	corrupt[len(corrupt)-8] ^= 1 // checksum
	packed := rar("a.txt", v2Text)
	flipped := bytes.Clone(packed)
	flipped[bytes.Index(flipped, []byte("90.125"))] ^= 1 // now 80.125
	for _, c := range []struct {
		name string
		data []byte
		want []string
	}{
		{"t.gz", zipped[:len(zipped)-9], []string{"t.gz:", "truncated"}},
		{"t.gz", zipped[:5], []string{"t.gz:", "gzip"}},
		{"t.gz", corrupt, []string{"t.gz:5:", "checksum"}},
		{"t.rar", []byte(v2Text), []string{"t.rar:", "not a readable rar archive"}},
		{"t.rar", packed[:20], []string{"t.rar:", "rar"}},
		{"t.rar", packed[:len(packed)-20], []string{"t.rar:", "truncated"}},
		{"t.rar", flipped, []string{"t.rar:", "checksum"}},
		{"t.rar", rar("readme.md", v2Text), []string{"t.rar:", "no .txt or .csv"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, _, err := readAllInvocations(testutil.File(t, c.name, c.data), Options{})
			testutil.ExpectError(t, err, c.want...)
			// A damaged file is no matter of single rows.
			_, _, _, err = readAllInvocations(testutil.File(t, c.name, c.data), Options{SkipBadRows: true})
			testutil.ExpectError(t, err, c.want...)
		})
	}
}

func TestMissingFiles(t *testing.T) {
	dir := t.TempDir()
	_, err := OpenInvocations(t.Context(), dir, Options{})
	testutil.ExpectError(t, err, dir, v2Name+".txt", ".rar", "file does not exist")
	_, err = OpenInvocations(t.Context(), filepath.Join(dir, "x.txt"), Options{})
	testutil.ExpectError(t, err, "x.txt")
	_, err = OpenMinutes(t.Context(), dir, Window{0, 10}, Options{})
	testutil.ExpectError(t, err, dir, "anon.d01.csv", "file does not exist")
	_, err = OpenMinutes(t.Context(), testutil.File(t, "d.csv", []byte(v1Text)), Window{0, 1441}, Options{})
	testutil.ExpectError(t, err, "d.csv", "one day", "days 0 to 1")
}

func TestSkipBadRows(t *testing.T) {
	opt := Options{SkipBadRows: true}
	rows, skipped, err := readAllMinutes(
		testutil.File(t, "t.csv", []byte(v1Text+"o,a,f,http,1\no,a,f,http,1,2,x\no,a,f,http,1,2,3\n")), Window{0, 3},
		opt)
	if err != nil || skipped != 2 || len(rows) != 3 {
		t.Errorf("%d rows, %d skipped, error %v; expected 3, 2, nil", len(rows), skipped, err)
	}
	got, fs, skipped, err := readAllInvocations(testutil.File(t, "t.txt", []byte(v2Text+"z\nnew,f,1,x\na1,f1,1,2\n")),
		opt)
	if err != nil || skipped != 2 || len(got) != 4 {
		t.Errorf("%d rows, %d skipped, error %v; expected 4, 2, nil", len(got), skipped, err)
	}
	if len(fs) != 2 {
		t.Errorf("%d functions, expected 2: a skipped row adds none", len(fs))
	}
	h, err := ReadHistogram(t.Context(), testutil.File(t, "t.txt", []byte(v2Text+"z\n")), Query{V2, Window{0, 2}, 1,
		true}, opt)
	if err != nil || h.Skipped != 1 {
		t.Errorf("histogram: %v, expected 1 skipped row", err)
	}
	_, _, _, err = readAllInvocations(testutil.File(t, "t.txt", []byte(v2Header+"\nz\n")), opt)
	testutil.ExpectError(t, err, "no rows but 1 malformed")
}

func TestParseInstant(t *testing.T) {
	for s, minutes := range map[string]int{
		"0.0.0": 0, "0.0.60": 60, "0.23.60": 1440, "0.24.0": 1440, "13.1.2": 13*1440 + 62,
	} {
		i, err := ParseInstant(s)
		if err != nil || i.Minutes() != minutes {
			t.Errorf("ParseInstant(%q) = %+v, %v; expected minute %d", s, i, err, minutes)
		}
	}
	for s, want := range map[string]string{
		"": "day.hour.minute", "1.2": "day.hour.minute", "1.2.3.4": "day.hour.minute",
		"x.0.0": `day is "x"`, "0.25.0": "hour is \"25\", expected a whole number from 0 to 24",
		"0.0.61": "minute is \"61\"", "0.-1.0": "hour", "0.0.": "minute", "+1.0.0": "day", "0.0.1e1": "minute",
	} {
		_, err := ParseInstant(s)
		testutil.ExpectError(t, err, want)
	}
}

func TestNewWindow(t *testing.T) {
	w, err := NewWindow(Instant{0, 1410}, Instant{1, 30})
	if err != nil || w != (Window{1410, 1470}) || w.Minutes() != 60 {
		t.Errorf("window %v, %v", w, err)
	}
	if n := w.Intervals(25); n != 3 {
		t.Errorf("%d intervals of 25 minutes, expected 3", n)
	}
	if from, to := w.Seconds(); from != 84600 || to != 88200 {
		t.Errorf("seconds %v to %v", from, to)
	}
	_, err = NewWindow(Instant{0, 60}, Instant{0, 60})
	testutil.ExpectError(t, err, "0.1.0 to 0.1.0", "after its start")
}
