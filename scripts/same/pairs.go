package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// A factor of the pairs of settings. "-" is the default of the profile.
type factor struct {
	name   string
	values []string
}

// factors returns the factors; the policies come last.
func factors(policies []string) []factor {
	var all []factor
	for _, line := range []string{
		"scheduler sglang vllm",
		"kernel csgmv triton none merged dlora",
		"loading blocking overlapped",
		"head skip block",
		"order fcfs priority priority-low vtc",
		"prefix - pages nodes",
		"moves none queued recompute copy precopy",
		"elastic - reactive schedule",
		"outages - fail lost",
		"memory - tight",
		"pages 1 16",
		"host - 12",
		"chunk - mixed whole eos eos-plain",
		"drain - 1",
		"eviction lru fifo",
		"failures - 0.2",
		"client open closed window",
		"limits - queue",
		"view - stale",
		"admission - shed-ttft shed-queue rate",
		"outputs - known",
		"interval - 3",
	} {
		words := strings.Fields(line)
		all = append(all, factor{words[0], words[1:]})
	}
	return append(all, factor{"policy", policies})
}

// allowed reports whether the profiles take such values together.
func allowed(is map[string]string) bool {
	in := func(name string, values ...string) bool { return slices.Contains(values, is[name]) }
	merges := in("kernel", "merged", "dlora")
	switch {
	case in("scheduler", "vllm") && (merges || in("drain", "1") || in("chunk", "mixed", "eos", "eos-plain") ||
		in("head", "block") || in("order", "priority-low") || in("prefix", "nodes")):
		return false
	case !in("order", "fcfs") && (in("head", "block") || merges):
		return false
	case in("order", "priority", "priority-low") && in("chunk", "eos-plain"):
		return false
	case merges && (in("chunk", "mixed") || in("drain", "1") || !in("prefix", "-")):
		return false
	}
	return in("prefix", "-") || !in("chunk", "eos-plain")
}

// pairRuns returns runs of sim that hold every allowed pair of values; for -quick, a run for each policy.
func pairRuns(policies []string, quick bool) []run {
	var runs []run
	for i, is := range cover(factors(policies), quick) {
		r := parse(fmt.Sprintf("pairs/%d", i+1), pairLine(i+1, is))
		r.quick = true
		runs = append(runs, r)
	}
	return runs
}

type pair struct{ a, v, b, w int }

// cover takes, of 40 random candidates, the one that covers the most new pairs, until all are covered. For -quick
// each policy gets one run.
func cover(all []factor, quick bool) []map[string]string {
	random := rand.New(rand.NewPCG(1, 7919))
	last := len(all) - 1 // the policies
	open := map[pair]bool{}
	eachPair(all, func(a, b int) {
		for v := range all[a].values {
			for w := range all[b].values {
				open[pair{a, v, b, w}] = true
			}
		}
	})
	var rows []map[string]string
	for misses := 0; misses < 60; {
		var best []int
		most := 0
		for range 40 {
			fixed := -1
			if quick {
				fixed = len(rows)
			}
			pick := candidate(all, random, last, fixed)
			covered := 0
			eachPair(all, func(a, b int) {
				if open[pair{a, pick[a], b, pick[b]}] {
					covered++
				}
			})
			if covered > most || best == nil {
				best, most = pick, covered
			}
		}
		if most == 0 {
			misses++
			continue
		}
		eachPair(all, func(a, b int) { delete(open, pair{a, best[a], b, best[b]}) })
		rows = append(rows, picked(all, best))
		if quick && len(rows) == len(all[last].values) {
			break
		}
	}
	return rows
}

func eachPair(all []factor, f func(a, b int)) {
	for a := range all {
		for b := a + 1; b < len(all); b++ {
			f(a, b)
		}
	}
}

// candidate draws values that are allowed together. The factor last has the value fixed, unless that is negative.
func candidate(all []factor, random *rand.Rand, last, fixed int) []int {
	for {
		pick := make([]int, len(all))
		for i, f := range all {
			pick[i] = random.IntN(len(f.values))
		}
		if fixed >= 0 {
			pick[last] = fixed
		}
		if allowed(picked(all, pick)) {
			return pick
		}
	}
}

func picked(all []factor, pick []int) map[string]string {
	is := map[string]string{}
	for i, f := range all {
		is[f.name] = f.values[pick[i]]
	}
	return is
}

// pairFlags has what a factor's value adds to the command line.
var pairFlags = map[string]string{
	"kernel merged":        "--profile llama2-7b-dlora --lora-ranks 8,16",
	"kernel dlora":         "--profile llama2-7b-dlora --lora-ranks 8,16",
	"order fcfs":           "--schedule-policy fcfs",
	"order priority":       "--schedule-policy priority",
	"order vtc":            "--schedule-policy vtc",
	"order priority-low":   "--schedule-policy priority --schedule-low-priority-values-first",
	"prefix pages":         "--conversations chat --prefix-cache --prefix-eviction pages",
	"prefix nodes":         "--conversations chat --prefix-cache --prefix-eviction nodes",
	"elastic reactive":     "--elastic min=1,max=5,start=3,rule=reactive,target=6,cold_start=10",
	"elastic schedule":     "--elastic min=0,max=5,start=3,rule=schedule,times=20=1+40=5+80=2,cold_start=5",
	"outages fail":         "--outages 0@15-40+1@30-50+2@33-34",
	"outages lost":         "--outages 1@20-45 --no-failover",
	"memory tight":         "--kv-tokens 4096",
	"host 12":              "--max-loaded-loras 12",
	"chunk mixed":          "--enable-mixed-chunk --chunked-prefill-size 512",
	"chunk whole":          "--chunked-prefill-size -1",
	"chunk eos":            "--ignore-eos",
	"chunk eos-plain":      "--ignore-eos --disable-radix-cache",
	"drain 1":              "--lora-drain-wait-threshold 1",
	"failures 0.2":         "--load-failure-rate 0.2",
	"client closed":        "--max-concurrency 60",
	"client window":        "--window 60",
	"limits queue sglang":  "--max-queued-requests 12 --max-running-requests 24",
	"limits queue vllm":    "--max-num-queued-reqs 40 --max-running-requests 24",
	"view stale":           "--view-staleness 3",
	"admission shed-ttft":  "--shed ttft:2000",
	"admission shed-queue": "--shed queue:6",
	"admission rate":       "--rate-limit 1,burst=4",
	"outputs known":        "--known-outputs",
	"interval 3":           "--migration-interval 3",
}

// planners solve an ILP or a flow at each plan: they get fewer requests.
var planners = []string{"plan-and-route", "min-cost-flow", "dlora_period_mig", "rank-group", "auto"}

func pairLine(seed int, is map[string]string) string {
	n := 2000
	if slices.Contains(planners, is["policy"]) {
		n = 700
	}
	line := fmt.Sprintf("sim --json --num-prompts %d --num-workers 4 --num-adapters 24 --request-rate 12 --seed %d "+
		"--scheduler %s --lora-backend %s --adapter-loading %s --head-of-line %s --policy %s --request-migration %s "+
		"--page-size %s --adapter-eviction %s --max-loras-per-batch 6 --priorities 2,0,1,0,-1",
		n, seed, is["scheduler"], is["kernel"], is["loading"], is["head"], is["policy"], is["moves"], is["pages"],
		is["eviction"])
	for _, f := range factors(nil) {
		for _, key := range []string{f.name + " " + is[f.name], f.name + " " + is[f.name] + " " + is["scheduler"]} {
			if flags := pairFlags[key]; flags != "" {
				line += " " + flags
			}
		}
	}
	return line + " --records records.csv --plans plans.jsonl"
}
