package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"lorasim/bench/result"
	"lorasim/internal/testutil"
	"lorasim/trace"
	"lorasim/trace/settings"
)

func TestDetect(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a.parquet", "", "workload"}, {"a.ARROW", "", "workload"}, {"a.rar", "", "azure_v2"},
		{"a.csv", "HashOwner,HashApp\n", "azure_v1"}, {"a.csv", "app,func,end_timestamp,duration\n1,2", "azure_v2"},
		{"a.csv", "\ufeffTIMESTAMP,ContextTokens,GeneratedTokens", "azure_llm"},
		{"a.csv", "Timestamp,Model\n", "burstgpt"},
		{"a.csv", "time_s,adapter\n", "alibaba_genai"}, {"a.jsonl", `{"timestamp": 0, "input_length": 3}`, "mooncake"},
		{"a.csv", "id,arrival_s\n", "workload"}, {"a.jsonl", `{"id":1,"arrival_s":0}`, "workload"},
		// what nobody knows is read as a log of another program, which says what it misses
		{"a.csv", "time_s,x\n", "workload"}, {"a.csv", "x,adapter\n", "workload"}, {"a.jsonl", `{"x":1}`, "workload"},
		{"a.txt", `"input_length"`, "workload"}, {"a.csv", "", "workload"},
		{"a.csv", strings.Repeat(" ", 1<<20) + "arrival_s", "workload"},
	} {
		path := testutil.File(t, c.name, c.text)
		got, err := detect(t.Context(), nil, path)
		if got != c.want || err != nil {
			t.Errorf("%s %.60q: %q, %v; expected %q", c.name, c.text, got, err, c.want)
		}
	}
	zipped := testutil.Gzip(t, "HashOwner,HashApp\n")
	if got, err := detect(t.Context(), nil, testutil.File(t, "a.csv.gz", zipped)); err != nil || got != "azure_v1" {
		t.Errorf("compressed: %q, %v", got, err)
	}
	for want, path := range map[string]string{
		"is a folder; say which trace it holds with --trace-name (azure_v1, ": t.TempDir(),
		"a.csv.gz: ": testutil.File(t, "a.csv.gz", zipped[:5]),
		"cut.gz:1: ": testutil.File(t, "cut.gz", zipped[:20]),
		"no such":    filepath.Join(t.TempDir(), "none.csv"),
	} {
		if _, err := detect(t.Context(), nil, path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %s", err, want)
		}
	}
}

// A file is read at its own times and rates unless flags say otherwise.
func TestDescribeFile(t *testing.T) {
	v1, v2 := testutil.File(t, "v1.csv", "HashOwner,"), testutil.File(t, "v2.csv", "app,func,")
	llm, saved := testutil.File(t, "l.csv", "TIMESTAMP,"), testutil.File(t, "w.csv", "arrival_s")
	type want struct{ file, name, path, replay, lengths, rate string }
	for _, c := range []struct {
		path, given string
		want        want
	}{
		{saved, "", want{saved, "", "", "rates", "auto", "4"}},
		{v1, "", want{"", "azure_v1", v1, "rates", "none", "0"}},
		{v2, "", want{"", "azure_v2", v2, "vanilla", "none", "0"}},
		{llm, "", want{"", "azure_llm", llm, "rates", "auto", "0"}},
		{v2, "trace-replay trace-total-rate lengths", want{"", "azure_v2", v2, "rates", "auto", "4"}},
		{saved, "trace-name", want{"", "burstgpt", saved, "rates", "auto", "0"}},
	} {
		sc := Default()
		if strings.Contains(c.given, "trace-name") {
			sc.Workload.TraceName = "burstgpt"
		}
		err := sc.DescribeFile(t.Context(), c.path,
			func(flag string) bool { return slices.Contains(strings.Fields(c.given), flag) })
		w := &sc.Workload
		got := want{w.File, w.TraceName, w.TracePath, w.TraceReplay, w.Lengths.String(),
			settings.Format(w.TraceTotalRate)}
		if err != nil || got != c.want {
			t.Errorf("%s, given %q: %+v, %v; expected %+v", c.path, c.given, got, err, c.want)
		}
	}
	sc := Default()
	sc.Workload.Compat = "dlora"
	if err := sc.DescribeFile(t.Context(), v2, func(string) bool { return false }); err != nil ||
		sc.Workload.TraceReplay != "rates" {
		t.Errorf("compat dlora redraws: %s, %v", sc.Workload.TraceReplay, err)
	}
	none := filepath.Join(t.TempDir(), "none")
	if err := sc.DescribeFile(t.Context(), none, func(string) bool { return false }); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// Each of these settings is refused alone, by its name.
func TestWorkloadCheck(t *testing.T) {
	trace := func(name string) func(w *Workload) {
		return func(w *Workload) { w.TraceName, w.TracePath = name, "x" }
	}
	with := func(fs ...func(w *Workload)) func(w *Workload) {
		return func(w *Workload) {
			for _, f := range fs {
				f(w)
			}
		}
	}
	compat := func(name string) func(w *Workload) { return func(w *Workload) { w.Compat = name } }
	histogram := func(w *Workload) { w.TraceHistogram = as[histogramText]("1,2") }
	file := func(w *Workload) { w.File = "f" }
	for i, c := range []struct {
		edit func(w *Workload)
		want string // "": fine
	}{
		{func(*Workload) {}, ""},
		{trace("azure_v1"), ""}, {histogram, ""}, {file, ""}, {trace("mooncake"), ""},
		{with(compat("dlora"), trace("azure_v1")), ""}, {with(compat("dlora"), trace("azure_v2")), ""},
		{with(compat("dlora"), histogram), ""},
		{compat("slora"), ""}, {compat("vllm-lora"), ""},
		{func(w *Workload) { w.UseTrace, w.TracePath = true, "x" }, ""},
		{func(w *Workload) { w.UseTrace = true }, "trace azure_v2: trace_path is missing"},
		{func(w *Workload) { w.TraceName = "mooncake" }, "trace mooncake: trace_path is missing"},
		{trace("azur"), `trace_name: unknown value "azur"`},
		{func(w *Workload) { w.TraceReplay = "redraw" }, `trace_replay: unknown value "redraw"`},
		{compat("dlor"), `compat: unknown value "dlor"`},
		{compat("dlora"), "compat dlora replays function traces"},
		{with(compat("dlora"), trace("mooncake")), "not mooncake"},
		{with(compat("slora"), histogram), "compat slora generates its requests"},
		{with(compat("vllm-lora"), file), "compat vllm-lora generates"},
		{with(compat("slora"), trace("azure_v1")), "compat slora generates its requests"},
		{with(file, histogram), "exclude each other"}, {with(file, trace("azure_v1")), "exclude each other"},
		{with(histogram, trace("azure_v1")), "exclude each other"},
		{func(w *Workload) { w.RateScale = 0 }, `rate_scale: "0" is not a number from`},
		{func(w *Workload) { w.TraceSpeed = -1 }, `trace_speed: "-1" is`},
		{func(w *Workload) { w.TraceHistogram, w.CVScale = as[histogramText]("5,6"), 2 },
			"arrivals sets those of a function trace"},
		{func(w *Workload) {
			w.TraceHistogram, w.Arrivals = as[histogramText]("5,6"), as[arrivalsText]("total-gamma:2")
		}, "expected arrivals without total-"},
		{func(w *Workload) { w.File, w.TraceSpeed = "w.csv", 2 },
			"rate_scale is the factor on the speed of recorded requests"},
		{func(w *Workload) { w.NumPrompts = settings.Some[int64](-1) }, `num_prompts: "-1"`},
		{func(w *Workload) { w.NumAdapters = settings.Some(-1) }, `num_adapters: "-1"`},
		{func(w *Workload) {
			w.Window, w.RandomInputLen, w.RandomOutputLen = 0, 0, 0
		}, ""},
		{func(w *Workload) { w.RandomInputLen = -1 }, "random_input_len"},
		{func(w *Workload) { w.RandomOutputLen = -1 }, "random_output_len"},
		{func(w *Workload) { w.Window = -1 }, `window: "-1"`},
	} {
		sc := Default()
		c.edit(&sc.Workload)
		err := cmp.Or(sc.checkValues(), sc.Workload.check())
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%d: %v, expected %q", i, err, c.want)
		}
	}
}

// opened reads a scenario's whole workload.
func opened(t *testing.T, edit func(w *Workload)) (*trace.Workload, *Input, error) {
	t.Helper()
	sc := Default()
	edit(&sc.Workload)
	in, err := sc.OpenWorkload(context.Background(), nil)
	if err != nil {
		return nil, nil, err
	}
	t.Cleanup(func() { in.Close() })
	w := &trace.Workload{Adapters: in.Adapters()}
	for {
		r, err := in.Next()
		if errors.Is(err, io.EOF) {
			return w, in, nil
		}
		if err != nil {
			return nil, nil, err
		}
		w.Requests = append(w.Requests, r)
	}
}

// countsOf reads a value of trace_histogram.
func countsOf(ctx context.Context, text string) ([][]int64, error) {
	h, err := histogramSyntax{}.Parse(text)
	if err != nil {
		return nil, err
	}
	return h.read(ctx)
}

func TestHistogram(t *testing.T) {
	file := testutil.File(t, "h.json", "[[3,1],[0,2]]")
	for text, want := range map[string][][]int64{
		"5": {{5}}, "1, 2;3,4": {{1, 3}, {2, 4}}, file: {{3, 1}, {0, 2}},
		testutil.File(t, "flat.json", "[7,8]"): {{7}, {8}},
	} {
		if got, err := countsOf(t.Context(), text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"1,2;3": "interval 2 has 1 adapters, the first has 2", "1,x": `"x" is not a whole number`,
		"none.json":                        "none.json",
		testutil.File(t, "bad.json", "{}"): "bad.json: expected a list of numbers, or of lists of numbers",
	} {
		if _, err := countsOf(t.Context(), text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, c := range []struct {
		num  int
		want int
		err  string
	}{{0, 3, ""}, {3, 3, ""}, {2, 0, "trace_histogram"}} { // as many adapters as it has, or as are asked for
		w, in, err := opened(t, func(w *Workload) {
			w.TraceHistogram, w.TraceTotalRate = as[histogramText]("20,0,10;5,5,0"), 0
			if c.num > 0 {
				w.NumAdapters = settings.Some(c.num)
			}
		})
		if c.err != "" {
			if err == nil {
				t.Errorf("%d adapters for 3: no error", c.num)
			}
			continue
		}
		if err != nil || len(w.Adapters) != c.want || in.Dataset != "histogram" || len(w.Requests) == 0 {
			t.Errorf("%+v: %d adapters, %v", c, len(w.Adapters), err)
		}
	}
	_, in, err := opened(t, func(w *Workload) {
		w.TraceHistogram, w.Compat = as[histogramText]("20,0,10;5,5,0"), "dlora"
	})
	if err != nil || in.Replayed == nil {
		t.Errorf("compat dlora: %v, %+v", err, in)
	}
	if _, _, err := opened(t,
		func(w *Workload) {
			w.TraceHistogram, w.Compat, w.Arrivals = as[histogramText]("1,2"), "dlora", as[arrivalsText]("gamma:1,2")
		}); err == nil ||
		!strings.Contains(err.Error(), "arrivals: compat dlora draws from gamma:CV, not gamma:1,2") {
		t.Error(err)
	}
}

// A saved workload is replayed as it is; limits, ranks and adapters can be set.
func TestSavedWorkload(t *testing.T) {
	file := testutil.File(t, "w.csv",
		"id,arrival_s,adapter,prompt_tokens,output_tokens\n0,0,0,10,5\n1,0.5,2,20,6\n2,1,1,30,7\n")
	for _, c := range []struct {
		name     string
		edit     func(w *Workload)
		requests int
		ranks    string
	}{
		{"as it is", func(*Workload) {}, 3, "[0 0 0]"},
		{"two of it", func(w *Workload) { w.NumPrompts = settings.Some[int64](2) }, 2, "[0 0 0]"},
		{"with ranks", func(w *Workload) { w.LoraRanks = as[ranksText]("16,32") }, 3, "[16 32 16]"},
		{"with adapters", func(w *Workload) {
			w.NumAdapters, w.LoraRanks = settings.Some(4), as[ranksText]("8")
		}, 3, "[8 8 8 8]"},
	} {
		w, in, err := opened(t, func(w *Workload) { w.File = file; c.edit(w) })
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var ranks []int
		for _, a := range w.Adapters {
			ranks = append(ranks, a.Rank)
		}
		if len(w.Requests) != c.requests || fmt.Sprint(ranks) != c.ranks || w.Requests[1].Prompt != 20 ||
			in.Dataset != "workload" {
			t.Errorf("%s: ranks %v, %+v", c.name, ranks, w.Requests)
		}
	}
	for path, want := range map[string]int64{file: 84, t.TempDir(): 0} {
		progress := reading(func(_, total int64) error {
			if total != want {
				t.Errorf("%s: %d bytes, expected %d", path, total, want)
			}
			return io.EOF
		})
		if progress.of(nil, path)(1) == nil {
			t.Error("the error is gone")
		}
	}
}

// Traces of LLM requests keep their own token counts; a window is cut out where
// one is stated, and times are scaled.
func TestLLMTrace(t *testing.T) {
	var text strings.Builder
	text.WriteString("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n")
	for i := range 6 {
		fmt.Fprintf(&text, "%d,ChatGPT,%d,%d,%d,Conversation log\n", i*60, 10+i, 5, 15+i)
	}
	text.WriteString("360,ChatGPT,16,0,16,Conversation log\n") // failed
	file := testutil.File(t, "b.csv", text.String())
	burst := func(edit func(w *Workload)) func(w *Workload) {
		return func(w *Workload) {
			w.TraceName, w.TracePath = "burstgpt", file
			edit(w)
		}
	}
	for _, c := range []struct {
		name        string
		edit        func(w *Workload)
		n           int
		first, last float64
		prompt      int32
	}{
		{"all", func(*Workload) {}, 6, 0, 300, 10},
		{"limited", func(w *Workload) { w.NumPrompts = settings.Some[int64](2) }, 2, 0, 60, 10},
		{"slower", func(w *Workload) { w.RateScale = 0.5 }, 6, 0, 600, 10},
		{"denser", func(w *Workload) { w.RateScale = 3 }, 6, 0, 100, 10},
		{"window", func(w *Workload) {
			w.TraceStartTime, w.TraceEndTime = as[instantText]("0.0.2"), as[instantText]("0.0.4")
		}, 2, 0, 60, 12},
		{"from the start", func(w *Workload) { w.TraceEndTime = as[instantText]("0.0.3") }, 3, 0, 120, 10},
		{"of fixed length", func(w *Workload) { w.Lengths = as[lengthsText]("constant:7,8") }, 6, 0, 300, 7},
	} {
		w, in, err := opened(t, burst(c.edit))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		rs := w.Requests
		if len(rs) != c.n || rs[0].Arrival != c.first || rs[len(rs)-1].Arrival != c.last || rs[0].Prompt != c.prompt ||
			in.Dataset != "burstgpt" {
			t.Errorf("%s: %+v", c.name, rs)
		}
		if c.name == "all" && in.Skipped() != 1 {
			t.Errorf("%d skipped", in.Skipped())
		}
	}
}

func TestRandomLengths(t *testing.T) {
	for _, c := range []struct {
		in, out int
		ratio   float64
		want    string
	}{
		{0, 0, 0, "[[1 1025] [1 129]]"}, {100, 10, 0.5, "[[50 101] [5 11]]"}, {100, 0, 1, "[[100 101] [128 129]]"},
	} {
		sc := Default()
		sc.Workload.RandomInputLen, sc.Workload.RandomOutputLen, sc.Workload.RandomRangeRatio = c.in, c.out, c.ratio
		in, out := sc.Workload.randomRanges()
		if got := fmt.Sprint([][2]int32{in, out}); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	for _, edit := range []func(w *Workload){
		func(w *Workload) { w.RandomInputLen = 50 }, func(
			w *Workload,
		) {
			w.RandomOutputLen = 50
		}, func(w *Workload) { w.Lengths = as[lengthsText]("random") },
	} { // any of them draws both at random
		w, _, err := opened(t, func(w *Workload) {
			w.RandomRangeRatio, w.NumPrompts = 1, settings.Some[int64](3)
			edit(w)
		})
		sc := Default()
		edit(&sc.Workload)
		m := sc.Meta("synthetic")
		if err != nil || m.RandomInputLen == nil || int(w.Requests[0].Prompt) != *m.RandomInputLen ||
			int(w.Requests[0].Output) != *m.RandomOutputLen {
			t.Errorf("%v: %+v, the result says %v", err, w, m.RandomInputLen)
		}
	}
	if m := (&Scenario{}).Meta("synthetic"); m.RandomInputLen != nil {
		t.Error("a result without random lengths states them")
	}
}

// The head of a result: the stated rate for generated load alone.
func TestMeta(t *testing.T) {
	sc := Default()
	sc.Workload.RequestRate, sc.Seed, sc.Client.NoStream = 7, 9, true
	for dataset, want := range map[string]result.Rate{
		"synthetic": 7, "slora": 7, "vllm-lora": 7, "burstgpt": result.TraceRate, "workload": result.TraceRate,
	} {
		if m := sc.Meta(dataset); m.RequestRate != want || *m.Seed != 9 || m.DatasetName != dataset ||
			m.Config["seed"] != nil || m.Config["cluster.num_workers"] != 4 {
			t.Errorf("%s: %+v", dataset, m)
		}
	}
	for want, edit := range map[string]func(s *Scenario){
		"defaults": func(s *Scenario) {
			s.Seed = 5
			testutil.Set(t, s, "policy", "p2c")
		},
		"night": func(s *Scenario) { s.Name, s.Workload.NumPrompts = "night", settings.Some[int64](3) },
		"num_prompts=3 num_workers=8": func(s *Scenario) {
			s.Workload.NumPrompts, s.Cluster.NumWorkers = settings.Some[int64](3), settings.Some(8)
		},
		"file=w.csv": func(s *Scenario) { s.Workload.File = "/a/b/w.csv" },
	} {
		sc := Default()
		edit(&sc)
		if got := sc.Summary(); got != want {
			t.Errorf("%s, expected %s", got, want)
		}
	}
}
