// Badhour judges `lorasim explain --prove`. Emulated workers with a profile that the command does not know serve an
// hour behind `lorasim gateway`: a workload with a burst and an adapter that becomes hot. The command sees the log of
// the gateway and scrapes of the workers. What it says of three changes is compared with really running them: another
// policy, one worker more, and 12 adapter slots instead of 4.
//
//	go run ./badhour                                   # one hour of 200 s at twice the speed, four runs
//	go run ./badhour --seed 2 --only base,workers      # another fleet, some runs
//
// All processes that it starts end with it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"lorasim/bench/scenario"
	"lorasim/bench/study/hour"
	"lorasim/lab/internal/process"
	"lorasim/lab/internal/repo"
	"lorasim/sim/profile"
	"lorasim/trace"
	"lorasim/trace/requestlog"
)

// options are the flags.
type options struct {
	lorasim, out, only string
	seed               uint64
	seconds, rate      float64 // of the workers' clock
	scale              float64
	workers, adapters  int
}

func main() {
	var o options
	flag.StringVar(&o.lorasim, "lorasim", "", "`program` to run (default: built from the source)")
	flag.StringVar(&o.out, "out", "",
		"`folder` of logs, scrapes and the page (default: a temporary one, which is removed)")
	flag.StringVar(&o.only, "only", "base,least-loaded,workers,slots", "runs")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the profile and of the workload")
	flag.Float64Var(&o.seconds, "for", 400, "length of the hour by the workers' clock, s")
	flag.Float64Var(&o.rate, "rate", 3, "requests/s by the workers' clock")
	flag.Float64Var(&o.scale, "time-scale", 2, "speed of the workers' clock")
	flag.IntVar(&o.workers, "workers", 3, "workers")
	flag.IntVar(&o.adapters, "adapters", 36, "adapters")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := o.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "badhour:", err)
		os.Exit(1)
	}
}

// variant is one run.
type variant struct {
	name, policy   string
	workers, slots int
	change         string // in the answer
}

func (o *options) run(ctx context.Context) (err error) {
	if o.out == "" {
		if o.out, err = os.MkdirTemp("", "lorasim-badhour-"); err != nil {
			return err
		}
		defer os.RemoveAll(o.out)
	} else if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	if o.lorasim == "" {
		if o.lorasim, err = repo.Build(ctx, o.out); err != nil {
			return err
		}
	}
	if err := o.write(); err != nil {
		return err
	}
	variants := []variant{
		{"base", "static", o.workers, 4, ""},
		{"least-loaded", "least-loaded", o.workers, 4, "policy least-loaded instead of static"},
		{"workers", "static", o.workers + 1, 4, "1 worker more"},
		{"slots", "static", o.workers, 12, "12 adapter slots instead of 4"},
	}
	var answer *answer
	for _, v := range variants {
		folder := filepath.Join(o.out, v.name)
		if slices.Contains(strings.Split(o.only, ","), v.name) {
			if err := o.serve(ctx, v, folder); err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
		}
		really, err := meansOf(ctx, filepath.Join(folder, "access.log"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if v.name == "base" {
			if answer, err = o.explain(ctx, folder); err != nil {
				return err
			}
			fmt.Printf("%-14s TTFT %6.1f ms, E2E %6.0f ms (measured)\n", v.name, really[0], really[1])
			for _, r := range answer.Proof.Rows[:2] {
				recorded, routed := r.Errors()
				fmt.Printf("  second half: %-10s %+5.1f %% as recorded, %+5.1f %% by the policy\n", r.Metric,
					100*recorded, 100*routed)
			}
			continue
		}
		for _, c := range answer.Changes {
			if c.Text == v.change {
				fmt.Printf("%-14s TTFT %6.1f ms predicted, %6.1f ms really (%+5.1f %%); E2E %6.0f ms, %6.0f ms "+
					"(%+5.1f %%)\n", v.name, c.Hour.TTFT, really[0], 100*(c.Hour.TTFT/really[0]-1), c.Hour.E2E,
					really[1], 100*(c.Hour.E2E/really[1]-1))
			}
		}
	}
	return nil
}

// write writes the profile of the workers and the workload.
func (o *options) write() error {
	p, err := profile.Embedded("llama-2-7b-rtx-4090-sglang-0.5")
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(o.seed, 1))
	l := &p.Latency
	for _, x := range []*float64{&l.Decode.BaseMs, &l.Decode.PerRequestMs, &l.Decode.PerKVTokenUs, &l.Prefill.BaseMs,
		&l.Prefill.PerTokenUs, &l.LoRA.CSGMVUs, &l.RequestOverheadMs, &p.Adapters.HostToGPU.LatencyMs,
		&p.Adapters.HostToGPU.GBPerS} {
		*x *= math.Exp(0.5 * (2*rng.Float64() - 1))
	}
	p.Name, p.GPU, p.Validation, p.Intervals, p.ValidatedOn = "hidden", "", nil, nil, ""
	text, err := p.YAML()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(o.out, "profile.yaml"), text, 0o644); err != nil {
		return err
	}
	requests, err := o.draw(o.seed, fmt.Sprintf("flash:%g,%g,5,2", 0.65*o.seconds, 0.15*o.seconds))
	if err != nil {
		return err
	}
	burst, err := o.draw(o.seed+1000, "")
	if err != nil {
		return err
	}
	for _, r := range burst {
		if at := r.Arrival / o.seconds; at > 0.3 && at < 0.38 {
			requests = append(requests, r)
		}
	}
	slices.SortStableFunc(requests, func(a, b trace.Request) int { return int(math.Copysign(1, a.Arrival-b.Arrival)) })
	var b strings.Builder
	b.WriteString("arrival_s,adapter,prompt_tokens,output_tokens,max_new_tokens\n")
	for _, r := range requests {
		fmt.Fprintf(&b, "%.4f,lora%d,%d,%d,%d\n", r.Arrival/o.scale, r.Adapter, r.Prompt, r.Output, r.Output)
	}
	return os.WriteFile(filepath.Join(o.out, "workload.csv"), []byte(b.String()), 0o644)
}

// draw draws requests.
func (o *options) draw(seed uint64, pattern string) ([]trace.Request, error) {
	sc := scenario.Default()
	for key, value := range map[string]string{"num_adapters": strconv.Itoa(o.adapters),
		"request_rate": fmt.Sprint(o.rate), "pattern": pattern,
		"num_prompts": fmt.Sprintf("%.0f", 3*o.rate*o.seconds)} {
		if err := sc.Set(key, value); err != nil {
			return nil, err
		}
	}
	sc.Seed = seed
	in, err := sc.OpenWorkload(context.Background(), nil)
	if err != nil {
		return nil, err
	}
	w, err := trace.Collect(in)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(w.Requests, func(r trace.Request) bool { return r.Arrival > o.seconds }), nil
}

// serve runs the workload on a fleet, whose log and scrapes it leaves in a folder.
func (o *options) serve(ctx context.Context, v variant, folder string) error {
	scrapes := filepath.Join(folder, "scrapes")
	if err := os.MkdirAll(scrapes, 0o755); err != nil {
		return err
	}
	log := filepath.Join(folder, "access.log")
	os.Remove(log)
	s := process.NewSpawner()
	workers, err := s.Serve(process.Pipes{}, o.lorasim, "worker", "--num-workers", strconv.Itoa(v.workers),
		"--num-adapters", strconv.Itoa(o.adapters), "--lora-ranks", "16", "--listen", "127.0.0.1:0", "--profile",
		filepath.Join(o.out, "profile.yaml"), "--time-scale", fmt.Sprint(o.scale), "--engine-args",
		fmt.Sprintf("max_loras_per_batch=%d", v.slots))
	if err != nil {
		return err
	}
	defer workers.Kill()
	args := []string{"gateway", "--policy", v.policy, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
		"--access-log", log}
	var urls []string
	for i := range v.workers {
		urls = append(urls, workers.URL(i, 10*time.Second))
	}
	gateway, err := s.Serve(process.Pipes{}, o.lorasim, append(args, urls...)...)
	if err != nil {
		return err
	}
	defer gateway.Kill()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go scrape(ctx, urls, scrapes)
	client := exec.CommandContext(ctx, o.lorasim, "bench", gateway.URL(0, 10*time.Second), "--workload",
		filepath.Join(o.out, "workload.csv"), "--backend", "sglang-oai", "--no-warmup")
	client.Stderr = os.Stderr
	if err := client.Run(); err != nil {
		return err
	}
	gateway.Signal(syscall.SIGTERM)
	gateway.Ends(10 * time.Second)
	return nil
}

// scrape writes the metrics of the workers every 2 s until ctx ends.
func scrape(ctx context.Context, urls []string, folder string) {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for i, u := range urls {
				resp, err := http.Get(u + "/metrics")
				if err != nil {
					continue
				}
				text, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err == nil {
					name := fmt.Sprintf("worker%d-%d.txt", i, now.UnixMilli())
					os.WriteFile(filepath.Join(folder, name), text, 0o644)
				}
			}
		}
	}
}

// answer is the answer of the command.
type answer struct {
	Proof   hour.Proof
	Changes []hour.Change
}

// explain runs the command. It prints its text.
func (o *options) explain(ctx context.Context, folder string) (*answer, error) {
	args := []string{"explain", filepath.Join(folder, "access.log"), filepath.Join(folder, "scrapes"), "--prove", "-o",
		filepath.Join(o.out, "hour.html")}
	text, err := exec.CommandContext(ctx, o.lorasim, args...).CombinedOutput()
	fmt.Printf("%s\n", text)
	if err != nil {
		return nil, err
	}
	text, err = exec.CommandContext(ctx, o.lorasim, append(args, "--json")...).Output()
	if err != nil {
		return nil, err
	}
	a := &answer{}
	return a, json.Unmarshal(text, a)
}

// meansOf returns mean TTFT and mean E2E latency of a log, ms.
func meansOf(ctx context.Context, log string) (means [2]float64, err error) {
	list, err := requestlog.ReadAccessLog(ctx, trace.Files{}, log)
	if err != nil {
		return means, err
	}
	for i := range list {
		means[0] += 1000 * list[i].FirstByte / float64(len(list))
		means[1] += 1000 * list[i].Duration / float64(len(list))
	}
	return means, nil
}
