package starter

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"lorasim/bench/scenario"
	"lorasim/internal/testutil"
)

func write(t *testing.T, a Answers, file string) string {
	t.Helper()
	s, err := New(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := s.Write(&b, file); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The files are scenarios that say what was answered, and run; with every key that the comments show, too.
func TestFiles(t *testing.T) {
	key := regexp.MustCompile(`(?m)^  # ( *[a-z_]+:)`)
	for _, a := range []Answers{
		{}, {Workers: 6, Profile: "llama-3.1-8b-h100-64gb-vllm-0.8.5", Adapters: 100, Rate: 20},
		{Workers: 1, Profile: "L40S"},
		{Profile: "qwen2.5-7b-h100-64gb-vllm-0.8.5", Adapters: 3, Rate: 0.25},
	} {
		text := write(t, a, "scenario.yaml")
		sc, err := scenario.Parse([]byte(text), "scenario.yaml")
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		first, err := sc.First(t.Context())
		if err == nil {
			err = sc.Check(t.Context(), first)
		}
		n, rate := a.Workers, a.Rate
		if n == 0 {
			n = Workers
		}
		if rate == 0 {
			rate = RatePerWorker * float64(n)
		}
		if err != nil || sc.Cluster.NumWorkers.Value != n || sc.Workload.RequestRate != rate ||
			a.Adapters > 0 && sc.Workload.NumAdapters.Value != a.Adapters {
			t.Errorf("%+v: %v, %+v", a, err, sc)
		}
		var left []string // without the log, which stands for other keys
		for line := range strings.Lines(text) {
			if !strings.Contains(line, "# file:") {
				left = append(left, key.ReplaceAllString(line, "  $1"))
			}
		}
		all, err := scenario.Parse([]byte(strings.Join(left, "")), "all.yaml")
		if err != nil {
			t.Fatalf("%v\n%s", err, left)
		}
		if e := all.Cluster.Engine; e.MaxRunningRequests == 0 || e.KVTokens == 0 || e.MaxLorasPerBatch == 0 {
			t.Errorf("%+v", all.Cluster)
		}
		ps, err := sc.Profiles(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		same, err := all.Profiles(t.Context())
		if err != nil || same[0].Engine.MaxRunningRequests != ps[0].Engine.MaxRunningRequests ||
			same[0].Engine.MaxLorasPerBatch != ps[0].Engine.MaxLorasPerBatch {
			t.Errorf("the values of the comments are not those of the profile: %v, %+v", err, same[0].Engine)
		}
	}
}

// A log gives adapters and rate; the file names the log from its own folder.
func TestLog(t *testing.T) {
	log := testutil.File(t, "my log.csv", "time,adapter,prompt,output\n10,a,5,6\n14,b,5,6\n12,a,7,8\n")
	file := filepath.Join(filepath.Dir(log), "sub", "scenario.yaml")
	text := write(t, Answers{Log: log, Workers: 2}, file)
	if !strings.Contains(text, "# 3 requests for 2 adapters, 0.5 requests/s") {
		t.Error(text)
	}
	if _, err := scenario.Parse([]byte(text), file); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		a    Answers
		want string
	}{
		{Answers{Log: log, Adapters: 5}, "a log has its own adapters"},
		{Answers{Log: "absent.csv"}, "no such file"},
		{Answers{Profile: "gtx 970"}, "neither an embedded profile"},
		{Answers{Workers: 2_000_000}, "num_workers"},
	} {
		if _, err := New(t.Context(), c.a); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, expected %q", c.a, err, c.want)
		}
	}
}

// Lines of the file fit a terminal of 120 columns.
func TestWidth(t *testing.T) {
	lines := strings.Split(write(t, Answers{Profile: "analytic:qwen3-30b-a3b,h100-64gb"}, "scenario.yaml"), "\n")
	if i := slices.IndexFunc(lines, func(l string) bool { return len(l) > 120 }); i >= 0 {
		t.Errorf("line %d: %s", i+1, lines[i])
	}
}
