// Package live runs workloads against real workers. Workload, router and result are those of the simulator, but time
// is wall-clock time and the workers answer over HTTP.
//
// [Run] sends each request of the source at its time. Times count from the start of the run, not from the request
// before, so that delays do not add up. For each request the fleet picks a worker (package fleet). A goroutine sends
// the request and reads the reply to its end. Before the first byte it retries; later it continues on another worker
// if the first one fails, or if a plan moves the request (request.go). Config.Done receives the record of each
// request.
//
//	f, err := fleet.New(...)
//	err = f.Start(ctx)
//	stats, err := live.Run(ctx, live.Config{Source: w.Source(), Fleet: f, ...})
package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lorasim/bench/result"
	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/wire"
	"lorasim/router"
	"lorasim/router/push"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// A Clock counts seconds from its creation. It runs faster than the wall clock if the workers' own time does.
type Clock struct {
	start time.Time
	speed float64
}

// newClock returns a clock that starts now and runs speed times as fast as the wall clock. A speed of 0 counts as 1.
func newClock(speed float64) Clock { return Clock{time.Now(), cmp.Or(speed, 1)} }

// Now returns the seconds since the clock's creation.
func (c Clock) Now() float64 { return c.at(time.Now()) }

func (c Clock) at(t time.Time) float64 { return t.Sub(c.start).Seconds() * c.speed }

// wall is when the clock shows s seconds.
func (c Clock) wall(s float64) time.Time {
	return c.start.Add(time.Duration(s / c.speed * float64(time.Second)))
}

// A Config configures one run against live workers.
type Config struct {
	// Source yields the requests.
	Source  trace.Source
	Fleet   *fleet.Fleet // started
	Clock   Clock        // clock of the fleet
	Backend Backend      // interface of the workers
	// Done receives the record of each request. It is called for one request at a time. The record is valid only
	// during the call. Its times count from the start of the run.
	Done func(r *record.Request)
	// Output, if not nil, is called before Done with the token ids of the prompt and of the reply, as far as the
	// workers report them.
	Output func(r *record.Request, prompt, tokens []int32)
	// Text, if not nil, is called with the text of the reply to the request with the given id.
	Text func(id int64, text string)

	MaxConcurrency int  // most requests in flight; 0: no limit
	NoStream       bool // request whole replies instead of streams
	WarmUp         bool // send one request before the run, without a record
	// HonourEOS lets replies end at EOS, within the output tokens that the workload states. If it is false, replies
	// have exactly these output tokens.
	HonourEOS bool
	// KnownOutputs gives the policy the output tokens of every request in advance. It serves to determine bounds.
	KnownOutputs bool
	Seed         uint64 // seed of the random prompts
	Vocabulary   int    // prompts consist of token ids below it; 0: 32000
	Extra        []byte // further JSON fields for the body of every request, such as `"top_p": 1`

	FirstToken time.Duration // longest time from sending to the first byte; 0: no limit
	Idle       time.Duration // longest time between two reads of a stream; 0: no limit
	Total      time.Duration // longest time of a request; 0: no limit
	Retries    int           // most retries of a request before its first byte
	NoFailover bool          // a request fails if its worker does
	Move       router.Moving // which requests plans may move, and how: none, queued, recompute
	Grace      time.Duration // time for requests in flight when the run is stopped
	Patience   time.Duration // time without a worker that is up, after which the run ends; 0: 10 s

	// Push publishes new versions of adapters during the run; nil: none.
	Push *Push

	Watchers []record.Watcher // get the events of the run from the fleet, as in sim.Config

	Progress func(p Progress) // called periodically; may be nil
}

// Push publishes new versions of adapters at their times.
type Push struct {
	push.Schedule
	// Path returns the path of a version of an adapter, as workers see it. Versions count from 1, that at the start.
	Path func(a int32, version int) string
}

// A Progress states how far a run has come.
type Progress struct {
	Done, Failed, InFlight int64   // requests
	Requests               int64   // in the source; 0: not known
	Now                    float64 // time since the start, s
}

// Stats has the results of a run that its records do not contain.
type Stats struct {
	Requests                                  int64 // in the source; 0: not known
	Sent, Retries, Failovers, Moved, MovesOff int64 // MovesOff: moves that were given up
	MaybeExecuted                             int64 // retries of requests that the worker before may have executed
	Workers                                   []record.Counters
	// Lateness is the time by which requests were sent later than scheduled, s. It is measured in an open loop only.
	LatenessMean, LatenessP50, LatenessP99, LatenessMax float64
	Stopped                                             bool // the run ended before its source did
}

// client is a run under way.
type client struct {
	cfg     Config
	log     func(format string, args ...any)
	wire    *wire.Client
	targets []*http.Request // by worker, without a body
	model   string
	first   *trace.Request // read already; nil: none
	start   float64        // on the clock
	total   int64          // requests of the source; 0: not known
	runID   uint32
	extra   extraLimits     // of Config.Extra
	stop    context.Context // ends when requests in flight are to be given up
	room    chan struct{}   // closed loop: a place for each request in flight
	idle    chan booked     // to goroutines that wait for more
	wg      sync.WaitGroup

	sent, done, failed               atomic.Int64
	retries, failovers, moved, moves atomic.Int64 // moves: that came to nothing
	maybeExecuted                    atomic.Int64

	mu       sync.Mutex        // guards what finish does
	workers  []record.Counters // what each worker did, as far as the client sees it
	replies  map[*trace.Text][]reply
	lateness *result.Histogram
	lateSum  float64
	lateMax  float64
}

const defaultVocabulary = 32000

// The limits of package wire, for what it leaves to http.Transport.
const (
	maxIdle   = 1024            // idle connections to a worker
	idleLimit = 3 * time.Second // below the keep-alive timeout of uvicorn, 5 s
	maxHead   = 64 << 10        // bytes of a reply before its body
)

// NewHTTPClient returns a client for thousands of concurrent streams over kept connections. It uses a clone of base;
// nil: of the default transport.
func NewHTTPClient(base *http.Transport) *http.Client {
	if base == nil {
		base = http.DefaultTransport.(*http.Transport)
	}
	t := base.Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost, t.MaxConnsPerHost = 0, maxIdle, 0
	t.IdleConnTimeout, t.MaxResponseHeaderBytes = idleLimit, maxHead
	t.DisableCompression = true
	t.ForceAttemptHTTP2 = false
	t.WriteBufferSize, t.ReadBufferSize = 4096, 4096
	return &http.Client{Transport: t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Run sends all requests of the source. When ctx ends, Run stops sending, waits up to Config.Grace for requests in
// flight, aborts the others, and returns the results so far, with Stats.Stopped. It returns an error only if the
// configuration is invalid or the source fails; even then every request that was sent has a record.
func Run(ctx context.Context, cfg Config) (*Stats, error) {
	c, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	defer c.wire.Close()
	stop, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	defer giveUp(nil)
	c.stop = stop
	calm := context.AfterFunc(ctx, func() { giveUp(errStopped) })
	if err := c.warmUp(); err != nil {
		return nil, err
	}
	calm()
	sending, end := context.WithCancelCause(ctx)
	defer end(nil)
	if p := cfg.Push; p != nil {
		for _, a := range p.Adapters {
			cfg.Fleet.LoRAs.Track(cfg.Source.Adapters()[a].Name)
		}
	}
	c.start = cfg.Clock.Now()
	leave := c.attend(ctx, end)
	if len(cfg.Watchers) > 0 {
		defer cfg.Fleet.Watch(c.start, cfg.Watchers...)()
	}
	err = c.sendAll(sending)
	if errors.Is(context.Cause(sending), errAllDown) {
		err = fmt.Errorf("%w for %v: the rest is not sent", errAllDown, c.cfg.Patience)
	}
	c.drain(ctx, giveUp)
	leave()
	s := c.stats()
	s.Stopped = ctx.Err() != nil
	return s, err
}

func newClient(cfg Config) (*client, error) {
	if cfg.Source == nil || cfg.Fleet == nil || cfg.Done == nil {
		return nil, errors.New("live: source, fleet and receiver of the records are needed")
	}
	cfg.Vocabulary = cmp.Or(cfg.Vocabulary, defaultVocabulary)
	cfg.Patience = cmp.Or(cfg.Patience, 10*time.Second)
	cfg.Move = cmp.Or(cfg.Move, router.MoveNone)
	if cfg.Vocabulary <= lowestToken || cfg.Vocabulary > math.MaxInt32 {
		return nil, fmt.Errorf("live: a vocabulary of %d tokens, expected more than %d", cfg.Vocabulary, lowestToken)
	}
	if !slices.Contains([]router.Moving{router.MoveNone, router.MoveQueued, router.MoveRecompute}, cfg.Move) {
		return nil, fmt.Errorf("live: unknown way to move requests %q; expected none, queued or recompute", cfg.Move)
	}
	workers := cfg.Fleet.Config()
	c := &client{cfg: cfg, replies: map[*trace.Text][]reply{}, log: workers.Log, runID: uint32(time.Now().UnixNano()),
		idle:  make(chan booked),
		total: max(cfg.Source.Len(), 0), wire: wire.New(workers.Client), lateness: result.NewHistogram(11)}
	c.extra, c.workers = readExtra(cfg.Extra), make([]record.Counters, len(workers.URLs))
	if cfg.MaxConcurrency > 0 {
		c.room = make(chan struct{}, cfg.MaxConcurrency)
	}
	for w, url := range workers.URLs {
		t, err := http.NewRequest(http.MethodPost, url+cfg.Backend.path(), nil)
		if err != nil {
			return nil, fmt.Errorf("live: %w", err)
		}
		maps.Copy(t.Header, workers.Header)
		t.Header.Set("Content-Type", "application/json")
		c.targets = append(c.targets, t)
		c.model = cmp.Or(c.model, cfg.Fleet.Model(w))
	}
	return c, nil
}

// attend starts the work besides the requests: the fleet, the progress reports, and the check for a time of
// Config.Patience without a worker that is up. The function that it returns ends this work and waits for its end.
func (c *client) attend(ctx context.Context, end context.CancelCauseFunc) (leave func()) {
	ctx, quit := context.WithCancel(context.WithoutCancel(ctx))
	var others sync.WaitGroup
	others.Go(func() { c.cfg.Fleet.Run(ctx) })
	if c.cfg.Progress != nil {
		others.Go(func() { c.report(ctx) })
	}
	if c.cfg.Push != nil {
		others.Go(func() { c.push(ctx, *c.cfg.Push) })
	}
	others.Go(func() {
		if awaitAllDown(ctx, c.cfg.Fleet.Up, c.cfg.Patience) {
			end(errAllDown)
		}
	})
	return func() { quit(); others.Wait() }
}

// push publishes versions until ctx ends.
func (c *client) push(ctx context.Context, p Push) {
	published := map[int32]int{}
	for {
		a, at := p.Next()
		t := time.NewTimer(time.Until(c.cfg.Clock.wall(c.start + at)))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
		published[a]++
		name := c.cfg.Source.Adapters()[a].Name
		if _, err := c.cfg.Fleet.LoRAs.Publish(name, p.Path(a, published[a]+1)); err != nil {
			c.log("new version of adapter %s: %v", name, err)
		}
	}
}

// next is the next request of the source.
func (c *client) next() (trace.Request, error) {
	if r := c.first; r != nil {
		c.first = nil
		return *r, nil
	}
	return c.cfg.Source.Next()
}

// sendAll sends the requests of the source at their times.
func (c *client) sendAll(ctx context.Context) error {
	defer close(c.idle)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		r, err := c.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := r.Check(len(c.cfg.Source.Adapters())); err != nil {
			return fmt.Errorf("live: request %d: %w", r.ID, err)
		}
		if wait := time.Until(c.cfg.Clock.wall(c.start + r.Arrival)); wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return nil
			}
		}
		if c.room != nil {
			select {
			case c.room <- struct{}{}:
			case <-ctx.Done():
				return nil
			}
		} else if ctx.Err() != nil {
			return nil
		}
		c.launch(r)
		if err := c.cfg.Fleet.Requests.Fault(); err != nil {
			return fmt.Errorf("live: %w", err)
		}
	}
}

// booked is a request with the worker it is booked on.
type booked struct {
	j *job
	w int
}

// launch routes a request, in the order of arrival, and hands it to a goroutine. A goroutine serves one request after
// the other, so that its stack need not grow again.
func (c *client) launch(r trace.Request) {
	c.sent.Add(1)
	j := c.newJob(r)
	b := booked{j, router.None}
	if j.refused, _ = c.cfg.Fleet.Requests.Refuse(&j.fr); j.refused == "" {
		b.w = c.cfg.Fleet.Requests.Route(&j.fr)
	}
	select {
	case c.idle <- b:
	default: // none is free
		c.wg.Go(func() {
			for b, ok := b, true; ok; b, ok = <-c.idle {
				c.serve(b.j, b.w)
				if c.room != nil {
					<-c.room
				}
			}
		})
	}
}

// drain waits for the requests in flight. Once ctx has ended, it waits for the grace at most.
func (c *client) drain(ctx context.Context, giveUp context.CancelCauseFunc) {
	all := make(chan struct{})
	go func() {
		c.wg.Wait()
		close(all)
	}()
	select {
	case <-all:
		return
	case <-ctx.Done():
	}
	t := time.AfterFunc(c.cfg.Grace, func() { giveUp(errStopped) })
	defer t.Stop()
	<-all
}

// warmUp sends the first request of the source before the run, to a worker that holds its adapter. Its result is only
// logged.
func (c *client) warmUp() error {
	if !c.cfg.WarmUp {
		return nil
	}
	r, err := c.cfg.Source.Next()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	c.first = &r
	w := c.cfg.Fleet.Requests.First(r.Adapter, "")
	if w == router.None {
		return nil
	}
	warm := r
	warm.ID = -1
	j := c.newJob(warm)
	j.silent = true
	c.cfg.Fleet.Requests.Book(&j.fr, w)
	c.serve(j, w)
	if j.rec.Status != record.OK {
		c.log("the warm-up request %v: %s", j.rec.Status, j.rec.Error)
	}
	c.retries.Store(0)
	c.failovers.Store(0)
	c.maybeExecuted.Store(0)
	clear(c.workers)
	return nil
}

// finish completes the record of a request and passes it to Config.Done.
func (c *client) finish(j *job, status record.Status, reason string) {
	r := &j.rec
	r.Status, r.Error = status, reason
	r.Output = int32(j.n)
	r.Finish = max(c.cfg.Clock.at(j.last)-c.start, r.Sent)
	if status != record.OK {
		c.failed.Add(1)
	}
	if j.silent {
		return
	}
	c.done.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := j.req.Reply; t != nil && len(j.tokens) == j.n {
		c.replies[t] = append(c.replies[t], reply{j.req.Prompt, j.tokens})
	}
	if c.room == nil {
		late := max(r.Sent-r.Arrival, 0)
		c.lateness.Add(tick.FromSeconds(late), 1)
		c.lateSum += late
		c.lateMax = max(c.lateMax, late)
	}
	if c.cfg.Output != nil {
		c.cfg.Output(r, j.prompt, j.tokens)
	}
	if c.cfg.Text != nil {
		c.cfg.Text(r.ID, string(j.text))
	}
	c.cfg.Done(r)
	if len(c.cfg.Watchers) > 0 {
		c.cfg.Fleet.Ended(r)
	}
}

func (c *client) stats() *Stats {
	s := &Stats{Requests: c.total, Sent: c.sent.Load(), Retries: c.retries.Load(), Failovers: c.failovers.Load(),
		MaybeExecuted: c.maybeExecuted.Load(), Moved: c.moved.Load(),
		MovesOff: c.moves.Load(), LatenessMax: c.lateMax, Workers: c.workers}
	if n := c.lateness.Count(); n > 0 {
		s.LatenessMean = c.lateSum / float64(n)
		s.LatenessP50 = tick.Ticks(c.lateness.At((n - 1) / 2)).Seconds()
		s.LatenessP99 = tick.Ticks(c.lateness.At((n - 1) * 99 / 100)).Seconds()
	}
	return s
}

var errAllDown = errors.New("no worker has been up")

// awaitAllDown waits until no worker has been up for the time patience. It returns false if ctx ends before.
func awaitAllDown(ctx context.Context, up func() int, patience time.Duration) bool {
	last := time.Now() // when a worker was up
	for now := range fleet.Ticks(ctx, patience/50) {
		if up() > 0 {
			last = now
		} else if now.Sub(last) >= patience {
			return true
		}
	}
	return false
}

// report calls Config.Progress until ctx ends, and once more.
func (c *client) report(ctx context.Context) {
	tell := func() {
		done := c.done.Load()
		c.cfg.Progress(Progress{Done: done, Failed: c.failed.Load(), InFlight: c.sent.Load() - done, Requests: c.total,
			Now: c.cfg.Clock.Now() - c.start})
	}
	for range fleet.Ticks(ctx, 200*time.Millisecond) {
		tell()
	}
	tell()
}
