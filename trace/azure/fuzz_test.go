package azure

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"lorasim/internal/textfile"
)

// openText returns readers of a text that is in memory.
func openText(text []byte, opt Options) (*Invocations, error) {
	r := &Invocations{reader{opt: opt, in: textfile.New("fuzz.txt", bytes.NewReader(text))}}
	return r, r.readHeader()
}

// FuzzInvocations checks that what is accepted is sound, survives a round trip
// through the writer, and that errors name the file.
func FuzzInvocations(f *testing.F) {
	f.Add([]byte(v2Text), false)
	f.Add([]byte(v2Text+"\r\na,b,1e3,0x1p-2\nx"), true)
	f.Add([]byte("app,func,end_timestamp\n"), false)
	f.Add([]byte(v2Header+"\n,,NaN,-1\n"), true)
	f.Fuzz(func(t *testing.T, text []byte, skip bool) {
		rows, fs, err := drain(openText(text, Options{SkipBadRows: skip}))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "fuzz.txt:") {
				t.Fatalf("error %q does not name the file", err)
			}
			return
		}
		written := v2Header + "\n"
		for _, v := range rows {
			if !(v.End >= 0 && v.End <= math.MaxFloat64 && v.Duration >= 0 && v.Duration <= math.MaxFloat64) {
				t.Fatalf("accepted %+v", v)
			}
			if f := fs[v.Function]; strings.Contains(f.App+f.Func, "\r") {
				return // a lone \r within a name: read, never written
			}
			written += rowText(fs[v.Function], v)
		}
		again, fs2, err := drain(openText([]byte(written), Options{}))
		if err != nil || len(again) != len(rows) || len(fs2) != len(fs) {
			t.Fatalf("read back %d rows of %d functions, %v; expected %d of %d", len(again), len(fs2), err, len(rows),
				len(fs))
		}
		for i := range rows {
			if again[i] != rows[i] {
				t.Fatalf("row %d read back as %+v, was %+v", i, again[i], rows[i])
			}
		}
	})
}

func drain(r *Invocations, err error) (rows []Invocation, fs []Function, _ error) {
	for err == nil {
		var v Invocation
		if v, err = r.Next(); err == nil {
			rows = append(rows, v)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return rows, r.Functions(), err
}

// FuzzMinutes compares the reader with a slow one made of strings.Split.
func FuzzMinutes(f *testing.F) {
	f.Add([]byte(v1Text), uint16(0), uint16(3))
	f.Add([]byte(v1Text+"o,a,f,t,1,2,-3\n\n,,,,,,\r\n"), uint16(1), uint16(1))
	f.Add([]byte("HashOwner,HashApp,HashFunction,Trigger,700\na,b,c,d,2147483648\n"), uint16(699), uint16(1))
	f.Fuzz(func(t *testing.T, text []byte, start, length uint16) {
		w := Window{int(start), int(start) + int(length)}
		if length == 0 || w.End > minutesPerDay {
			return
		}
		m := &Minutes{reader: reader{opt: Options{SkipBadRows: true}}, window: w}
		m.in = textfile.New("fuzz.csv", bytes.NewReader(text))
		var rows []MinuteRow
		err := m.startDay(0)
		for err == nil {
			var r MinuteRow
			if r, err = m.Next(); err == nil {
				r.Counts = append([]int32(nil), r.Counts...)
				rows = append(rows, r)
			}
		}
		if !errors.Is(err, io.EOF) {
			if !strings.HasPrefix(err.Error(), "fuzz.csv:") {
				t.Fatalf("error %q does not name the file", err)
			}
			return
		}
		compareSlow(t, string(text), w, m, rows)
	})
}

// compareSlow checks the rows against those of a plain parser of the text,
// whose header has been accepted.
func compareSlow(t *testing.T, text string, w Window, m *Minutes, rows []MinuteRow) {
	var lines [][]string
	for line := range strings.SplitSeq(strings.TrimPrefix(text, "\ufeff"), "\n") {
		if line = strings.TrimSuffix(line, "\r"); line != "" {
			lines = append(lines, strings.Split(line, ","))
		}
	}
	header := lines[0]
	at := 0
	for _, fields := range lines[1:] {
		counts, ok := slowCounts(header, fields, w)
		if !ok {
			continue
		}
		if at == len(rows) {
			t.Fatalf("row %q was passed over", fields)
		}
		r := rows[at]
		at++
		f := m.Functions()[r.Function]
		if f != (Function{fields[0], fields[1], fields[2]}) || r.First != w.Start || len(r.Counts) != len(counts) {
			t.Fatalf("row %q read as %+v of %+v", fields, r, f)
		}
		for i := range counts {
			if r.Counts[i] != counts[i] {
				t.Fatalf("row %q read as %v", fields, r.Counts)
			}
		}
	}
	if at != len(rows) || m.Skipped() != int64(len(lines)-1-at) {
		t.Fatalf("%d rows and %d skipped, expected %d of %d", len(rows), m.Skipped(), at, len(lines)-1)
	}
}

func slowCounts(header, fields []string, w Window) (counts []int32, ok bool) {
	if len(fields) != len(header) {
		return nil, false
	}
	for minute := w.Start; minute < w.End; minute++ {
		for i := 4; i < len(header); i++ {
			var name int64
			for _, c := range header[i] {
				name = name*10 + int64(c-'0')
			}
			if name != int64(minute+1) {
				continue
			}
			var v int64
			for _, c := range fields[i] {
				if c < '0' || c > '9' {
					return nil, false
				}
				if v = v*10 + int64(c-'0'); v > math.MaxInt32 {
					return nil, false
				}
			}
			if fields[i] == "" {
				return nil, false
			}
			counts = append(counts, int32(v))
		}
	}
	return counts, true
}

func FuzzInstant(f *testing.F) {
	for _, s := range []string{"0.0.60", "13.24.0", "", "1.2", "-1.0.0", "0.0.61"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		i, err := ParseInstant(s)
		if err != nil {
			if !strings.Contains(err.Error(), "expected") {
				t.Fatalf("error %q does not say what was expected", err)
			}
			return
		}
		m := i.Minutes()
		text, _, _ := strings.Cut(Window{m, m + 1}.String(), " ")
		if again, err := ParseInstant(text); err != nil || again.Minutes() != m || i.Day < 0 || i.Minute < 0 {
			t.Fatalf("%q is %+v, which is written %q and reads as %v, %v", s, i, text, again, err)
		}
	})
}
