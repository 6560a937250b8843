package decisions

import (
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"

	"lorasim/router/epp"
)

// replayer runs one case, request by request.
type replayer struct {
	c       *pickerCase
	config  *epp.Config
	s       *epp.Scheduler
	servers []pickerServer
	ids     map[string]int   // indices of servers, by name
	numbers map[string]int64 // numbers of requests, by id

	eps  []epp.Endpoint // candidates of the current request
	of   []pickerServer // the servers of eps
	got  []ran          // profiles that ran
	want []ran
}

func newReplayer(c *pickerCase, config *epp.Config) *replayer {
	p := &replayer{c: c, config: config, ids: map[string]int{}, numbers: map[string]int64{}}
	p.s = epp.NewScheduler(config, epp.Options{Seed: 1, Observer: p, Choose: p.choose})
	return p
}

// pickerStep replays a request and returns the difference of its outcome, or nil.
func (p *replayer) step(n int, s *pickerStep) *Difference {
	if s.Endpoints != nil {
		p.servers = s.Endpoints
	}
	for _, id := range s.Finished {
		p.s.Ended(p.numbers[id])
	}
	p.numbers[s.Request.ID] = int64(n)
	p.want, p.got = append([]ran{s.Expect.ran}, s.Expect.Then...), nil
	got, reason := p.answer(int64(n), s)
	if reason != nil {
		got = outcome{Status: reason.Status, Error: reason.Error()}
		if len(p.got) > 0 {
			got.Filters = p.got[0].Filters
		}
	}
	if what, want, got := pickerDifference(&s.Expect, &got); what != "" {
		return &Difference{Step: n, What: what, Expected: want, Got: got}
	}
	return nil
}

// answer routes a request.
func (p *replayer) answer(id int64, s *pickerStep) (outcome, *epp.Rejection) {
	body, reason := epp.ParseBody(p.config.Dialect, s.Request.Path, epp.Compact(s.Request.Body))
	if reason != nil {
		return outcome{}, reason
	}
	h := s.Request.Headers
	model := body.Model
	for _, name := range []string{"x-gateway-model-name-rewrite", "x-llm-d-model-name-rewrite"} {
		if m := h[name]; m != "" {
			model = m
		}
	}
	if m := p.c.Rewrites[model]; m != "" {
		model = m
	}
	r := epp.Request{ID: id, Model: model, Salt: body.Salt, Prompts: body.Prompts,
		Bytes: len(epp.Compact(s.Request.Body)), Selected: h["test-epp-endpoint-selection"]}
	for _, name := range []string{"x-gateway-inference-objective", "x-llm-d-inference-objective"} {
		if o, ok := p.c.Objectives[h[name]]; ok {
			r.Priority = o
		}
	}
	p.candidates(s.Request.Subset)
	d, reason := p.s.Schedule(&r, p.eps)
	if reason != nil {
		return outcome{}, reason
	}
	p.s.Commit(&r, d)
	return p.outcome(d, body.PassedOn(p.config.Dialect, model)), nil
}

// outcome returns the picker's answer in the form of the recording.
func (p *replayer) outcome(d *epp.Decision, body []byte) outcome {
	o := outcome{Status: 200, Body: body}
	for k := range d.Results() {
		p.got[k].Picked = p.want[k].Picked
	}
	o.ran, o.Then = p.got[0], p.got[1:]
	var address string
	for k, i := range d.Results()[0].Picked {
		if k > 0 {
			address += ","
		}
		address += p.of[i].Address
	}
	o.Header = map[string]string{"x-gateway-destination-endpoint": address, "content-length": strconv.Itoa(len(body))}
	if rs := d.Results(); len(rs) > 1 {
		o.Header["x-prefiller-host-port"] = p.of[rs[1].Picked[0]].Address
	}
	o.Metadata = fmt.Appendf(nil, `{"envoy.lb":{"x-gateway-destination-endpoint":%q}}`, address)
	return o
}

// candidates sets the candidates to the servers of the subset hint, or to all servers without one.
// Ports are ignored.
func (p *replayer) candidates(subset *[]string) {
	p.eps, p.of = nil, nil
	for _, s := range p.servers {
		if subset != nil && !slices.ContainsFunc(*subset, func(a string) bool { return host(a) == host(s.Address) }) {
			continue
		}
		if _, ok := p.ids[s.Name]; !ok {
			p.ids[s.Name] = len(p.ids)
		}
		p.of = append(p.of, s)
		p.eps = append(p.eps, s.endpoint(p.ids[s.Name]))
	}
}

func host(address string) string {
	if h, _, err := net.SplitHostPort(address); err == nil {
		return h
	}
	return address
}

func (s *pickerServer) endpoint(id int) epp.Endpoint {
	e := epp.Endpoint{ID: id, Address: s.Address, Labels: s.Labels, Waiting: s.Waiting, Running: s.Running, KV: s.KV,
		RunningAdapters: distinct(s.RunningAdapters), WaitingAdapters: distinct(s.WaitingAdapters), MaxLora: s.MaxLora,
		BlockSize: s.BlockSize, NumBlocks: s.NumBlocks}
	if s.Stale {
		e.Age = math.Inf(1)
	}
	if l := s.Latency; l != nil {
		e.Latency = &epp.Latency{TTFTHeadroom: l.TTFTHeadroom, TPOTHeadroom: l.TPOTHeadroom, TTFT: l.TTFT, TPOT: l.TPOT,
			Dispatched: l.Dispatched}
	}
	return e
}

func distinct(names []string) []string {
	names = slices.Sorted(slices.Values(names))
	return slices.Compact(names)
}

// choose returns the recorded pick, so that the state stays that of the recording.
func (p *replayer) choose(_ string, left []int32) (picked []int) {
	if k := len(p.got) - 1; k < len(p.want) {
		for _, name := range p.want[k].Picked {
			for i := range p.of {
				if p.of[i].Name == name {
					picked = append(picked, i)
				}
			}
		}
	}
	if len(picked) == 0 {
		picked = append(picked, int(left[0]))
	}
	return picked
}

// Profile implements epp.Observer.
func (p *replayer) Profile(_, picker string) {
	p.got = append(p.got, ran{Picker: picker})
}

// Filtered implements epp.Observer.
func (p *replayer) Filtered(plugin string, left []int32) {
	g := &p.got[len(p.got)-1]
	f := filtered{Plugin: plugin, Kept: []string{}}
	for _, i := range left {
		f.Kept = append(f.Kept, p.of[i].Name)
	}
	slices.Sort(f.Kept)
	g.Filters = append(g.Filters, f)
}

// Scored implements epp.Observer.
func (p *replayer) Scored(plugin string, of []int32, scores []float64) {
	g := &p.got[len(p.got)-1]
	if g.Scores == nil {
		g.Scores = map[string]map[string]float64{}
	}
	g.Scores[plugin] = p.byName(of, scores)
}

func (p *replayer) byName(of []int32, values []float64) map[string]float64 {
	m := map[string]float64{}
	for k, i := range of {
		m[p.of[i].Name] = values[k]
	}
	return m
}

// Totals implements epp.Observer.
func (p *replayer) Totals(of []int32, totals []float64) {
	g := &p.got[len(p.got)-1]
	g.Totals = p.byName(of, totals)
	top := slices.Max(totals)
	matches, flight := p.s.Matches(), p.s.Flight()
	for k, i := range of {
		name := p.of[i].Name
		if totals[k] == top {
			g.Best = append(g.Best, name)
		}
		if len(matches) > 0 {
			if g.Prefix == nil {
				g.Prefix = map[string][3]int{}
			}
			g.Prefix[name] = [3]int{matches[i].Blocks, matches[i].Total, matches[i].Size}
		}
		if flight != nil {
			if g.InFlight == nil {
				g.InFlight = map[string][2]int64{}
			}
			g.InFlight[name] = [2]int64{flight.Requests(p.eps[i].ID), flight.Tokens(p.eps[i].ID)}
		}
	}
	slices.Sort(g.Best)
}
