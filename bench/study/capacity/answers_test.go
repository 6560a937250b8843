package capacity

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/internal/format"
)

// questions are workloads, profiles, policies and SLOs for which the answer must
// depend neither on num_prompts nor on the seed.
var questions = []struct {
	name, slo string
	attain    float64
	seeds     int // Options.MaxSeeds; 0: the default
	settings  string
}{
	{"long queues", "ttft:5000", 0.99, 0, "num_adapters=32 request_rate=40"},
	{"default", "ttft:1000", 0.99, 0, "request_rate=16"},
	{"cold front ends", "ttft:1000 tpot:50", 0.99, 5,
		"profile=llama-3.1-8b-h100-64gb-vllm-0.8.5 lora_ranks=16 num_adapters=128 request_rate=60"},
	{"bursts", "ttft:1000", 0.99, 0, "arrivals=gamma:6 num_adapters=8 request_rate=12"},
	{"spill", "ttft:800 tpot:120", 0.99, 0, "policy=affinity-spill num_adapters=64 request_rate=25 popularity=uniform"},
	{"weibull", "ttft:3000", 0.95, 0, "policy=least-loaded arrivals=weibull:3 request_rate=30"},
	{"static, h100", "e2e:20000", 0.99, 0,
		"profile=analytic:llama-2-7b,h100 request_rate=35 policy=static num_adapters=16"},
}

// BenchmarkAnswers prints the answers to the questions for several values of
// num_prompts and eight seeds, with the requests that the decisions took.
//
//	go test ./bench/study/capacity -run '^$' -bench Answers -benchtime 1x -timeout 0
//
// ANSWERS selects questions by their names, SEEDS and PROMPTS are lists of numbers.
func BenchmarkAnswers(b *testing.B) {
	list := func(env, def string) []string {
		if text := os.Getenv(env); text != "" {
			def = text
		}
		return strings.Split(def, ",")
	}
	seeds := list("SEEDS", "1,2,3,4,5,6,7,8")
	rows := [][]string{append([]string{"question", "num_prompts"}, seeds...)}
	rows[0] = append(rows[0], "million requests")
	for _, q := range questions {
		if only := os.Getenv("ANSWERS"); !strings.Contains(q.name, only) {
			continue
		}
		for _, prompts := range list("PROMPTS", "500,2000,8000,30000") {
			row, spent := []string{q.name, prompts}, 0.0
			for _, seed := range seeds {
				sc := scenario.Default()
				for _, set := range append(strings.Fields(q.settings), "num_prompts="+prompts, "seed="+seed) {
					key, value, _ := strings.Cut(set, "=")
					if err := sc.Set(key, value); err != nil {
						b.Fatal(err)
					}
				}
				slo, err := result.ParseSLO(q.slo)
				if err != nil {
					b.Fatal(err)
				}
				o := Options{SLO: slo, Attain: q.attain, MaxWorkers: 64, MaxSeeds: 1000, Budget: DefaultBudget}
				if q.seeds > 0 {
					o.MaxSeeds = q.seeds
				}
				s := newSearch(b.Context(), &sc, o)
				t, _, err := s.find()
				if err != nil {
					b.Fatal(err)
				}
				cell := strconv.Itoa(t.Workers)
				if next := s.nextCheaper(t); !t.Holds || next != nil && next.Decision == Undecided {
					cell += "?"
				}
				fmt.Fprintln(os.Stderr, q.name, prompts, seed, cell, float64(s.spent.Load())/1e6)
				row, spent = append(row, cell), spent+float64(s.spent.Load())/1e6
			}
			rows = append(rows, append(row, fmt.Sprintf("%.1f", spent/float64(len(seeds)))))
		}
	}
	var text strings.Builder
	if err := format.Table(&text, rows); err != nil {
		b.Fatal(err)
	}
	b.Log("\n" + text.String())
}
