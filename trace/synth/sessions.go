package synth

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
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

// maxCopied is how far back a session looks for an adapter to copy.
const maxCopied = 1 << 20

func (s *Sessions) numbers() []number {
	ns := []number{
		{"m", &s.Active, " sessions in progress on average", ">0 <=1e6"},
		{"nbar", &s.Length, " requests a session", ">1 <=1e6"},
	}
	switch s.Kind {
	case ZipfSessions:
		return append(ns, number{"s", &s.Skew, "", ">=0 <=100"})
	case CopySessions:
		return append(ns, number{"p_new", &s.New, "", ">0 <=1"}, number{"gamma", &s.Gamma, "", ">=0 <=100"},
			number{"j0", &s.Offset, " sessions", ">=0 <=1e9"})
	}
	return ns
}

// ParseSessions reads "zipf:m=32", "zipf:m=2,nbar=4.53,s=0.9" or
// "copy:m=2.1,nbar=4.53,p_new=0.363,gamma=0.84,j0=11"; an empty spec is none.
func ParseSessions(spec string) (s Sessions, err error) {
	if strings.TrimSpace(spec) == "" {
		return s, nil
	}
	kind, list, _ := strings.Cut(spec, ":")
	s = Sessions{Kind: strings.TrimSpace(kind), Length: 4.53}
	switch s.Kind {
	case ZipfSessions:
		s.Skew = 0.9
	case CopySessions:
		s.New, s.Gamma, s.Offset = 0.363, 0.84, 11
	default:
		err = suggest.Unknown("kind", s.Kind, []string{ZipfSessions, CopySessions})
	}
	if err == nil {
		err = parseNamed(list, s.numbers())
	}
	if err != nil {
		return Sessions{}, fmt.Errorf("%q: %w", spec, err)
	}
	return s, nil
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
	pick     alias // ZipfSessions

	open    []int32   // ranks of sessions with requests to come, by item of the queue, from 1 on
	unused  []int32   // items
	fresh   int32     // CopySessions: new adapters so far
	history []int32   // adapters of sessions so far, the last maxCopied of them in a ring
	started int       // sessions so far
	weights []float64 // weights[j]: sum of the weights of J = 1..j
}

// startItem is the item of the event at which the next session begins.
const startItem = 0

// newSessions begins in the steady state: with a Poisson number of sessions in
// progress. Gaps and what is left of a session are memoryless, so they are like
// new ones whose first request is a gap away.
func newSessions(law Sessions, adapters int, rate float64, rng *rand.Rand, queue *renewal.Queue) (*sessions, error) {
	s := &sessions{law: law, rng: rng, gap: law.gap(rate), between: law.Length / rate, adapters: adapters,
		open: make([]int32, 1), weights: []float64{0}}
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
		if s.goesOn() {
			return s.begin(e.At, queue)
		}
		return s.choose()
	}
	rank := s.open[e.Item]
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

// begin opens a session whose next request is a gap after at.
func (s *sessions) begin(at float64, queue *renewal.Queue) int32 {
	rank := s.choose()
	item := int32(len(s.open))
	if n := len(s.unused); n > 0 {
		item, s.unused = s.unused[n-1], s.unused[:n-1]
		s.open[item] = rank
	} else {
		s.open = append(s.open, rank)
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
