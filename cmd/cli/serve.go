package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"lorasim/bench/scenario"
	"lorasim/bench/serving/emulate"
	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/gateway"
	"lorasim/bench/serving/httpapi"
	"lorasim/bench/serving/live"
	"lorasim/internal/textfile"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/trace"
	"lorasim/trace/settings"
	"lorasim/trace/synth"
)

// gatewayFlags are the flags of lorasim gateway beside the scenario's.
type gatewayFlags struct {
	gateway.Config
	remote                      remoteFlags
	outlier                     outlierFlags
	listen, adminListen, access string
	headerTime, grace           time.Duration
	clientKey, adminKey         keyFlags
	allow, adminHosts, aliases  repeated
	workersFile                 string
	listed                      []string // by that file at the start
	insecure                    bool
	maxPending, maxConnections  int
	labels                      labelFlags
	picker                      pickerFlags
}

func newGateway() *cobra.Command {
	var f gatewayFlags
	cmd := &cobra.Command{
		Use:   "gateway [SCENARIO.yaml] [URL...]",
		Short: "Route the requests of any client to live workers",
		Long: `Gateway is a reverse proxy before workers that run sglang or vLLM (or lorasim
worker). Clients reach the endpoints that run the model, routed by the adapter or
model that a request names, and /v1/models and /health; --allow adds paths.
Operators reach /admin (workers, load, unload, drain, flush_cache, ...) and
/metrics (Prometheus) on a listener of their own. Adapters are those of --lora,
--lora-file and --lora-dir, those that the workers hold, and those that operators
add; any other is refused with status 404. Workers join and leave while it runs, by
/admin/workers or --workers-file. It talks to no other host than the workers. On SIGTERM it takes no
new requests and lets those in flight end; on SIGHUP it opens the access log anew.

With --ext-proc it is an endpoint picker for an Envoy-based gateway instead: for each
request of Envoy's filter ext_proc it picks a worker by the routing policy and names it
in the header and the metadata x-gateway-destination-endpoint. Envoy sends the request
there. The filter must send bodies in the mode FULL_DUPLEX_STREAMED. The service
grpc.health.v1.Health says whether a worker is up; --admin-listen serves /metrics alone.`,
		Example: `  lorasim gateway --worker-urls gpu0:30000,gpu1:30000 --lora chat=/adapters/chat --lora code=/adapters/code
  lorasim gateway gpu0:30000 gpu1:30000 --lora-dir /adapters --access-log access.jsonl
  lorasim gateway --workers-file workers.txt
  lorasim gateway localhost:30001 localhost:30002 --lora lora0=lora0 --policy least-loaded
  lorasim gateway gpu0:30000 gpu1:30000 --listen :8000 --gateway-key-file clients.keys --api-key-file workers.key
  curl --json '{"model": "chat", "prompt": "hello", "max_tokens": 20}' localhost:8000/v1/completions
  lorasim gateway --ext-proc gpu0:8000 gpu1:8000 --policy epp:file=config.yaml --objective batch=-1`,
		Args: cobra.ArbitraryArgs,
	}
	sf := addScenarioFlags(cmd, "routing")
	addWorkerSettings(cmd, "profile")
	addSettings(cmd, pushHeading, "push", "max_staleness")
	f.remote.add(cmd)
	f.outlier.add(cmd)
	f.add(cmd)
	f.picker.add(cmd)
	cmd.RunE = sf.among(func(cmd *cobra.Command, sc *scenario.Scenario, args []string) error {
		if err := checkMode(cmd, "ext-proc", f.picker.on, pickerHeading, proxyHeading); err != nil {
			return err
		}
		if f.picker.on {
			return f.pick(cmd, sc, args)
		}
		return f.run(cmd, sc, args)
	})
	return cmd
}

func (f *gatewayFlags) add(cmd *cobra.Command) {
	flags(cmd, "Gateway",
		opt(&f.listen, "listen", defaultListen(), "Listen on `address` for clients; $"+listenEnv+" sets the default"),
		opt(&f.adminListen, "admin-listen", "",
			"Listen on `address` for /admin and /metrics, or none (default: 127.0.0.1, port of --listen + 1000)"),
		opt(&f.insecure, "insecure", false, "Serve other hosts even without a key"),
		opt(&f.MaxBody, "max-body", 32<<20,
			"Longest body searched for the model, bytes; --ext-proc answers longer ones with 413", ">=1"),
		opt(&f.QueueTimeout, "queue-timeout", time.Minute,
			"Longest wait for an adapter slot on a full worker, then 503 (0: no limit)", ">=0"),
		opt(&f.maxPending, "max-pending-requests", 1024,
			"Limit of requests per worker that wait for an adapter slot; more get 503 (0: no limit)", ">=0 <=1e6"),
		opt(&f.aliases, "base-alias", nil,
			"Also send requests for the base model or alias `OLD=NEW` to workers of NEW, with its adapters; repeatable"),
		opt(&f.grace, "grace", 30*time.Second, "Time for requests in flight after SIGTERM", ">=0"))
	f.labels.add(cmd, "Gateway")
	f.clientKey.add(cmd, proxyHeading, "gateway-key", clientKeyEnv, "Key (bearer token) that clients must send",
		"Read keys that clients may send from `file`, one per line")
	f.adminKey.add(cmd, proxyHeading, "admin-key", adminKeyEnv, "Key for /admin and /metrics",
		"Read keys for /admin and /metrics from `file`, one per line")
	flags(cmd, proxyHeading,
		opt(&f.workersFile, "workers-file", "",
			"`file` of workers, one URL per line, read every --poll-interval; workers join and leave with it"),
		opt(&f.allow, "allow", nil, "Further path for clients, `[METHOD ]PATH`, as in 'GET /v1/responses/{id}'; repeatable"),
		opt(&f.adminHosts, "admin-host", nil,
			"Further `name` allowed in Host of admin requests; repeatable"),
		opt(&f.BodyMemory, "body-memory", 256<<20,
			"Memory for the bodies of all requests, bytes; at least 4 times --max-body", ">=4"),
		opt(&f.MaxRequests, "max-requests", 10000, "Limit of requests in flight; more get status 503", ">=1"),
		opt(&f.maxConnections, "max-connections", 0,
			"Limit of client connections; more wait (default: half of the file descriptors)", ">=0 <=1e6"),
		opt(&f.ClientTimeout, "client-timeout", 30*time.Second,
			"Longest time in which a client neither sends nor reads", ">0"),
		opt(&f.headerTime, "header-timeout", 10*time.Second, "Longest time for a request's header", ">0"),
		opt(&f.FirstByte, "first-token-timeout", 5*time.Minute,
			"Longest wait of a stream for its first byte (0: no limit)", ">=0"),
		opt(&f.Idle, "idle-timeout", time.Minute, "Longest pause of a reply that has begun (0: no limit)", ">=0"),
		opt(&f.access, "access-log", "-",
			"Log requests and plans: append JSON lines to `file`; -: text on stderr; none"),
		opt(&f.Retries, "retries", 2,
			"Number of other workers that a request may be sent to before its first byte", ">=0 <=1000"))
}

// baseAliases reads the values of --base-alias.
func baseAliases(list []string) (map[string]string, error) {
	aliases := map[string]string{}
	for _, text := range list {
		from, to, _ := strings.Cut(text, "=")
		if from == "" || to == "" || from == to || aliases[from] != "" {
			return nil, fmt.Errorf("--base-alias %q: expected OLD=NEW, two names of base models, and each OLD once", text)
		}
		aliases[from] = to
	}
	return aliases, nil
}

func (f *gatewayFlags) run(cmd *cobra.Command, sc *scenario.Scenario, args []string) error {
	if f.BodyMemory < 4*f.MaxBody {
		return usage(fmt.Errorf("--body-memory %d: expected at least 4 times --max-body, %d", f.BodyMemory,
			4*f.MaxBody))
	}
	if err := f.guard(cmd.Context()); err != nil {
		return err
	}
	access, err := openLog(f.access, cmd.ErrOrStderr())
	if err != nil {
		return usage(err)
	}
	defer access.close()
	defer access.watchSignals(cmd.Context())()
	cfg := fleet.Config{Log: newProgress(nil).log(access.stderr)}
	if f.workersFile != "" {
		if f.listed, err = textfile.Read(cmd.Context(), f.workersFile, fleet.ReadEndpoints); err != nil {
			return usage(fmt.Errorf("--workers-file: %w", err))
		}
		f.remote.workers = append(f.remote.workers, f.listed...)
	}
	if err := f.remote.parse(cmd.Context(), args, &cfg); err != nil {
		return usage(err)
	}
	if cfg.Aliases, err = baseAliases(f.aliases); err != nil {
		return usage(err)
	}
	cfg.Outlier = f.outlier.config()
	cfg.Outlier.SlowStart = slowStart
	cfg.Push = new(fleet.Push)
	cfg.Push.Options, cfg.Push.MaxStaleness = sc.Cluster.PushOptions()
	defer cfg.Client.CloseIdleConnections()
	f.remote.warn(cmd.Context(), cfg.Log, cfg.URLs)
	if secure := func(u string) bool { return strings.HasPrefix(u, "https:") }; f.insecure && !f.remote.insecure &&
		slices.ContainsFunc(cfg.URLs, secure) {
		cfg.Log("--insecure is about clients' keys; --%s skips the verification of workers' certificates", skipVerify)
	}
	ls, err := f.open()
	if err != nil {
		return err
	}
	defer ls.close()
	f.Build, f.MaxAdapters, f.MaxWorkers = build(), f.labels.adapters, f.labels.workers
	cfg.Plans, f.Access, f.LogDropped, cfg.MaxPending = access.Logger, access.Logger, access.dropped, f.maxPending
	var rt *router.Router
	if f.Fleet, rt, err = live.NewFleet(cmd.Context(), sc, cfg, 0, true); err != nil && rt == nil {
		return usage(err)
	} else if err != nil {
		return err
	}
	defer f.Fleet.Close()
	g, err := gateway.New(f.Config)
	if err != nil {
		return err
	}
	defer g.Close()
	return f.serve(cmd, g, ls, access)
}

// serve listens until the command is interrupted. Then it answers new requests and /health with
// status 503 until those in flight have ended, and closes.
func (f *gatewayFlags) serve(cmd *cobra.Command, g *gateway.Gateway, ls listeners, access *gatewayLog) error {
	ctx := cmd.Context()
	background, quit := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { // while /health and /ready are answered
		if f.Fleet.Begin(background) == nil {
			f.Fleet.Run(background)
		}
	})
	if f.workersFile != "" {
		wg.Go(func() { f.Fleet.Follow(background, f.workersFile, f.remote.poll, f.listed) })
	}
	defer wg.Wait()
	defer quit()
	srv := &http.Server{Handler: g, ReadHeaderTimeout: f.headerTime, IdleTimeout: 2 * time.Minute,
		ErrorLog: access.errorLog()}
	g.Limit(srv)
	failed := make(chan error, 2)
	defer ls.serveOn(cmd.OutOrStdout(), cmp.Or(f.maxConnections, defaultConnections()), srv, g.Admin(), failed)()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	idle := g.Drain()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.grace)
	defer cancel()
	select {
	case <-idle: // until then, requests and probes get status 503
	case <-grace.Done():
	}
	if err := srv.Shutdown(grace); err != nil {
		srv.Close()
		select {
		case <-idle:
		case <-time.After(time.Second): // for the end of the log
		}
		return fmt.Errorf("requests were still in flight after %v and were cut off", f.grace)
	}
	return nil
}

// workerFlags are the flags of lorasim worker beside the scenario's.
type workerFlags struct {
	emulate.Config           // of every worker
	listen, host, api, ranks string
	ending                   string
	port, numAdapters        int
	loras                    repeated
	key                      keyFlags
}

func newWorker() *cobra.Command {
	var f workerFlags
	cmd := &cobra.Command{
		Use:   "worker [SCENARIO.yaml]",
		Short: "Serve an emulated sglang or vLLM worker, without a GPU",
		Long: `Worker serves the interfaces of sglang or vLLM with the simulator's engine behind
them, in real time or faster. Replies are made of tokens that depend only on the
prompt. Several workers listen on consecutive ports.`,
		Annotations: aliasesIn(engineNames),
		Example: `  lorasim worker --listen 127.0.0.1:30001 --profile llama-2-7b-rtx-4090-sglang-0.5
  lorasim worker --num-workers 2 --num-adapters 4          # ports 30001 and 30002, lora0 to lora3 loaded
  lorasim worker --lora chat=adapters/chat-r16 --engine-args max_loaded_loras=8
  lorasim worker --api vllm --time-scale 10                # ten times as fast`,
		Args: cobra.MaximumNArgs(1),
	}
	sf := addScenarioFlags(cmd, "cluster")
	cmd.Flags().Lookup("num-workers").DefValue = "1"
	cmd.Flags().Lookup("num-workers").Usage = "Number of workers, on consecutive ports"
	f.add(cmd)
	cmd.RunE = sf.with(func(cmd *cobra.Command, sc *scenario.Scenario) error {
		if sc.Cluster.Elastic.Given() {
			return usage(errors.New("--elastic is for simulated runs: start and stop workers yourself"))
		}
		if !sc.Cluster.NumWorkers.Given && !strings.Contains(sc.Cluster.Profile.String(), "*") {
			sc.Cluster.NumWorkers = settings.Some(1)
		}
		cfgs, err := f.configs(cmd.Context(), sc)
		if err != nil {
			return usage(err)
		}
		return f.serve(cmd, cfgs)
	})
	return cmd
}

func (f *workerFlags) add(cmd *cobra.Command) {
	f.key.add(cmd, "Server", "api-key", workerKeyEnv, "Key (bearer token) that clients must send",
		"Read the key from `file`")
	flags(cmd, "Server",
		opt(&f.listen, "listen", "127.0.0.1:30001", "Listen on `address`; port 0: any free port"),
		opt(&f.host, "host", "", "Host to listen on, as in the engines (default: that of --listen)"),
		opt(&f.port, "port", -1, "Port of the first worker, as in the engines (default: that of --listen)",
			">=0 <=65535"),
		opt(&f.api, "api", string(httpapi.SGLang), "Interface: sglang or vllm"),
		opt(&f.Speed, "time-scale", 1, "Speed of the worker's time relative to the wall clock", ">0 <=1e6"),
		opt(&f.ModelName, "served-model-name", "", "Name of the base model (default: the profile's)"),
		opt(&f.EOSEvery, "eos-every", 0,
			"Mean length of replies that do not ignore EOS, tokens (0: their limit)", ">=0 <=1e9"),
		opt(&f.StreamInterval, "stream-interval", 1, "Tokens per streamed event", ">=1 <=1e6"),
		opt(&f.ending, "on-sigterm", string(emulate.Abort),
			"End of the requests of a vLLM worker on SIGTERM: abort, error, or silence until the clients hang up"),
		opt(&f.StreamOutput, "stream-output", false, "Stream only what is new instead of the whole reply so far"))
	flags(cmd, "Adapters",
		opt(&f.loras, "lora", nil, "Adapter loaded at the start, `NAME=PATH`; PATH may end in its rank (-r16, ?rank=16); repeatable"),
		opt(&f.numAdapters, "num-adapters", 0, "Number of adapters lora0, lora1, ... loaded at the start", ">=0 <=1e6"),
		opt(&f.ranks, "lora-ranks", "", "Ranks of the adapters, used in turn (default: 8,16,32,64 as far as the profile allows)"))
}

// configs returns the configurations of the workers.
func (f *workerFlags) configs(ctx context.Context, sc *scenario.Scenario) ([]emulate.Config, error) {
	ps, err := sc.Profiles(ctx)
	if err != nil {
		return nil, err
	}
	if f.APIKey, err = f.key.readOne(ctx); err != nil {
		return nil, err
	}
	if f.API, err = httpapi.Parse(f.api, httpapi.SGLang, httpapi.VLLM); err != nil {
		return nil, fmt.Errorf("--api: %w", err)
	}
	if f.Ending, err = emulate.ParseEnding(f.ending); err != nil {
		return nil, fmt.Errorf("--on-sigterm: %w", err)
	}
	if f.Adapters, err = f.adapters(sc.Seed, ps); err != nil {
		return nil, err
	}
	f.Home = map[bool]router.Tier{true: router.Remote, false: router.Disk}[sc.Cluster.AdapterHome == "remote"]
	cfgs := make([]emulate.Config, len(ps))
	for i, p := range ps {
		cfgs[i] = f.Config
		cfgs[i].Costs = p.Compile()
	}
	return cfgs, nil
}

func (f *workerFlags) adapters(seed uint64, ps []*profile.Profile) ([]emulate.Adapter, error) {
	ranks, err := synth.ParseRanks(cmp.Or(f.ranks, scenario.DefaultRanksFor(ps)))
	if err != nil {
		return nil, fmt.Errorf("--lora-ranks: %w", err)
	}
	var as []emulate.Adapter
	named := trace.Names(f.numAdapters, ranks.For(f.numAdapters, seed))
	for _, p := range ps {
		if err := scenario.CheckRanks(p, named); err != nil {
			return nil, err
		}
	}
	for _, a := range named {
		as = append(as, emulate.Adapter{Name: a.Name, Path: a.Name, Rank: a.Rank})
	}
	for _, l := range f.loras {
		name, path, ok := strings.Cut(l, "=")
		if name == "" {
			return nil, fmt.Errorf("--lora %q: expected NAME=PATH", l)
		}
		if !ok {
			path = name
		}
		as = append(as, emulate.Adapter{Name: name, Path: path})
	}
	return as, nil
}

// serve listens until the command is interrupted. Then each worker ends as its engine does: sglang answers requests
// until there are none, vLLM does as --on-sigterm says.
func (f *workerFlags) serve(cmd *cobra.Command, cfgs []emulate.Config) error {
	ctx := cmd.Context()
	servers := make([]*http.Server, 0, len(cfgs))
	failed := make(chan error, len(cfgs))
	defer func() {
		var ends sync.WaitGroup
		for _, s := range servers {
			ends.Go(func() { f.end(context.WithoutCancel(ctx), s) })
		}
		ends.Wait()
	}()
	for i, cfg := range cfgs {
		addr, err := f.address(i)
		if err != nil {
			return usage(fmt.Errorf("--listen: %w", err))
		}
		w, err := emulate.New(cfg)
		if err != nil {
			return usage(err)
		}
		s := &http.Server{Handler: w, ReadHeaderTimeout: 10 * time.Second}
		servers = append(servers, s)
		l, err := listenTCP("--listen", addr)
		if err != nil {
			return err
		}
		if exposed(l.Addr()) && f.APIKey == "" {
			say(cmd, "other hosts can reach %s, and no key is required: give --api-key-file FILE", l.Addr())
		}
		fmt.Fprintf(cmd.OutOrStdout(), "listening on http://%s\n", l.Addr())
		go func() { failed <- s.Serve(l) }()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// end ends a worker. A second signal ends the process at once.
func (f *workerFlags) end(ctx context.Context, s *http.Server) {
	w := s.Handler.(*emulate.Worker)
	w.Drain(ctx)
	grace := ctx
	if f.Ending != emulate.Silence {
		var cancel context.CancelFunc
		grace, cancel = context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
	}
	if s.Shutdown(grace) != nil {
		s.Close()
	}
	w.Close()
}

// address returns the address of worker n: --listen, with parts replaced by --host and --port, and
// the port increased by n. Port 0 stays 0.
func (f *workerFlags) address(n int) (string, error) {
	host, port, err := net.SplitHostPort(f.listen)
	if err != nil {
		return "", err
	}
	if f.port >= 0 {
		port = strconv.Itoa(f.port)
	}
	p, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", fmt.Errorf("port %q, expected a number from 0 to 65535", port)
	}
	if p > 0 {
		p += uint64(n)
	}
	return net.JoinHostPort(cmp.Or(f.host, host), strconv.FormatUint(p, 10)), nil
}
