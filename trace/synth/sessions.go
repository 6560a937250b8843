package synth

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"strconv"
	"strings"

	"lorasim/internal/suggest"
	"lorasim/trace/internal/renewal"
)

// The kinds of Sessions.
const (
	ZipfSessions = "zipf" // a fixed catalogue: adapter i (from 1) with probability proportional to i^-s
	CopySessions = "copy" // a growing catalogue: a new adapter, or that of an earlier session
)

// Sessions makes requests come in sessions: runs of requests to one adapter.
// Sessions begin in a Poisson process; each makes n requests, n geometric with
// mean Length, with exponential gaps between them. How many are in progress on
// average decides how well few adapter slots work, far more than how popular
// each adapter is; requests drawn one by one overstate misses several times
// over. The mean gap follows from the rate r of requests: Active sessions in
// progress make r = Active Length / ((Length-1) gap).
//
// Under CopySessions a session takes a new adapter with probability New, else
// that of the session J before it, P(J = j) proportional to (j + Offset)^-Gamma
// (as in preferential copying with an aging kernel). Where the catalogue is
// used up, "new" goes on with its first adapter. J is at most 2^20.
//
// Defaults are those fitted to 23 days of a production image service (GenTD26
// of github.com/alibaba/clusterdata), except for Active, which depends on how
// many users there are and has none.
type Sessions struct {
	Kind   string  // "": none
	Active float64 // sessions in progress on average, > 0
	Length float64 // mean requests of a session, > 1
	Skew   float64 // ZipfSessions: s >= 0
	New    float64 // CopySessions: in (0, 1]
	Gamma  float64 // CopySessions: >= 0
	Offset float64 // CopySessions: j0 >= 0
}

var sessionKinds = []string{ZipfSessions, CopySessions}

// maxCopied is how far back a session looks for an adapter to copy.
const maxCopied = 1 << 20

// sessionParam is one NAME=VALUE of a spec.
type sessionParam struct {
	name string
	at   *float64
	ok   func(x float64) bool
	want string
}

func (s *Sessions) params() []sessionParam {
	ps := []sessionParam{
		{"m", &s.Active, func(x float64) bool { return x > 0 && x <= 1e6 }, "the sessions in progress on average, > 0 to 1e6"},
		{"nbar", &s.Length, func(x float64) bool { return x > 1 && x <= 1e6 }, "the mean requests of a session, > 1 to 1e6"},
	}
	switch s.Kind {
	case ZipfSessions:
		ps = append(ps, sessionParam{"s", &s.Skew, func(x float64) bool { return x >= 0 && x <= 100 }, "the exponent, 0 to 100"})
	case CopySessions:
		ps = append(ps,
			sessionParam{"p_new", &s.New, func(x float64) bool { return x > 0 && x <= 1 }, "the probability of a new adapter, > 0 to 1"},
			sessionParam{"gamma", &s.Gamma, func(x float64) bool { return x >= 0 && x <= 100 }, "the exponent, 0 to 100"},
			sessionParam{"j0", &s.Offset, func(x float64) bool { return x >= 0 && x <= 1e9 }, "the offset, 0 to 1e9"})
	}
	return ps
}

// ParseSessions reads "zipf:m=32", "zipf:m=2,nbar=4.53,s=0.9" or
// "copy:m=2.1,nbar=4.53,p_new=0.363,gamma=0.84,j0=11"; an empty spec is none.
func ParseSessions(spec string) (Sessions, error) {
	if strings.TrimSpace(spec) == "" {
		return Sessions{}, nil
	}
	s, err := parseSessions(spec)
	if err != nil {
		return Sessions{}, fmt.Errorf("%q: %w", spec, err)
	}
	return s, nil
}

func parseSessions(spec string) (Sessions, error) {
	kind, list, _ := strings.Cut(spec, ":")
	s := Sessions{Kind: strings.TrimSpace(kind), Length: 4.53, Skew: 0.9, New: 0.363, Gamma: 0.84, Offset: 11}
	switch s.Kind {
	case ZipfSessions:
		s.New, s.Gamma, s.Offset = 0, 0, 0
	case CopySessions:
		s.Skew = 0
	default:
		return s, suggest.Unknown("kind", s.Kind, sessionKinds)
	}
	params := s.params()
	given := map[string]bool{}
	for _, item := range strings.Split(list, ",") {
		name, value, _ := strings.Cut(item, "=")
		name = strings.TrimSpace(name)
		k := 0
		for k < len(params) && params[k].name != name {
			k++
		}
		if k == len(params) {
			return s, suggest.Unknown("parameter", name, names(params))
		}
		if given[name] {
			return s, fmt.Errorf("%s is given twice", name)
		}
		given[name] = true
		x, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			return s, fmt.Errorf("%s is %q, expected %s", name, value, params[k].want)
		}
		*params[k].at = x
	}
	return s, s.Check()
}

func names(params []sessionParam) []string {
	list := make([]string, len(params))
	for i, p := range params {
		list[i] = p.name
	}
	return list
}

// String returns the spec that ParseSessions reads.
func (s Sessions) String() string {
	if s.Kind == "" {
		return ""
	}
	var list []string
	for _, p := range s.params() {
		list = append(list, p.name+"="+strconv.FormatFloat(*p.at, 'g', -1, 64))
	}
	return s.Kind + ":" + strings.Join(list, ",")
}

// Check says what is wrong with s, or nil.
func (s Sessions) Check() error {
	switch s.Kind {
	case "":
		return nil
	case ZipfSessions, CopySessions:
	default:
		return suggest.Unknown("kind", s.Kind, sessionKinds)
	}
	for _, p := range s.params() {
		if !p.ok(*p.at) {
			return fmt.Errorf("%s is %v, expected %s", p.name, *p.at, p.want)
		}
	}
	return nil
}

// gap is the mean time between two requests of a session, s, where requests
// come at the given rate.
func (s Sessions) gap(rate float64) float64 { return s.Active * s.Length / ((s.Length - 1) * rate) }

// sessions is the state of a Sessions law.
type sessions struct {
	law      Sessions
	rng      *rand.Rand
	gap      float64 // mean, operational s
	between  float64 // mean time between sessions' starts, operational s
	adapters int
	pick     *alias // ZipfSessions

	open    []openSession // by item of the queue, from 1 on
	unused  []int32
	fresh   int32     // CopySessions: new adapters so far
	history []int32   // adapters of sessions so far, the last maxCopied of them in a ring
	started int       // sessions so far
	weights []float64 // weights[j]: sum of the weights of J = 1..j
}

// openSession is a session with requests to come.
type openSession struct{ rank int32 }

// startItem is the item of the event at which the next session begins.
const startItem = 0

// newSessions begins in the steady state: with a Poisson number of sessions in
// progress. Gaps and what is left of a session are memoryless, so they are like
// new ones whose first request is a gap away.
func newSessions(law Sessions, adapters int, rate float64, rng *rand.Rand, queue *renewal.Queue) (*sessions, error) {
	s := &sessions{law: law, rng: rng, gap: law.gap(rate), between: law.Length / rate, adapters: adapters,
		open: make([]openSession, 1), weights: []float64{0}}
	if law.Kind == ZipfSessions {
		shares, err := Popularity{Kind: Zipf, Param: law.Skew}.Shares(adapters)
		if err != nil {
			return nil, err
		}
		s.pick = newAlias(shares)
	}
	// the number in progress: arrivals within Active of a Poisson process of rate 1
	for t := rng.ExpFloat64(); t < law.Active; t += rng.ExpFloat64() {
		s.begin(0, queue)
	}
	queue.Push(renewal.Event{At: rng.ExpFloat64() * s.between, Item: startItem})
	return s, nil
}

// next returns the popularity rank of the request at the head of the queue and
// puts what follows it into the queue.
func (s *sessions) next(queue *renewal.Queue) int32 {
	e := (*queue)[0]
	if e.Item == startItem {
		queue.Replace(renewal.Event{At: e.At + s.rng.ExpFloat64()*s.between, Item: startItem})
		return s.beginAt(e.At, queue)
	}
	rank := s.open[e.Item].rank
	if s.goesOn() {
		queue.Replace(renewal.Event{At: e.At + s.rng.ExpFloat64()*s.gap, Item: e.Item})
	} else {
		queue.Pop()
		s.unused = append(s.unused, e.Item)
	}
	return rank
}

// goesOn draws whether one more request follows: the number of requests is
// then geometric with mean Length.
func (s *sessions) goesOn() bool { return s.rng.Float64() >= 1/s.law.Length }

// beginAt begins a session with a request at time at and returns its rank.
func (s *sessions) beginAt(at float64, queue *renewal.Queue) int32 {
	if s.goesOn() {
		return s.begin(at, queue)
	}
	return s.choose()
}

// begin opens a session whose next request is a gap after at.
func (s *sessions) begin(at float64, queue *renewal.Queue) int32 {
	rank := s.choose()
	item := int32(len(s.open))
	if n := len(s.unused); n > 0 {
		item, s.unused = s.unused[n-1], s.unused[:n-1]
		s.open[item].rank = rank
	} else {
		s.open = append(s.open, openSession{rank})
	}
	queue.Push(renewal.Event{At: at + s.rng.ExpFloat64()*s.gap, Item: item})
	return rank
}

// choose draws the popularity rank of a new session's adapter.
func (s *sessions) choose() int32 {
	if s.pick != nil {
		return s.pick.draw(s.rng)
	}
	rank := int32(0)
	if s.started == 0 || s.rng.Float64() < s.law.New {
		rank = s.fresh % int32(s.adapters)
		s.fresh++
	} else {
		rank = s.history[(s.started-s.back())%maxCopied]
	}
	if s.started < maxCopied {
		s.history = append(s.history, rank)
		j := float64(s.started + 1)
		s.weights = append(s.weights, s.weights[s.started]+math.Pow(j+s.law.Offset, -s.law.Gamma))
	} else {
		s.history[s.started%maxCopied] = rank
	}
	s.started++
	return rank
}

// back draws J, how many sessions ago the one to copy began.
func (s *sessions) back() int {
	n := min(s.started, maxCopied)
	u := s.rng.Float64() * s.weights[n]
	return 1 + sort.Search(n-1, func(j int) bool { return s.weights[j+1] > u })
}
