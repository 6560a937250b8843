package epp

import "math"

// Flight counts requests and estimated tokens in flight: those that the picker itself has sent and that have not ended.
type Flight struct {
	servers []load // by Endpoint.ID
	sent    map[int64]parts
}

// load counts what is in flight on a server.
type load struct{ requests, tokens int64 }

// parts are those of a request: one on each server that profiles picked.
type parts struct {
	n  int
	on [maxProfiles]part
}

type part struct {
	server int
	tokens int64 // 0: given back at the first token
}

// maxProfiles is the most profiles that pick a server for one request: decode, prefill.
const maxProfiles = 2

func newFlight() *Flight { return &Flight{sent: map[int64]parts{}} }

func (f *Flight) at(id int) load {
	if f == nil || id >= len(f.servers) {
		return load{}
	}
	return f.servers[id]
}

// Requests returns the number of requests in flight on a server. id is its Endpoint.ID.
func (f *Flight) Requests(id int) int64 { return f.at(id).requests }

// Tokens returns the estimated number of tokens in flight on a server. id is its Endpoint.ID.
func (f *Flight) Tokens(id int) int64 { return f.at(id).tokens }

// Open returns the number of requests in flight on all servers.
func (f *Flight) Open() int { return len(f.sent) }

// add notes that a request goes to a server.
func (f *Flight) add(request int64, server int, tokens int64) {
	for len(f.servers) <= server {
		f.servers = append(f.servers, load{})
	}
	f.servers[server].requests++
	f.servers[server].tokens += tokens
	p := f.sent[request]
	p.on[p.n] = part{server, tokens}
	p.n++
	f.sent[request] = p
}

// firstToken gives back the tokens of a request.
func (f *Flight) firstToken(request int64) {
	p, ok := f.sent[request]
	if !ok {
		return
	}
	for i := range p.n {
		f.servers[p.on[i].server].tokens -= p.on[i].tokens
		p.on[i].tokens = 0
	}
	f.sent[request] = p
}

// ended gives back a request. A request that is not in flight changes nothing.
func (f *Flight) ended(request int64) {
	f.firstToken(request)
	p := f.sent[request]
	for i := range p.n {
		f.servers[p.on[i].server].requests--
	}
	delete(f.sent, request)
}

// flightParams are the parameters of inflight-load-producer (llm-d; GIE has none).
type flightParams struct {
	AddOutput   bool    `json:"addEstimatedOutputTokens"`
	OutputRatio float64 `json:"outputRatio"`
	MaxOutput   int     `json:"maxEstimatedOutputTokens"`

	dialect Dialect
}

// tokens estimates what a request adds to a server. GIE: a quarter of the body's bytes, and 1.5 times that as output.
// llm-d: what the server is not believed to have cached.
func (p *flightParams) tokens(r *Request, m *Match, indexed bool) int64 {
	if p.dialect == GIE {
		in := max(1, int64(r.Bytes)/bytesPerToken)
		return in + int64(math.Round(1.5*float64(in)))
	}
	in := int64(r.tokens())
	if indexed {
		beyond := max(0, in-int64(m.Total*m.Size))
		in = int64((m.Total-m.Blocks)*m.Size) + beyond
	}
	if !p.AddOutput {
		return in
	}
	out := int64(math.Round(p.OutputRatio * float64(in)))
	if p.MaxOutput > 0 {
		out = min(out, int64(p.MaxOutput))
	}
	return in + out
}
