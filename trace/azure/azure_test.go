package azure

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"lorasim/internal/shareddata"
	"lorasim/internal/testutil"

	"github.com/google/go-cmp/cmp"
)

const (
	v1Text = "HashOwner,HashApp,HashFunction,Trigger,1,2,3\n" +
		"o1,a1,f1,http,1,0,5\n" +
		"o1,a2,f2,timer,0,0,0\n"
	v2Text = "app,func,end_timestamp,duration\n" +
		"a1,f1,0.5,0.25\n" +
		"a2,f1,61,2.5\n" +
		"a1,f1,90.125,0\n"
)

// rar packs a file into a RAR 4 archive, stored without compression, after the
// format's technical note: blocks of CRC16, type, flags, size and fields.
func rar(name, text string) []byte {
	le16, le32 := binary.LittleEndian.AppendUint16, binary.LittleEndian.AppendUint32
	block := func(kind byte, flags uint16, fields []byte) []byte {
		b := le16([]byte{kind}, flags)
		b = le16(b, uint16(2+len(b)+2+len(fields)))
		b = append(b, fields...)
		return append(le16(nil, uint16(crc32.ChecksumIEEE(b))), b...)
	}
	f := le32(nil, uint32(len(text))) // packed size
	f = le32(f, uint32(len(text)))
	f = append(f, 3) // made on Unix
	f = le32(f, crc32.ChecksumIEEE([]byte(text)))
	f = le32(f, 0)          // time
	f = append(f, 20, 0x30) // version 2.0, stored
	f = le16(f, uint16(len(name)))
	f = le32(f, 0o100644)
	f = append(f, name...)
	out := []byte("Rar!\x1a\x07\x00")
	out = append(out, block(0x73, 0, make([]byte, 6))...)
	out = append(out, block(0x74, 0x8000, f)...)
	out = append(out, text...)
	return append(out, block(0x7b, 0x4000, nil)...)
}

type minuteRow struct {
	Function
	First  int
	Counts []int32
}

func readAllMinutes(path string, w Window, opt Options) (rows []minuteRow, skipped int64, err error) {
	m, err := OpenMinutes(context.Background(), path, w, opt)
	if err != nil {
		return nil, 0, err
	}
	defer m.Close()
	for {
		r, err := m.Next()
		if errors.Is(err, io.EOF) {
			return rows, m.Skipped(), nil
		}
		if err != nil {
			return rows, m.Skipped(), err
		}
		rows = append(rows, minuteRow{m.Functions()[r.Function], r.First, append([]int32(nil), r.Counts...)})
	}
}

func readAllInvocations(path string, opt Options) (rows []Invocation, fs []Function, skipped int64, err error) {
	r, err := OpenInvocations(context.Background(), path, opt)
	if err != nil {
		return nil, nil, 0, err
	}
	defer r.Close()
	for {
		v, err := r.Next()
		if errors.Is(err, io.EOF) {
			return rows, r.Functions(), r.Skipped(), nil
		}
		if err != nil {
			return rows, r.Functions(), r.Skipped(), err
		}
		rows = append(rows, v)
	}
}

func TestMinutes(t *testing.T) {
	want := []minuteRow{
		{Function{"o1", "a1", "f1"}, 1, []int32{0, 5}},
		{Function{"o1", "a2", "f2"}, 1, []int32{0, 0}},
	}
	for name, data := range map[string][]byte{
		"plain.csv":        []byte(v1Text),
		"crlf.csv":         []byte(strings.ReplaceAll(v1Text, "\n", "\r\n")),
		"bom.csv":          []byte("\ufeff" + v1Text),
		"no-final-end.csv": []byte(strings.TrimSuffix(v1Text, "\n")),
		"blank-lines.csv":  []byte(strings.ReplaceAll(v1Text, "\n", "\n\n")),
		"zipped.csv.gz":    testutil.Gzip(t, v1Text),
		"no-ending":        testutil.Gzip(t, v1Text), // known by its first bytes
	} {
		t.Run(name, func(t *testing.T) {
			got, _, err := readAllMinutes(testutil.File(t, name, data), Window{1, 3}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// A window across midnight takes the last minutes of one file and the first
// ones of the next, and knows the functions they share.
func TestMinutesAcrossDays(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"invocations_per_function_md.anon.d01.csv":    "HashOwner,HashApp,HashFunction,Trigger,1439,1440\no,a,f,http,3,4\no,a,g,http,9,9\n",
		"invocations_per_function_md.anon.d02.csv.gz": "HashOwner,HashApp,HashFunction,Trigger,1,2\no,a,g,http,1,2\no,b,f,http,7,8\n",
	} {
		data := []byte(text)
		if strings.HasSuffix(name, ".gz") {
			data = testutil.Gzip(t, text)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h, err := ReadHistogram(t.Context(), dir, Query{Format: V1, Window: Window{1439, 1442}, Interval: 2}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := &Histogram{
		Functions: []Function{{"o", "a", "f"}, {"o", "a", "g"}, {"o", "b", "f"}},
		Counts:    [][]int64{{4, 0}, {9 + 1, 2}, {7, 8}},
	}
	if d := cmp.Diff(want, h); d != "" {
		t.Error(d)
	}
	_, err = ReadHistogram(t.Context(), dir, Query{Format: V1, Window: Window{1439, 3 * 1440}, Interval: 2}, Options{})
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "anon.d03.csv.gz") {
		t.Errorf("missing day: %v", err)
	}
}

func TestInvocations(t *testing.T) {
	wantRows := []Invocation{{0, 0.5, 0.25}, {1, 61, 2.5}, {0, 90.125, 0}}
	wantFunctions := []Function{{App: "a1", Func: "f1"}, {App: "a2", Func: "f1"}}
	for name, data := range map[string][]byte{
		"plain.txt":     []byte(v2Text),
		"zip.txt.gz":    testutil.Gzip(t, v2Text),
		"packed.rar":    rar("AzureFunctionsInvocationTraceForTwoWeeksJan2021.txt", v2Text),
		"disguised":     rar("a.csv", v2Text),
		v2Name + ".rar": rar("a.csv", v2Text), // found by its folder below
	} {
		t.Run(name, func(t *testing.T) {
			path := testutil.File(t, name, data)
			if strings.HasPrefix(name, v2Name) {
				path = filepath.Dir(path)
			}
			rows, fs, _, err := readAllInvocations(path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(wantRows, rows); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(wantFunctions, fs); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestHistogramOfInvocations(t *testing.T) {
	path := testutil.File(t, "t.txt", []byte(v2Text))
	for _, c := range []struct {
		name  string
		query Query
		want  [][]int64
	}{
		// The invocation that ends at 61 starts at 58.5.
		{"by start", Query{V2, Window{0, 2}, 1, false}, [][]int64{{1, 1}, {1, 0}}},
		{"by end", Query{V2, Window{0, 2}, 1, true}, [][]int64{{1, 1}, {0, 1}}},
		{"short last interval", Query{V2, Window{0, 2}, 5, true}, [][]int64{{2}, {1}}},
		{"a function without traffic", Query{V2, Window{0, 1}, 1, true}, [][]int64{{1}, nil}},
		{"not from the start", Query{V2, Window{1, 3}, 1, true}, [][]int64{{1, 0}, {1, 0}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, err := ReadHistogram(t.Context(), path, c.query, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, h.Counts); d != "" {
				t.Error(d)
			}
			if len(h.Functions) != 2 {
				t.Errorf("%d functions, expected both of the file", len(h.Functions))
			}
		})
	}
}

// Intervals hold their start and not their end, to the last bit.
func TestIntervalsAreHalfOpen(t *testing.T) {
	for _, w := range []Window{{0, 7}, {0, 49}, {13, 1440}, {1439, 13 * 1440}, {20, 20 + 64}} {
		for _, interval := range []int{1, 7, 60} {
			n := w.Intervals(interval)
			want := make([]int64, n)
			var text strings.Builder
			text.WriteString(v2Header + "\n")
			from, to := w.Seconds()
			add := func(at float64, i int) {
				fmt.Fprintf(&text, "a,f,%s,0\n", strconv.FormatFloat(at, 'g', -1, 64))
				if 0 <= i && i < n {
					want[i]++
				}
			}
			for i := range n {
				start := from + float64(60*interval*i)
				if start > 0 {
					add(math.Nextafter(start, 0), i-1)
				}
				add(start, i)
			}
			add(math.Nextafter(to, 0), n-1)
			add(to, n)
			h, err := ReadHistogram(t.Context(), testutil.File(t, "t.txt", []byte(text.String())), Query{V2, w,
				interval, true},
				Options{})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, h.Counts[0]); d != "" {
				t.Errorf("%v in intervals of %d minutes:\n%s", w, interval, d)
			}
		}
	}
}

// TestPublicExcerpts reads real excerpts of the traces and compares sums with
// ones taken by awk.
func TestPublicExcerpts(t *testing.T) {
	for _, c := range []struct {
		file      string
		query     Query
		functions int
		total     int64
	}{
		{"maf/maf1_invitro_1250fn_1440min.csv.gz", Query{V1, Window{0, 1440}, 60, false}, 1250, 18279781},
		{"maf/maf1_invitro_500fn_min480-959.csv", Query{V1, Window{479, 959}, 60, false}, 500, 3037902},
		{"maf/maf2_invitro_first199rows.csv", Query{V2, Window{0, 1440}, 60, true}, 31, 199},
	} {
		t.Run(c.file, func(t *testing.T) {
			h, err := ReadHistogram(t.Context(), shareddata.Path(t, c.file), c.query, Options{})
			if err != nil {
				t.Fatal(err)
			}
			var total int64
			for _, counts := range h.Counts {
				for _, n := range counts {
					total += n
				}
			}
			if len(h.Functions) != c.functions || total != c.total {
				t.Errorf("%d functions, %d invocations; expected %d and %d",
					len(h.Functions), total, c.functions, c.total)
			}
		})
	}
}

func TestProgress(t *testing.T) {
	data := testutil.Gzip(t, v2Text+strings.Repeat("a1,f1,100,1\n", 1000))
	var last, total int64
	opt := Options{Progress: func(read, all int64) error {
		if read < last {
			t.Errorf("progress went back from %d to %d", last, read)
		}
		last, total = read, all
		return nil
	}}
	if _, _, _, err := readAllInvocations(testutil.File(t, "t.txt.gz", data), opt); err != nil {
		t.Fatal(err)
	}
	if want := int64(len(data)); last != want || total != want {
		t.Errorf("progress ended at %d of %d, expected %d", last, total, want)
	}
}
