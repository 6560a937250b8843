package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"lorasim/bench/result"
	"lorasim/bench/result/waits"
	"lorasim/bench/scenario"
	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/httpapi"
	"lorasim/bench/serving/live"
	"lorasim/internal/format"
	"lorasim/internal/linelog"
	"lorasim/internal/table"
	"lorasim/internal/textfile"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
)

// benchFlags are the flags of lorasim bench beside the scenario's.
type benchFlags struct {
	live.Options
	out            outputFlags
	remote         remoteFlags
	outlier        outlierFlags
	ui             uiFlags
	backend, extra string
	plans          string
}

func newBench() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:         "bench [SCENARIO.yaml] [URL...]",
		Short:       "Send a workload to live workers under a routing policy",
		Annotations: aliasesIn(clientNames, workerNames),
		Long: `Bench sends a workload to workers that run sglang or vLLM (or lorasim worker),
routes it by any policy, loads and moves adapters as the policy wants, and prints
the result block. Ctrl-C stops sending, gives requests in flight some time, and
prints the block of what finished.`,
		Example: `  lorasim bench --worker-urls http://gpu0:30000,http://gpu1:30000 --num-adapters 4 --request-rate 8
  lorasim bench --worker-urls localhost:30001 localhost:30002 --workload w.parquet --policy plan-and-route --json
  lorasim bench localhost:8000 --backend vllm --max-concurrency 32 --request-rate inf
  lorasim bench localhost:30001 --lora-path '/adapters/{name}' --records run.parquet
  lorasim bench localhost:30001 localhost:30002 --num-adapters 4 --request-rate 8 --ui`,
		Args: cobra.ArbitraryArgs,
	}
	sf := addScenarioFlags(cmd, "workload", "routing", "client")
	addWorkerSettings(cmd, "profile", "no_failover")
	addSettings(cmd, pushHeading, "push_interval", "push", "max_staleness")
	f.remote.add(cmd)
	f.outlier.add(cmd)
	f.add(cmd)
	f.out.add(cmd)
	f.ui.add(cmd)
	cmd.AddCommand(newMatrix())
	cmd.RunE = sf.among(func(cmd *cobra.Command, sc *scenario.Scenario, args []string) error {
		if err := f.check(cmd.Context(), args); err != nil {
			return err
		}
		noteIgnored(cmd, sc)
		f.remote.warn(cmd.Context(), func(format string, args ...any) { say(cmd, format, args...) }, f.Workers.URLs)
		return f.run(cmd, sc)
	})
	return cmd
}

func (f *benchFlags) add(cmd *cobra.Command) {
	flags(cmd, "Requests",
		opt(&f.backend, "backend", string(live.SGLang),
			"Interface for requests: sglang, sglang-oai, sglang-oai-chat, vllm, vllm-chat"),
		opt(&f.HonourEOS, "disable-ignore-eos", false, "Let replies end at EOS, within the workload's limits"),
		opt(&f.Vocabulary, "vocab-size", 32000, "Prompts have token ids below this number", ">=11 <=1e9"),
		opt(&f.extra, "extra-request-body", "", "JSON object with further fields for every request"),
		opt(&f.FirstToken, "first-token-timeout", 5*time.Minute,
			"Longest wait for the first byte (0: no limit)", ">=0"),
		opt(&f.Idle, "idle-timeout", time.Minute, "Longest pause of a stream (0: no limit)", ">=0"),
		opt(&f.Total, "request-timeout", 0, "Longest time of a request (0: no limit)", ">=0"),
		opt(&f.Retries, "retries", 3,
			"Retries of a request before its first byte, or when its worker breaks off", ">=0 <=1000"),
		opt(&f.Grace, "grace", 5*time.Second, "Time for requests in flight after Ctrl-C", ">=0"),
		opt(&f.Ready, "ready-timeout", 10*time.Second, readyHelp, ">=0"),
		opt(&f.Workers.Speed, "worker-time-scale", 1,
			"--time-scale of emulated workers: requests are sent that much faster", ">0 <=1e6"))
	flags(cmd, pushHeading,
		opt(&f.PushDir, "push-dir", "", "Take the versions of an adapter from the subfolders of `folder`/NAME, in the order of their names (default: the adapter's own path again)"))
	flags(cmd, outputHeading,
		opt(&f.RecordsFile, "records", "", recordsHelp),
		opt(&f.plans, "plans", "", "Append every plan to `file`, one JSON object per line"),
		opt(&f.Replies, "replies", "", "Write the token ids of each reply to `file` (.jsonl), where workers report them"))
	writes(cmd, table.Extensions(), "records")
	writes(cmd, nil, "replies")
}

// check completes the options.
func (f *benchFlags) check(ctx context.Context, args []string) (err error) {
	if f.Backend, err = live.ParseBackend(f.backend); err != nil {
		return usage(fmt.Errorf("--backend: %w", err))
	}
	if err := f.remote.parse(ctx, args, &f.Workers); err != nil {
		return usage(err)
	}
	f.Workers.Outlier = f.outlier.config()
	if err := f.out.check(); err != nil {
		return err
	}
	if f.Extra, err = extraFields(f.extra); err != nil {
		return usage(fmt.Errorf("--extra-request-body: %w", err))
	}
	f.SLO, f.KeepRecords = f.out.slo, f.out.keep()
	return nil
}

// extraFields returns the content of a JSON object without its braces.
func extraFields(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return nil, fmt.Errorf("%q is not a JSON object such as {\"top_k\": 5}", text)
		}
		return nil, fmt.Errorf("%q is not a JSON object: %w", text, err)
	}
	data, err := json.Marshal(fields)
	return bytes.TrimSuffix(bytes.TrimPrefix(data, []byte("{")), []byte("}")), err
}

func (f *benchFlags) run(cmd *cobra.Command, sc *scenario.Scenario) error {
	if sc.Cluster.NoFailover || strings.HasSuffix(string(f.Backend), "-chat") {
		f.Workers.Outlier.SlowStart = slowStart
	}
	p := newProgress(cmd.ErrOrStderr())
	f.Workers.Log, f.Reading = p.log(cmd.ErrOrStderr()), p.reading
	f.Progress = func(q live.Progress) {
		p.set("sending", q.Done, q.Requests, fmt.Sprintf("%.1f/s, %d in flight, %d failed",
			float64(q.Done)/max(q.Now, 1e-9), q.InFlight, q.Failed))
	}
	closePlans, err := f.logPlans()
	if err != nil {
		return usage(err)
	}
	defer closePlans()
	ui, err := f.ui.open(cmd)
	if err != nil {
		return err
	}
	ui.attach(&f.Options)
	var waiting *waits.Observer
	if f.out.looks() && f.Events == nil && statedRequests(sc) <= mostWatched {
		var profiles []*profile.Profile
		f.Profiles = func(ps []*profile.Profile) { profiles = ps }
		f.Events = func(adapters []trace.Adapter) record.Watcher {
			waiting = waits.New(f.SLO, profiles, adapters)
			return waiting.Watcher()
		}
	}
	before := cpuTime()
	res, st, err := live.Bench(cmd.Context(), sc, f.Options)
	p.done()
	var more []result.LookLine
	defer func() { ui.close(&f.out, res, more, st, err) }()
	if res == nil {
		return err
	}
	say(cmd, "%s, client CPU %.0f us per request", st.Summary(),
		(cpuTime()-before).Seconds()*1e6/float64(max(st.Sent, 1)))
	if waiting != nil {
		causes := waiting.Causes(res)
		more = append(more, result.LookLine{Label: "Waits", Text: "requests wait for " + causes.String()})
	}
	more = append(more, result.LookLine{Label: "Next", Text: longer(cmd, sc, res), Whole: true})
	if werr := f.out.write(cmd, res, more...); werr != nil {
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

// logPlans opens the log of plans.
func (f *benchFlags) logPlans() (closeLog func(), err error) {
	if f.plans == "" {
		return func() {}, nil
	}
	file, err := openAppending(f.plans)
	if err != nil {
		return nil, fmt.Errorf("--plans: %w", err)
	}
	lines := linelog.New(file)
	f.Workers.Plans = slog.New(slog.NewJSONHandler(lines, nil))
	return func() { lines.Close(time.Second); file.Close() }, nil
}

func newCheck() *cobra.Command {
	var f remoteFlags
	var wait time.Duration
	var health bool
	cmd := &cobra.Command{
		Use:   "check URL... | FILE.yaml...",
		Short: "Show model, adapters and limits of live workers, or find faults in manifests",
		Long: `Check prints the engine, model, adapters and limits of each worker. It also finds
out whether a worker loads adapters at run time and returns token ids, and compares
its clock with this machine's. It changes nothing and takes a second; each worker
gets one request for a token. It fails if a worker does not answer.

Files are read as Kubernetes manifests or Helm values (KServe, AIBrix, production-stack,
llm-d, RayService, plain Deployments): check prints what they say about workers and
adapters, and the faults in it. It fails if there is a fault; a note is none.

With --health it asks one gateway or emulated worker for GET /health alone: the exit
code is 0 if it can serve requests, and 1 if not. The default is this host with the
port of $` + listenEnv + `, else 127.0.0.1:8000.`,
		Example: `  lorasim check http://gpu0:30000 http://gpu1:30000
  lorasim check localhost:8000 --json
  lorasim check deployment.yaml adapters.yaml
  lorasim check --health                  # in a container of lorasim gateway`,
		Args: cobra.ArbitraryArgs,
	}
	f.addConnection(cmd)
	jsonFlag(cmd, "Print one JSON object")
	flags(cmd, "",
		opt(&wait, "ready-timeout", 0, readyHelp, ">=0"),
		opt(&health, "health", false, "Ask one gateway or emulated worker, HOST:PORT, whether it can serve requests"))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if health {
			return checkHealth(cmd, args)
		}
		if areManifests(args) {
			return checkManifests(cmd, args)
		}
		var workers fleet.Config
		err := f.parse(cmd.Context(), args, &workers)
		if err != nil {
			return usage(err)
		}
		defer workers.Client.CloseIdleConnections()
		f.warn(cmd.Context(), func(format string, args ...any) { say(cmd, format, args...) }, workers.URLs)
		reports := fleet.Check(cmd.Context(), workers.Connection, fleet.Patience{Ready: wait}, true)
		if err := cmd.Context().Err(); err != nil {
			return err
		}
		if err := show(cmd, func(w io.Writer) error { return printReports(w, reports) },
			inJSON(map[string]any{"schema": "lorasim.check/1", "workers": reports}, "  ")); err != nil {
			return err
		}
		failed := 0
		for i := range reports {
			if reports[i].Error != "" {
				failed++
			}
		}
		if failed > 0 {
			return fmt.Errorf("%d of %d workers cannot be used", failed, len(reports))
		}
		return nil
	}
	return cmd
}

// maxSaid is the largest part of a worker's answer that is printed, in characters.
const maxSaid = 2000

func printReports(w io.Writer, reports []fleet.Report) error {
	var b strings.Builder
	row := func(what string, value any) {
		if reflect.ValueOf(value).IsZero() {
			value = "unknown"
		}
		fmt.Fprintf(&b, "  %-20s %s\n", what, format.Line(fmt.Sprint(value), maxSaid))
	}
	for i := range reports {
		r := &reports[i]
		fmt.Fprintln(&b, r.URL)
		if r.Error != "" {
			row("cannot be used", r.Error)
			continue
		}
		clock := ""
		if c := r.Clock; c != nil {
			clock = fmt.Sprintf("%+.0f ms, accurate to %.0f ms; round trip %.1f ms", 1e3*c.Offset, 1e3*c.Error,
				1e3*c.RoundTrip)
		}
		for _, told := range []struct {
			what  string
			value any
		}{{"engine", fmt.Sprint(r.API, " ", r.Version)}, {"model", r.Model}, {"context length", r.ContextLength},
			{"LoRA", r.LoRA},
			{"dynamic loading", r.RunTime}, {"adapter slots", r.Slots}, {"largest rank", r.MaxRank},
			{"max loaded adapters", r.MaxLoaded},
			{"KV tokens", r.KVCapacity}, {"max running requests", r.MaxRunning},
			{"adapters", strings.TrimSpace(fmt.Sprint(len(r.Adapters), " ", strings.Join(r.Adapters, " ")))},
			{"token ids", r.TokenIDs}, {"clock", clock}} {
			row(told.what, told.value)
		}
		for _, text := range r.Cannot {
			row("policies cannot", text)
		}
		for _, text := range r.Warnings {
			row("known fault", text)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// remoteFlags say how live workers are reached.
type remoteFlags struct {
	workers                     []string
	api, caCert                 string
	key                         keyFlags
	insecure                    bool
	loras, headers              repeated
	loraFile, loraDir, template string
	poll, connect               time.Duration
}

const (
	remoteHeading = "Live workers"
	readyHelp     = "Maximum wait for workers that do not answer yet"
)

// addConnection adds the flags for connections to workers.
func (f *remoteFlags) addConnection(cmd *cobra.Command) {
	flags(cmd, remoteHeading,
		opt(&f.workers, "worker-urls", nil, "Base `URLs` of the workers, separated by commas or spaces"),
		opt(&f.api, "worker-api", string(httpapi.Auto),
			"Administrative interface of the workers: auto, sglang or vllm"),
		opt(&f.headers, "header", nil, "Further HTTP header, `NAME:VALUE`; repeatable"),
		opt(&f.insecure, skipVerify, false, "Do not verify the workers' TLS certificates"),
		opt(&f.caCert, "cacert", "", "Trust the certificates in `file` (PEM)"),
		opt(&f.connect, "connect-timeout", 5*time.Second, "Longest time to connect", ">0"))
	f.key.add(cmd, remoteHeading, "api-key", workerKeyEnv, "Key (bearer token) for the workers",
		"Read the key from `file`")
}

const skipVerify = "insecure-skip-tls-verify"

// warn prints warnings about the workers' key.
func (f *remoteFlags) warn(ctx context.Context, tell func(format string, args ...any), urls []string) {
	key, err := f.key.readOne(ctx)
	switch text := clearKeyWarning(urls); {
	case err != nil: // parse has reported it
	case key != "" && text != "":
		tell("%s", text)
	case key == "" && os.Getenv("OPENAI_API_KEY") != "":
		tell("$OPENAI_API_KEY is not sent to the workers; $%s and --api-key-file are", workerKeyEnv)
	}
}

// add adds the connection flags and those for the supervision of workers and adapters.
func (f *remoteFlags) add(cmd *cobra.Command) {
	f.addConnection(cmd)
	flags(cmd, remoteHeading,
		opt(&f.poll, "poll-interval", time.Second, "Interval between polls of a worker's health and load", ">0"),
		opt(&f.loras, "lora", nil, "Path of an adapter on the workers, `NAME=PATH`; repeatable"),
		opt(&f.loraFile, "lora-file", "", "Read adapters from `file`, lines of NAME=PATH as in --lora"),
		opt(&f.loraDir, "lora-dir", "", "Serve the PEFT adapters in `folder`, subfolders with adapter_config.json"),
		opt(&f.template, "lora-path", "{name}",
			"Path of all other adapters; {name} and {rank} are replaced"))
}

// urls returns the workers of --worker-urls and of the arguments.
func (f *remoteFlags) urls(args []string) ([]string, error) {
	var urls []string
	for _, s := range slices.Concat(f.workers, strings.Split(strings.Join(args, ","), ",")) {
		if s == "" {
			continue
		}
		if slo, err := result.ParseSLO(s); err == nil && !slo.Empty() { // vLLM's client takes several arguments
			return nil, fmt.Errorf("%q is a limit, not a worker: give one text, as in --goodput \"ttft:500 tpot:50\"", s)
		}
		u, err := fleet.ParseURL(s)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(urls, u) {
			urls = append(urls, u)
		}
	}
	if len(urls) == 0 {
		return nil, errors.New("no workers: give --worker-urls (lorasim worker serves emulated ones)")
	}
	return urls, nil
}

// parse sets the configuration from the flags: connections to workers, named adapters, and the
// sources from which workers load adapters.
func (f *remoteFlags) parse(ctx context.Context, args []string, c *fleet.Config) (err error) {
	if c.URLs, err = f.urls(args); err != nil {
		return err
	}
	if c.API, err = httpapi.Parse(f.api, httpapi.Auto, httpapi.SGLang, httpapi.VLLM); err != nil {
		return fmt.Errorf("--worker-api: %w", err)
	}
	t, err := f.transport(ctx)
	if err != nil {
		return err
	}
	c.Client, c.Header, c.Poll = live.NewHTTPClient(t), http.Header{}, f.poll
	key, err := f.key.readOne(ctx)
	if err != nil {
		return err
	}
	if key != "" {
		c.Header.Set("Authorization", "Bearer "+key)
	}
	for _, s := range f.headers {
		name, value, ok := strings.Cut(s, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return fmt.Errorf("--header %q: expected NAME:VALUE", s)
		}
		c.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	loras, err := f.adapters(ctx)
	paths := map[string]string{}
	for _, a := range loras {
		paths[a.Name] = a.Path
		c.Adapters = append(c.Adapters, trace.Adapter{Name: a.Name, Rank: a.Rank})
	}
	c.Path = func(a trace.Adapter) string {
		return cmp.Or(paths[a.Name], strings.NewReplacer("{name}", a.Name, "{rank}",
			strconv.Itoa(a.Rank)).Replace(f.template))
	}
	return err
}

// adapters returns the adapters that flags name, in the order of --lora, --lora-file and
// --lora-dir.
func (f *remoteFlags) adapters(ctx context.Context) (all []fleet.LoRA, err error) {
	from := map[string]string{}
	add := func(flag string, list []fleet.LoRA, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
		for _, a := range list {
			if was, ok := from[a.Name]; ok && was == flag {
				return fmt.Errorf("%s: adapter %q is given twice", flag, a.Name)
			} else if ok {
				return fmt.Errorf("%s: adapter %q is given by %s too", flag, a.Name, was)
			}
			from[a.Name] = flag
			all = append(all, a)
		}
		return nil
	}
	for _, text := range f.loras {
		a, err := fleet.ParseLoRA(text)
		if err != nil {
			return nil, fmt.Errorf("--lora %w", err)
		}
		if err := add("--lora", []fleet.LoRA{a}, nil); err != nil {
			return nil, err
		}
	}
	if f.loraFile != "" {
		list, err := textfile.Read(ctx, f.loraFile, fleet.ReadLoRAs)
		if err := add("--lora-file", list, err); err != nil {
			return nil, err
		}
	}
	if f.loraDir != "" {
		list, err := fleet.FindLoRAs(f.loraDir)
		err = add("--lora-dir", list, err)
		return all, err
	}
	return all, nil
}

func (f *remoteFlags) transport(ctx context.Context) (*http.Transport, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil // configured hosts only
	t.DialContext = (&net.Dialer{Timeout: f.connect, KeepAlive: 30 * time.Second}).DialContext
	t.TLSClientConfig = &tls.Config{InsecureSkipVerify: f.insecure}
	if f.caCert != "" {
		pem, err := textfile.ReadFile(ctx, f.caCert, textfile.MaxSettings)
		if err != nil {
			return nil, fmt.Errorf("--cacert: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--cacert: %s holds no certificate", f.caCert)
		}
		t.TLSClientConfig.RootCAs = pool
	}
	return t, nil
}

// cpuTime returns the processor time of the program so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
