package requestlog

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"lorasim/internal/textfile"
	"lorasim/trace"
)

// An Access is a request in the access log of lorasim gateway, with its outcome.
type Access struct {
	Line           int       // of the log
	End            time.Time // when the line was written
	Duration       float64   // s
	FirstByte      float64   // s, from the arrival; 0: no worker answered
	Adapter        string    // "base": the base model
	Worker         int       // index; -1: none
	URL            string    // of the worker
	Status         int       // of HTTP
	Tries          int       // workers that were offered the request
	Prompt, Output int32     // tokens; Output is -1 if unknown
	MaxTokens      int32     // limit that the request states; 0: none
	Events         int       // pieces of the reply
	BrokenOff      bool
}

// maxAccess limits the number of requests that are held in memory.
const maxAccess = 4 << 20

// ReadAccessLog reads the access log of lorasim gateway: JSON lines, or text as on its stderr. Lines that are no
// requests for a model are left out. A line of a request that cannot be read is an error with file and line.
func ReadAccessLog(ctx context.Context, files trace.Files, path string) (list []Access, err error) {
	f, err := textfile.OpenIn(ctx, files.FS, path, nil)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for {
		text, err := f.Line()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		a, is, err := parseAccess(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Where(), err)
		}
		if !is {
			continue
		}
		if a.Line = f.Number(); len(list) == maxAccess {
			return nil, fmt.Errorf("%s: more than %d requests: cut the log to the time in question", f.Where(),
				maxAccess)
		}
		list = append(list, a)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: no request for a model, expected the access log of lorasim gateway "+
			"(--access-log FILE, or its stderr)", path)
	}
	return list, nil
}

// parseAccess parses a line. is reports whether the line is of a request for a model.
func parseAccess(text []byte) (a Access, is bool, err error) {
	r := row{}
	switch text = bytes.TrimSpace(text); {
	case bytes.HasPrefix(text, []byte("{")):
		fields := map[string]any{}
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&fields); err != nil {
			return a, false, fmt.Errorf("not a JSON object: %w", err)
		}
		for name, v := range fields {
			switch v.(type) {
			case string, json.Number, bool:
				r.names, r.values = append(r.names, name), append(r.values, fmt.Sprint(v))
			}
		}
	case bytes.HasPrefix(text, []byte("time=")):
		for rest := string(text); rest != ""; {
			var name, value string
			if name, value, rest = pair(rest); name != "" {
				r.names, r.values = append(r.names, name), append(r.values, value)
			}
		}
	}
	if !isAccess(r) || r.get("adapter") == "" || !generates(r.get("method"), r.get("path")) {
		return a, false, nil
	}
	p := fieldReader{row: r}
	a = Access{Duration: p.seconds("duration_s", ""), FirstByte: p.seconds("first_byte_s", "0"),
		Adapter: strings.ToValidUTF8(r.get("adapter"), "\uFFFD"), URL: r.get("url"),
		Worker: p.whole("worker", "-1", -1, maxWorkers), Status: p.whole("status", "", 0, 999),
		Tries: p.whole("tries", "1", 0, math.MaxInt32), Prompt: int32(p.whole("prompt_tokens", "0", 0, math.MaxInt32)),
		Output:    int32(p.whole("output_tokens", "-1", -1, math.MaxInt32)),
		MaxTokens: int32(p.whole("max_tokens", "0", 0, math.MaxInt32)),
		Events:    p.whole("events", "0", 0, math.MaxInt32), BrokenOff: r.get("broken_off") == "true"}
	if a.End, err = time.Parse(time.RFC3339Nano, r.get("time")); err != nil {
		p.err = cmp.Or(p.err, fmt.Errorf("time is %q, expected a time as in 2026-01-31T14:00:00.123Z", r.get("time")))
	}
	return a, true, p.err
}

// generates reports whether a request asks a model for text. The gateway also routes others, such as GET /version.
func generates(method, path string) bool {
	return method == "POST" && slices.ContainsFunc([]string{"/generate", "/completions", "/responses", "/messages"},
		func(end string) bool { return strings.HasSuffix(path, end) })
}

// maxWorkers is the largest index of a worker.
const maxWorkers = 100_000

// fieldReader reads the numbers of a row. It keeps its first error.
type fieldReader struct {
	row
	err error
}

func (p *fieldReader) seconds(name, otherwise string) float64 {
	text := cmp.Or(p.get(name), otherwise)
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x >= 0) || x > maxSpan {
		p.err = cmp.Or(p.err, fmt.Errorf("%s is %q, expected a number of seconds", name, text))
		return 0
	}
	return x
}

func (p *fieldReader) whole(name, otherwise string, least, most int) int {
	text := cmp.Or(p.get(name), otherwise)
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		p.err = cmp.Or(p.err, fmt.Errorf("%s is %q, expected a whole number of %d to %d", name, text, least, most))
		return 0
	}
	return n
}
