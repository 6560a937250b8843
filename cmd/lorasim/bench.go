package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"lorasim/bench/live"
	"lorasim/bench/scenario"
)

// benchFlags are the flags of lorasim bench beside the scenario's.
type benchFlags struct {
	live.Options
	out            outputFlags
	remote         remoteFlags
	backend, extra string
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
		if err := f.check(args); err != nil {
			return err
		}
		noteIgnored(cmd, &sc)
		return f.run(cmd, &sc)
	}
	return cmd
}

func (f *benchFlags) add(cmd *cobra.Command) {
	flags(cmd, "Requests",
		opt(&f.backend, "backend", string(live.SGLang), "interface for requests: sglang, sglang-oai, sglang-oai-chat, vllm, vllm-chat"),
		opt(&f.HonourEOS, "disable-ignore-eos", false, "let replies end at EOS, within the workload's budgets"),
		opt(&f.Vocabulary, "vocab-size", 32000, "prompts are drawn from token ids below this", ">=11 <=1e9"),
		opt(&f.extra, "extra-request-body", "", "JSON object with further fields for every request"),
		opt(&f.FirstToken, "first-token-timeout", 5*time.Minute, "longest wait for the first byte; 0: none", ">=0"),
		opt(&f.Idle, "idle-timeout", time.Minute, "longest pause of a stream; 0: none", ">=0"),
		opt(&f.Total, "request-timeout", 0, "longest time of a request; 0: none", ">=0"),
		opt(&f.Retries, "retries", 3, "attempts after the first that a request gets when nothing has come yet, or its worker breaks", ">=0 <=1000"),
		opt(&f.Grace, "grace", 5*time.Second, "time for requests in flight after Ctrl-C", ">=0"),
		opt(&f.Ready, "ready-timeout", 0, readyHelp, ">=0"),
		opt(&f.Workers.Speed, "worker-time-scale", 1, "emulated workers' --time-scale: send as much faster, and report their time", ">0 <=1e6"))
	flags(cmd, outputHeading,
		opt(&f.RecordsFile, "records", "", recordsHelp),
		opt(&f.Replies, "replies", "", "write the token ids of each reply to `file` (.jsonl), as far as the workers tell them"))
}

// check completes the options.
func (f *benchFlags) check(args []string) (err error) {
	if f.Backend, err = live.ParseBackend(f.backend); err != nil {
		return usage(fmt.Errorf("--backend: %w", err))
	}
	if err := f.remote.parse(args, &f.Workers); err != nil {
		return usage(err)
	}
	if err := f.out.check(); err != nil {
		return err
	}
	if f.Extra, err = extraFields(f.extra); err != nil {
		return usage(fmt.Errorf("--extra-request-body: %w", err))
	}
	f.SLO, f.KeepRecords = f.out.slo, f.out.keep()
	return nil
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
	data, err := json.Marshal(fields)
	return bytes.TrimSuffix(bytes.TrimPrefix(data, []byte("{")), []byte("}")), err
}

func (f *benchFlags) run(cmd *cobra.Command, sc *scenario.Scenario) error {
	p := newProgress(cmd.ErrOrStderr())
	f.Workers.Log, f.Reading = p.log(cmd.ErrOrStderr()), p.reading
	f.Progress = func(q live.Progress) {
		p.set("sending", q.Done, q.Requests, fmt.Sprintf("%.1f/s, %d in flight, %d failed", float64(q.Done)/max(q.Now, 1e-9), q.InFlight, q.Failed))
	}
	before := cpuTime()
	res, st, err := live.Bench(cmd.Context(), sc, f.Options)
	p.done()
	if res == nil {
		return err
	}
	say(cmd, "%s, client CPU %.0f us per request", st.Summary(), (cpuTime()-before).Seconds()*1e6/float64(max(st.Sent, 1)))
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
