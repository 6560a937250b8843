package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lorasim/bench/live"
	"lorasim/bench/result"
	"lorasim/bench/scenario"
)

// benchFlags are the flags of lorasim bench beside the scenario's.
type benchFlags struct {
	out     outputFlags
	remote  remoteFlags
	backend string
	records string
	replies string
	eos     bool
	vocab   int
	extra   string
	speed   float64

	firstToken, idle, total, grace, ready time.Duration

	retries int
}

func newBench() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench [URL...]",
		Short: "Send a workload to live workers under a routing policy",
		Long: `Bench sends a workload to workers that run sglang or vLLM (or lorasim worker),
routes it by any policy, loads and moves adapters as the policy wants, and prints
the result block. Ctrl-C stops sending, gives requests in flight some time, and
prints the block of what finished.`,
		Example: `  lorasim bench --worker-urls http://gpu0:30000,http://gpu1:30000 --num-adapters 4 --request-rate 8
  lorasim bench --worker-urls localhost:30001 localhost:30002 --workload w.parquet --policy period_mig --json
  lorasim bench localhost:8000 --backend vllm --max-concurrency 32 --request-rate inf
  lorasim bench localhost:30001 --lora-path '/adapters/{name}' --records run.parquet`,
		Args: cobra.ArbitraryArgs,
	}
	sf := addScenarioFlags(cmd, "workload", "routing", "client")
	addWorkerSettings(cmd, "profile", "max_running_requests", "max_loras_per_batch", "max_loaded_loras", "kv_tokens", "no_failover")
	f.remote.add(cmd)
	f.add(cmd)
	f.out.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		sc, err := sf.scenario(cmd)
		if err != nil {
			return err
		}
		o, err := f.options(args)
		if err != nil {
			return usage(err)
		}
		if err := f.out.check(); err != nil {
			return err
		}
		warnIgnored(cmd, &sc)
		return f.run(cmd, &sc, o)
	}
	return cmd
}

// addWorkerSettings adds flags for what policies assume of workers that do not
// tell it themselves.
func addWorkerSettings(cmd *cobra.Command, keys ...string) {
	def := scenario.Default()
	for _, key := range keys {
		f, err := scenario.Find(key)
		if err != nil {
			panic(err) // a fault of the caller
		}
		v := &settingValue{field: f, text: f.Get(&def)}
		flag := cmd.Flags().VarPF(v, f.Flag, "", f.Help)
		if v.Type() == "bool" {
			flag.NoOptDefVal = "true"
		}
		group(cmd, "What policies assume of the workers", f.Flag)
	}
}

func (f *benchFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.backend, "backend", string(live.SGLang), "interface for requests: sglang, sglang-oai, sglang-oai-chat, vllm, vllm-chat")
	fs.BoolVar(&f.eos, "disable-ignore-eos", false, "let replies end at EOS, within the workload's budgets")
	fs.IntVar(&f.vocab, "vocab-size", 32000, "prompts are drawn from token ids below this")
	fs.StringVar(&f.extra, "extra-request-body", "", "JSON object with further fields for every request")
	fs.DurationVar(&f.firstToken, "first-token-timeout", 5*time.Minute, "longest wait for the first byte; 0: none")
	fs.DurationVar(&f.idle, "idle-timeout", time.Minute, "longest pause of a stream; 0: none")
	fs.DurationVar(&f.total, "request-timeout", 0, "longest time of a request; 0: none")
	fs.IntVar(&f.retries, "retries", 3, "attempts after the first that a request gets when nothing has come yet, or its worker breaks")
	fs.DurationVar(&f.grace, "grace", 5*time.Second, "time for requests in flight after Ctrl-C")
	fs.DurationVar(&f.ready, "ready-timeout", 0, "wait so long for workers that do not answer yet")
	fs.Float64Var(&f.speed, "worker-time-scale", 1, "emulated workers' --time-scale: send as much faster, and report their time")
	group(cmd, "Requests", "backend", "disable-ignore-eos", "vocab-size", "extra-request-body", "first-token-timeout",
		"idle-timeout", "request-timeout", "retries", "grace", "ready-timeout", "worker-time-scale")
	within(cmd, ">=11 <=1e9", "vocab-size")
	within(cmd, ">0 <=1e6", "worker-time-scale")
	within(cmd, ">=0 <=1000", "retries")
	within(cmd, ">=0", "first-token-timeout", "idle-timeout", "request-timeout", "grace", "ready-timeout")
	fs.StringVar(&f.records, "records", "", "write one row per request to `file` (.parquet, .arrow, .csv, .jsonl)")
	fs.StringVar(&f.replies, "replies", "", "write the token ids of each reply to `file` (.jsonl), as far as the workers tell them")
	group(cmd, outputHeading, "records", "replies")
}

func (f *benchFlags) options(args []string) (live.Options, error) {
	var o live.Options
	var err error
	if o.URLs, err = f.remote.urls(args); err != nil {
		return o, err
	}
	if o.Backend, err = live.ParseBackend(f.backend); err != nil {
		return o, fmt.Errorf("--backend: %w", err)
	}
	if o.API, o.Transport, o.Header, o.Path, err = f.remote.parse(); err != nil {
		return o, err
	}
	if o.SLO, err = result.ParseSLO(f.out.goodput); err != nil {
		return o, fmt.Errorf("--goodput: %w", err)
	}
	if o.Extra, err = extraFields(f.extra); err != nil {
		return o, fmt.Errorf("--extra-request-body: %w", err)
	}
	o.Speed, o.RecordsFile, o.Replies, o.KeepRecords = f.speed, f.records, f.replies, f.out.details
	o.HonourEOS, o.Vocabulary = f.eos, f.vocab
	o.FirstToken, o.Idle, o.Total, o.Grace, o.Retries = f.firstToken, f.idle, f.total, f.grace, f.retries
	o.Poll, o.Ready = f.remote.poll, f.ready
	return o, nil
}

// extraFields is the inside of a JSON object.
func extraFields(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		return nil, fmt.Errorf("%q is not a JSON object: %w", text, err)
	}
	if len(fields) == 0 {
		return nil, nil
	}
	data, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	return []byte(strings.TrimSuffix(strings.TrimPrefix(string(data), "{"), "}")), nil
}

func (f *benchFlags) run(cmd *cobra.Command, sc *scenario.Scenario, o live.Options) error {
	stderr := cmd.ErrOrStderr()
	p := newProgress(stderr)
	o.Log = p.log(stderr)
	o.Reading = p.reading
	o.Progress = func(q live.Progress, total int64) {
		p.set("sending", q.Done, total, fmt.Sprintf("%.1f/s, %d in flight, %d failed", float64(q.Done)/max(q.Now, 1e-9), q.InFlight, q.Failed))
	}
	before := cpuTime()
	res, st, err := live.Bench(cmd.Context(), sc, o)
	p.done()
	if res == nil {
		return err
	}
	fmt.Fprintf(stderr, "lorasim: %s, client CPU %.0f us per request\n", st.Summary(), (cpuTime()-before).Seconds()*1e6/float64(max(st.Sent, 1)))
	if werr := f.out.write(cmd, res); werr != nil {
		return werr
	}
	if err != nil {
		return err
	}
	if st.Stopped {
		return cmd.Context().Err()
	}
	return res.NoSuccess()
}
