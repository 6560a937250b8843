package synth

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"

	"lorasim/trace/internal/renewal"
	"lorasim/trace/settings"
)

// The kinds of Popularity.
const (
	Uniform  = "uniform"  // equal shares
	Zipf     = "zipf"     // share of rank i (from 1) proportional to i^-s; Param is s >= 0
	PowerLaw = "powerlaw" // adapter int(U^(1/alpha) * K), as S-LoRA draws it; Param is alpha > 0
	MAF2     = "maf2"     // the apps of the Azure Functions trace of 2021
	Explicit = "explicit" // shares proportional to Weights
)

// Popularity describes how requests are distributed over adapters. Adapter 0 is the most popular, with two
// exceptions: PowerLaw with alpha > 1 favours the last adapter, and Explicit weights may have any order.
//
// PowerLaw: alpha 1 is uniform; alpha 0.3 gives the first 20 % of the adapters 62 % of the requests.
//
// MAF2 follows the shares measured over the whole two weeks of the trace: the top 1/2/5/10/20/50 of 119 apps have
// 27/43.6/72.3/83.9/92.5/99.4 % of the invocations. Between these points the cumulative share is interpolated
// linearly in the logarithm of the rank, so that shares fall with rank. With fewer adapters than apps, app i goes to
// adapter i mod K, as in a trace mapped with stride 1. With more adapters than apps, each app is split evenly, so
// that the top x % of adapters keep the share of the top x % of apps.
type Popularity struct {
	Kind    string
	Param   float64   // Zipf: s; PowerLaw: alpha
	Weights []float64 // Explicit: one weight >= 0 per adapter
}

// popularityOptions are the options of one kind.
type popularityOptions interface{ popularity() Popularity }

type uniformOptions struct{}

func (*uniformOptions) popularity() Popularity { return Popularity{Kind: Uniform} }

type maf2Options struct{}

func (*maf2Options) popularity() Popularity { return Popularity{Kind: MAF2} }

type zipfOptions struct { // beyond 100 shares underflow
	S float64 `arg:"1" default:"0.9" check:">=0 <=100" help:"exponent: the share of rank i is proportional to i^-s"`
}

func (o *zipfOptions) popularity() Popularity { return Popularity{Kind: Zipf, Param: o.S} }

type powerLawOptions struct {
	Alpha float64 `arg:"1" default:"0.3" check:">0 <=100" help:"skew: 1 is uniform; 0.3 gives the first 20 % of the adapters 62 % of the requests"`
}

func (o *powerLawOptions) popularity() Popularity { return Popularity{Kind: PowerLaw, Param: o.Alpha} }

type explicitOptions struct {
	Weights []float64 `arg:"1" required:"yes" check:">=0" help:"weight of each adapter"`
}

func (o *explicitOptions) popularity() Popularity {
	return Popularity{Kind: Explicit, Weights: o.Weights}
}

// Check implements settings.Checker.
func (o *explicitOptions) Check(settings.Given) error {
	if len(o.Weights) > MaxAdapters {
		return fmt.Errorf("%d weights, expected at most %d", len(o.Weights), MaxAdapters)
	}
	return checkWeights(o.Weights, func(i int) string { return fmt.Sprintf("weight %d", i+1) })
}

func popularityKinds() []settings.Kind[popularityOptions] {
	return []settings.Kind[popularityOptions]{
		{Name: Uniform, Summary: "equal shares", New: func() popularityOptions { return &uniformOptions{} }},
		{Name: Zipf, Summary: "Zipf's law", New: func() popularityOptions { return &zipfOptions{} }},
		{Name: PowerLaw, Summary: "as S-LoRA draws adapters",
			New: func() popularityOptions { return &powerLawOptions{} }},
		{Name: MAF2, Summary: "the apps of the Azure Functions trace of 2021",
			New: func() popularityOptions { return &maf2Options{} }},
		{Name: Explicit, Summary: "weights", New: func() popularityOptions { return &explicitOptions{} }},
	}
}

// PopularityForms returns the forms that ParsePopularity reads.
func PopularityForms() []settings.Form { return settings.Forms(popularityKinds()) }

// ParsePopularity parses "uniform", "zipf:0.9", "powerlaw:0.3", "maf2" or "explicit:5,3,1". The number of zipf and
// powerlaw is optional.
func ParsePopularity(s string) (Popularity, error) {
	spec, err := settings.Parse("popularity", popularityKinds(), s)
	if err != nil {
		return Popularity{}, err
	}
	return spec.Value.popularity(), nil
}

// Shares returns the share of the requests of each of k adapters. The shares add up to 1.
func (p Popularity) Shares(k int) ([]float64, error) {
	if p.Kind == Explicit && len(p.Weights) != k {
		return nil, fmt.Errorf("popularity: %d weights for %d adapters, expected one for each", len(p.Weights), k)
	}
	shares := make([]float64, k)
	switch p.Kind {
	case Uniform:
		return slices.Repeat([]float64{1 / float64(k)}, k), nil
	case Zipf:
		for i := range shares {
			shares[i] = math.Pow(float64(i+1), -p.Param)
		}
	case PowerLaw:
		// P(int(U^(1/alpha) * k) <= i) = ((i+1)/k)^alpha.
		below := 0.0
		for i := range shares {
			upTo := math.Pow(float64(i+1)/float64(k), p.Param)
			shares[i], below = upTo-below, upTo
		}
	case MAF2:
		cells := max(k, maf2Apps)
		below := 0.0
		for i := range cells {
			upTo := maf2Cumulative(float64(i+1) * maf2Apps / float64(cells))
			shares[i%k] += upTo - below
			below = upTo
		}
	case Explicit:
		copy(shares, p.Weights)
	}
	return normalize(shares), nil
}

// maf2Curve holds the cumulative shares measured on the 2021 trace.
var maf2Curve = [...]struct{ rank, share float64 }{
	{1, 0.27}, {2, 0.436}, {5, 0.723}, {10, 0.839}, {20, 0.925}, {50, 0.994}, {maf2Apps, 1},
}

const maf2Apps = 119

// maf2Cumulative is the share of the top rank apps, for rank 0 to 119. Between
// whole ranks it is linear: parts of one app are equally popular.
func maf2Cumulative(rank float64) float64 {
	whole := math.Floor(rank)
	below := maf2Top(whole)
	return below + (rank-whole)*(maf2Top(whole+1)-below)
}

// maf2Top is the share of a whole number of top apps.
func maf2Top(rank float64) float64 {
	if rank < 1 {
		return 0
	}
	for i := 1; i < len(maf2Curve); i++ {
		lo, hi := maf2Curve[i-1], maf2Curve[i]
		if rank <= hi.rank {
			return lo.share + (hi.share-lo.share)*math.Log(rank/lo.rank)/math.Log(hi.rank/lo.rank)
		}
	}
	return 1
}

// Assigner returns a function that draws one of k adapters with r.
func (p Popularity) Assigner(k int, r *rand.Rand) (func() int32, error) {
	shares, err := p.Shares(k)
	if err != nil {
		return nil, err
	}
	table := newAlias(shares)
	return func() int32 { return table.draw(r) }, nil
}

// alias draws from a discrete distribution in constant time, with one random
// word per draw: Walker's alias method, with the table built as in Vose, "A
// linear algorithm for generating random numbers with a given distribution",
// IEEE TSE 17(9), 1991.
type alias []aliasCell

// aliasCell gives its own index with probability keep/2^64, else other.
type aliasCell struct {
	keep  uint64
	other int32
}

// newAlias builds the table for shares, which add up to 1.
func newAlias(shares []float64) alias {
	n := len(shares)
	cells := make(alias, n)
	scaled := make([]float64, n)
	var small, large []int32
	for i, s := range shares {
		scaled[i] = s * float64(n)
		if scaled[i] < 1 {
			small = append(small, int32(i))
		} else {
			large = append(large, int32(i))
		}
	}
	for len(small) > 0 && len(large) > 0 {
		s, l := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		cells[s] = aliasCell{keep: uint64(math.Ldexp(scaled[s], 64)), other: l}
		scaled[l] -= 1 - scaled[s]
		if scaled[l] < 1 {
			large = large[:len(large)-1]
			small = append(small, l)
		}
	}
	// What is left is 1 but for rounding.
	for _, i := range append(large, small...) {
		cells[i] = aliasCell{keep: math.MaxUint64, other: i}
	}
	return cells
}

// draw returns an index. The high word of the product picks the cell, the low
// word is uniform within it.
func (a alias) draw(r *rand.Rand) int32 {
	cell, frac := bits.Mul64(r.Uint64(), uint64(len(a)))
	if frac < a[cell].keep {
		return int32(cell)
	}
	return a[cell].other
}

// Locality makes requests repeat recent adapters. With probability P a request uses one of the last Window distinct
// adapters, all equally likely, instead of its own adapter. Its own adapter may be a recent one too, so repetitions
// are more frequent than P. Recent adapters are equally likely, so a Window > 1 makes their shares somewhat more
// equal.
type Locality struct {
	P      float64 // probability, 0 to 1; 0: no locality
	Window int     // distinct adapters, 1 to 1024 (each request searches the window)
}

// localityOptions are what ParseLocality reads.
type localityOptions struct {
	P      float64 `arg:"1" required:"yes" check:">=0 <=1" help:"probability that a request repeats a recent adapter"`
	Recent int     `arg:"2" default:"4" check:">=1 <=1024" unit:"adapters" help:"recent adapters to choose from"`
}

// LocalityForms returns the form that ParseLocality reads.
func LocalityForms() []settings.Form { return settings.FormOf[localityOptions]() }

// ParseLocality parses "0.5" (window 4), "0.5,8" (with the window) or "0" (no locality).
func ParseLocality(s string) (l Locality, err error) {
	var o localityOptions
	if _, err = settings.Decode(s, &o); err == nil && o.P > 0 {
		l = Locality{o.P, o.Recent}
	}
	return parsed("locality", s, l, err)
}

// The kinds of Sessions.
const (
	ZipfSessions = "zipf" // a fixed catalogue: adapter i (from 1) with probability proportional to i^-s
	CopySessions = "copy" // a growing catalogue: a new adapter, or the adapter of an earlier session
)

// Sessions makes requests come in sessions: runs of requests to one adapter. Sessions begin in a Poisson process.
// Each makes n requests, n geometric with mean Length, with exponential gaps. The number of sessions in progress
// decides how well few adapter slots work, far more than the popularity of the adapters; independent requests
// overstate cache misses several times over. The mean gap follows from the rate r of requests: Active sessions in
// progress make r = Active Length / ((Length-1) gap).
//
// Under CopySessions a session takes a new adapter with probability New, else the adapter of the session J before
// it. P(J = j) is proportional to (j + Offset)^-Gamma (preferential copying with an aging kernel). Once all adapters
// are used, "new" continues with the first adapter. J is at most 2^20.
//
// Defaults are those fitted to 23 days of a production image service (GenTD26 of github.com/alibaba/clusterdata).
// Active has no default: it depends on the number of users.
type Sessions struct {
	Kind   string  // "": none
	Active float64 // mean number of sessions in progress, > 0
	Length float64 // mean number of requests of a session, > 1
	Skew   float64 // ZipfSessions: exponent s >= 0
	New    float64 // CopySessions: probability of a new adapter, in (0, 1]
	Gamma  float64 // CopySessions: exponent of aging, >= 0
	Offset float64 // CopySessions: offset j0 >= 0
}

// maxCopied is how far back a session looks for an adapter to copy.
const maxCopied = 1 << 20

// sessionsOptions are the options of one kind.
type sessionsOptions interface{ sessions() Sessions }

// everySession is what all kinds have.
type everySession struct {
	M    float64 `required:"yes" check:">0 <=1e6" unit:"sessions" help:"sessions in progress on average"`
	NBar float64 `default:"4.53" check:">1 <=1e6" unit:"requests" help:"mean requests of a session"`
}

type zipfSessions struct {
	everySession
	S float64 `default:"0.9" check:">=0 <=100" help:"exponent: the share of adapter i is proportional to i^-s"`
}

func (o *zipfSessions) sessions() Sessions {
	return Sessions{Kind: ZipfSessions, Active: o.M, Length: o.NBar, Skew: o.S}
}

type copySessions struct {
	everySession
	New   float64 `key:"p_new" default:"0.363" check:">0 <=1" help:"probability that a session takes a new adapter"`
	Gamma float64 `default:"0.84" check:">=0 <=100" help:"exponent by which earlier sessions are forgotten"`
	J0    float64 `default:"11" check:">=0 <=1e9" unit:"sessions" help:"offset of the law by which earlier sessions are copied"`
}

func (o *copySessions) sessions() Sessions {
	return Sessions{Kind: CopySessions, Active: o.M, Length: o.NBar, New: o.New, Gamma: o.Gamma, Offset: o.J0}
}

func sessionsKinds() []settings.Kind[sessionsOptions] {
	return []settings.Kind[sessionsOptions]{
		{Name: ZipfSessions, Summary: "a fixed catalogue of adapters",
			New: func() sessionsOptions { return &zipfSessions{} }},
		{Name: CopySessions, Summary: "a catalogue that grows",
			New: func() sessionsOptions { return &copySessions{} }},
	}
}

// SessionsForms returns the forms that ParseSessions reads.
func SessionsForms() []settings.Form { return settings.Forms(sessionsKinds()) }

// ParseSessions parses "zipf:m=32", "zipf:m=2,nbar=4.53,s=0.9" or
// "copy:m=2.1,nbar=4.53,p_new=0.363,gamma=0.84,j0=11". An empty spec means no sessions.
func ParseSessions(spec string) (Sessions, error) {
	if strings.TrimSpace(spec) == "" {
		return Sessions{}, nil
	}
	s, err := settings.Parse("sessions", sessionsKinds(), spec)
	if err != nil {
		return Sessions{}, err
	}
	return s.Value.sessions(), nil
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

	open    items[int32] // ranks of sessions with requests to come, from item 1 on
	fresh   int32        // CopySessions: new adapters so far
	history []int32      // adapters of sessions so far, the last maxCopied of them in a ring
	started int          // sessions so far
	weights []float64    // weights[j]: sum of the weights of J = 1..j
}

// startItem is the item of the event at which the next session begins.
const startItem = 0

// newSessions begins in the steady state: with a Poisson number of sessions in
// progress. Gaps and what is left of a session are memoryless, so they are like
// new ones whose first request is a gap away.
func newSessions(law Sessions, adapters int, rate float64, rng *rand.Rand, queue *renewal.Queue) (*sessions, error) {
	s := &sessions{law: law, rng: rng, gap: law.gap(rate), between: law.Length / rate, adapters: adapters,
		weights: []float64{0}}
	s.open.add(0) // startItem is taken
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

// next returns the popularity rank of the request at the head of the queue and queues the next event of its session.
func (s *sessions) next(queue *renewal.Queue) int32 {
	e := (*queue)[0]
	if e.Item == startItem {
		queue.Replace(renewal.Event{At: e.At + s.rng.ExpFloat64()*s.between, Item: startItem})
		if s.goesOn() {
			return s.begin(e.At, queue)
		}
		return s.choose()
	}
	rank := s.open.of[e.Item]
	if s.goesOn() {
		queue.Replace(renewal.Event{At: e.At + s.rng.ExpFloat64()*s.gap, Item: e.Item})
	} else {
		queue.Pop()
		s.open.remove(e.Item)
	}
	return rank
}

// goesOn draws whether one more request follows: the number of requests is
// then geometric with mean Length.
func (s *sessions) goesOn() bool { return s.rng.Float64() >= 1/s.law.Length }

// begin opens a session whose next request is a gap after at.
func (s *sessions) begin(at float64, queue *renewal.Queue) int32 {
	rank := s.choose()
	queue.Push(renewal.Event{At: at + s.rng.ExpFloat64()*s.gap, Item: s.open.add(rank)})
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
