package explore_test

import (
	"strings"
	"testing"

	"lorasim/bench/explore"
	"lorasim/internal/testutil"
	"lorasim/trace"
)

// TestLogs: a log in memory gives the runs of the same log on disk. A file that is no log, or is not there, has its
// message at the field.
func TestLogs(t *testing.T) {
	var b strings.Builder
	b.WriteString("time,model,prompt_tokens,completion_tokens\n")
	for range 50 {
		b.WriteString("1,a,100,20\n2,b,200,30\n")
	}
	logs := explore.NewLogs()
	logs.Keep("log1/mine.csv", []byte(b.String()))
	logs.Keep("log2/mine.csv.gz", testutil.Gzip(t, b.String()))
	logs.Keep("log3/bad.csv", []byte("no,log\n1,2\n"))
	logs.Keep("log4/mine.parquet", []byte("PAR1"))
	x := explore.New(explore.Limits{}, trace.Files{FS: logs})
	of := func(x *explore.Explorer, file string) answer {
		q := small(set("workload.file", file))
		q.Settings = map[string]string{"workload.file": file}
		return ask(t, x, q)
	}
	disk := testutil.File(t, "mine.csv", b.String())
	want := last[[]explore.Run](t, of(explore.New(explore.Limits{}, trace.Files{}), disk), explore.KindRuns)
	for _, file := range []string{"log1/mine.csv", "log2/mine.csv.gz"} {
		runs := last[[]explore.Run](t, of(x, file), explore.KindRuns)
		for i, r := range runs {
			if r.Policy != want[i].Policy || r.E2E[100] != want[i].E2E[100] || r.TTFT[200] != want[i].TTFT[200] {
				t.Errorf("%s: %s differs from the log on disk", file, r.Policy)
			}
		}
		sc, ok := x.Scenario(runs[0].ID)
		if _, err := x.Replay(t.Context(), &sc); !ok || err != nil {
			t.Errorf("%s: replay %v, %v", file, ok, err)
		}
	}
	for file, says := range map[string]string{
		"log3/bad.csv": "bad.csv", "log4/mine.parquet": ".csv or .jsonl", "log5/gone.csv": "choose your log again",
		"log6/gone.log": "log6/gone.log",
	} {
		faults := last[explore.Checked](t, of(x, file), explore.KindChecked).Faults
		if len(faults) != 1 || faults[0].Key != "workload.file" || !strings.Contains(faults[0].Message, says) {
			t.Errorf("%s: %+v, expected %q at the field", file, faults, says)
		}
	}
}
