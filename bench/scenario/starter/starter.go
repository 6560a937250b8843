// Package starter writes a user's first scenario: a short YAML file with comments. The comments explain each key,
// state the profile's value where the file sets none, and show the commands to run next.
//
//	s, err := starter.New(ctx, starter.Answers{Workers: 6, Profile: "h100", Adapters: 100, Rate: 20})
//	err = s.Write(w, "scenario.yaml")
package starter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"lorasim/bench/scenario"
	"lorasim/internal/slots"
	"lorasim/sim/profile"
	"lorasim/trace"
	"lorasim/trace/settings"
)

// Answers describe a user's cluster and load. Zero values select the defaults.
type Answers struct {
	Workers  int         // number of workers; default 4
	Profile  string      // name or file of a profile, or a GPU ("h100"); default: the scenarios' default
	Adapters int         // number of adapters; default 32, or the adapters in Log
	Rate     float64     // requests/s of all adapters; default: RatePerWorker times Workers
	Log      string      // file of a request log or a saved workload, used instead of Rate
	Files    trace.Files // of the log
}

// Default values of [Answers].
const (
	Workers       = 4
	Adapters      = 32
	RatePerWorker = 2.5 // requests/s
)

// A Scenario is a scenario with the facts for its comments.
type Scenario struct {
	scenario.Scenario
	profile  *profile.Profile // of the workers
	kv       int64            // tokens
	requests int              // of the log
	adapters int              // of the log
	span     float64          // s, of the log
}

// New makes a scenario from the answers. It reads the log, if there is one, for its adapters and rate.
func New(ctx context.Context, a Answers) (*Scenario, error) {
	s := &Scenario{Scenario: scenario.Default()}
	s.Files = a.Files
	s.Cluster.NumWorkers = settings.Some(cmp.Or(a.Workers, Workers))
	name := cmp.Or(a.Profile, s.Cluster.Profile.String())
	if list := profile.ForGPU(a.Profile); len(list) == 1 {
		name = list[0]
	}
	if err := s.Set("profile", name); err != nil {
		return nil, err
	}
	ps, err := s.Profiles(ctx)
	if err != nil {
		return nil, err
	}
	s.profile = ps[0]
	ranks := s.Workload.LoraRanks
	if err := s.Set("lora_ranks", scenario.DefaultRanksFor(ps)); err != nil {
		return nil, err
	}
	if s.kv, err = s.profile.KVTokens(); err != nil {
		return nil, err
	}
	if a.Log != "" {
		if a.Adapters != 0 || a.Rate != 0 {
			return nil, errors.New("a log has its own adapters and rate: leave out the number of adapters and the rate")
		}
		s.Workload.File, s.Workload.LoraRanks = a.Log, ranks // the ranks of the log
		return s, s.readLog(ctx)
	}
	s.Workload.NumAdapters = settings.Some(cmp.Or(a.Adapters, Adapters))
	s.Workload.RequestRate = cmp.Or(a.Rate, RatePerWorker*float64(s.Cluster.NumWorkers.Value))
	first, err := s.First(ctx)
	if err != nil {
		return nil, err
	}
	return s, s.Check(ctx, first)
}

// readLog finds out the adapters and the rate of the log.
func (s *Scenario) readLog(ctx context.Context) error {
	in, err := s.OpenWorkload(ctx, nil)
	if err != nil {
		return err
	}
	defer in.Close()
	s.adapters = len(in.Adapters())
	for {
		r, err := in.Source.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		s.requests, s.span = s.requests+1, r.Arrival
	}
}

// Summary describes the scenario in one line.
func (s *Scenario) Summary() string {
	workers := fmt.Sprintf("%d workers (%s)", s.Cluster.NumWorkers.Value, s.Cluster.Profile)
	if s.Workload.File == "" {
		return fmt.Sprintf("%s, %d adapters, %v requests/s", workers, s.Workload.NumAdapters.Value,
			s.Workload.RequestRate)
	}
	return fmt.Sprintf("%s, %d requests for %d adapters, %s requests/s", workers, s.requests, s.adapters, s.rate())
}

// rate is the rate of the log.
func (s *Scenario) rate() string {
	if s.span == 0 {
		return "unknown"
	}
	return strconv.FormatFloat(float64(s.requests-1)/s.span, 'g', 3, 64)
}

// Write writes the scenario as YAML with comments. file is the name of the YAML file: the commands in the comments use
// it, and paths in the scenario are relative to its folder.
func (s *Scenario) Write(w io.Writer, file string) error {
	workload := s.Workload
	if file == "-" {
		file = "scenario.yaml"
	}
	if log := workload.File; log != "" && !filepath.IsAbs(log) {
		if from, err := filepath.Rel(filepath.Dir(file), log); err == nil {
			workload.File = filepath.ToSlash(from)
		}
	}
	origin := s.profile.Provenance()
	_, err := io.WriteString(w, slots.Fill(page, map[string]string{
		"file": quote(file), "workload": s.workload(&workload), "workers": line("num_workers", s.Cluster.NumWorkers,
			"engines (sglang, vLLM), each on its own GPUs"),
		"profile": line("profile", quote(s.Cluster.Profile.String()),
			fmt.Sprintf("%s: %s, %s", origin.Kind, origin.Hardware, origin.Engine)),
		"name": s.Cluster.Profile.String(), "engine": s.engine(),
		"policy": line("policy", s.Routing.Policy, "lorasim policies lists them; lorasim advise chooses one"),
	}))
	return err
}

const page = `# A scenario of lorasim. Lines that begin with "# " and a key show a default; take off the "# " to change it.
# lorasim sim {{file}}: simulate it. lorasim advise {{file}}: which policy, and how sure that is.
# lorasim help keys: all keys. Editors check this file by docs/scenario.schema.json.

workload:
{{workload}}

cluster:
{{workers}}
{{profile}}
  # The profile sets these; "lorasim profile show {{name}}" prints all of it.
  # engine:
{{engine}}

routing:
{{policy}}
`

// workload returns the lines of the workload, or of the log in its place.
func (s *Scenario) workload(w *scenario.Workload) string {
	if w.File != "" {
		return strings.Join([]string{
			line("file", quote(w.File),
				fmt.Sprintf("%d requests for %d adapters, %s requests/s", s.requests, s.adapters, s.rate())),
			line("# rate_scale", "2", "twice the traffic"),
			line("# resample", "block:60", "draw other days from the log, for confidence intervals"),
			line("# lora_ranks", `"8,16"`, "LoRA ranks, in turn, where the log has none"),
		}, "\n")
	}
	return strings.Join([]string{
		line("num_adapters", w.NumAdapters, "LoRA adapters"),
		line("lora_ranks", fmt.Sprintf("%q", w.LoraRanks), "LoRA ranks, in turn"),
		line("request_rate", w.RequestRate, "requests/s of all adapters together"),
		line("# popularity", "zipf", "share of each adapter: zipf, zipf:1.5, uniform, maf2, explicit:5,3,1, ..."),
		line("# lengths", "auto", "tokens: auto (short chats), sharegpt, azure-conv, constant:500,100, ..."),
		line("# num_prompts", "2000", "requests of a run"),
		line("# file", "log.csv", "a log of your own instead of the keys above (docs/logs.md)"),
	}, "\n")
}

// engine returns the lines of what the profile sets.
func (s *Scenario) engine() string {
	e, host := &s.profile.Engine, "no limit"
	if n := e.HostLoras(); n > 0 {
		host = strconv.Itoa(n)
	}
	return strings.Join([]string{
		line("#   max_running_requests", e.MaxRunningRequests, "requests that a worker runs at a time"),
		line("#   max_loras_per_batch", e.MaxLorasPerBatch, "adapter slots in the GPU memory of a worker"),
		line("#   max_loaded_loras", e.HostLoras(), "adapters in the host memory of a worker: "+host),
		line("#   max_lora_rank", e.MaxLoraRank, "highest rank that a worker takes"),
		line("#   kv_tokens", s.kv, "tokens of KV cache that the slots leave"),
		line("#   context_length", e.ContextLength, "longest prompt and output together, tokens"),
	}, "\n")
}

// line is a key of a section with its value and a comment, in columns.
func line(key string, value any, comment string) string {
	text := fmt.Sprintf("  %s: %v", key, value)
	return fmt.Sprintf("%-42s # %s", text, comment)
}

// quote quotes a text for YAML and a shell where it is more than a plain word.
func quote(text string) string {
	if strings.IndexFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._/:,-*=", r)
	}) < 0 && !strings.HasPrefix(text, "-") {
		return text
	}
	return strconv.Quote(text)
}
