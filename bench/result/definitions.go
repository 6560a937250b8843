package result

import (
	"encoding/json"
	"slices"
	"strings"

	"lorasim/sim/record"
)

// A Definition says in words how a client measures a metric; "": unknown.
type Definition string

// The definitions of the clients whose results are read.
const (
	FromSending   Definition = "from sending the request to the end of its reply, without its wait in the client"
	FirstChunk    Definition = "from sending the request to the first chunk of its reply, without its wait in the client"
	AfterFirst    Definition = "(E2E - TTFT) / (output tokens - 1) of each request"
	OverTokens    Definition = "E2E / output tokens of each request, with the first token"
	TokenIsChunk  Definition = "gaps between tokens, each in a chunk of its own"
	ByChunk       Definition = "gaps between chunks, which may hold several tokens"
	ByToken       Definition = "gaps between tokens: the gap before a chunk divided by its tokens"
	ChunkAtOnce   Definition = "gaps between tokens: 0 between tokens of one chunk"
	RequestMeans  Definition = "the mean gap of each request, weighted by its tokens"
	WholeRun      Definition = "over the time from the first request to the last reply"
	SuccessfulRun Definition = "over the time from the first to the last successful request"
)

// Differs reports whether two known definitions give different values. A token that is a chunk of its own has the same
// gap by each definition of the gaps.
func (d Definition) Differs(o Definition) bool {
	gaps := []Definition{ByChunk, ByToken, ChunkAtOnce}
	if d == TokenIsChunk && slices.Contains(gaps, o) || o == TokenIsChunk && slices.Contains(gaps, d) {
		return false
	}
	return d != "" && o != "" && d != o
}

// Definitions say how a client measures what clients measure in different ways.
type Definitions struct {
	E2E, TTFT, TPOT, ITL, Throughput Definition
}

// A Defined is a family of metrics with its definition.
type Defined struct {
	Name string // part of the metrics' JSON names
	Unit string
	Definition
}

// Known returns the known definitions.
func (d *Definitions) Known() (list []Defined) {
	for _, of := range []Defined{{"e2e_latency", "ms", d.E2E}, {"ttft", "ms", d.TTFT}, {"tpot", "ms", d.TPOT},
		{"itl", "ms", d.ITL}, {"throughput", "1/s", d.Throughput}} {
		if of.Definition != "" {
			list = append(list, of)
		}
	}
	return list
}

// Of returns the definition of a metric by its JSON name; "": none is known.
func (d *Definitions) Of(metric string) Definition {
	if strings.HasPrefix(metric, "scheduled_") { // lorasim's own
		return ""
	}
	for _, of := range d.Known() {
		if strings.Contains(metric, of.Name) {
			return of.Definition
		}
	}
	return ""
}

// jsonDefinition is the JSON form of a definition.
type jsonDefinition struct {
	Unit       string     `json:"unit"`
	Definition Definition `json:"definition"`
}

// MarshalJSON writes an object with unit and definition of each family of metrics.
func (d Definitions) MarshalJSON() ([]byte, error) {
	out := map[string]jsonDefinition{}
	for _, of := range d.Known() {
		out[of.Name] = jsonDefinition{of.Unit, of.Definition}
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads the output of MarshalJSON.
func (d *Definitions) UnmarshalJSON(text []byte) error {
	var in map[string]jsonDefinition
	err := json.Unmarshal(text, &in)
	of := func(name string) Definition { return in[name].Definition }
	*d = Definitions{of("e2e_latency"), of("ttft"), of("tpot"), of("itl"), of("throughput")}
	return err
}

// Definitions returns how the run's metrics were measured. A simulator's tokens are chunks. The live client divides
// gaps by tokens where the server counts them, as sglang's own API does.
func (r *Result) Definitions() Definitions {
	if r.Defined != (Definitions{}) || r.Source != Sim && r.Source != Live {
		return r.Defined
	}
	d := Definitions{FromSending, FirstChunk, AfterFirst, TokenIsChunk, WholeRun}
	if r.Source == Live {
		d.ITL = ByChunk
		if r.Backend == "sglang" {
			d.ITL = ByToken
		}
	}
	if r.Streamed == record.NotStreamed {
		d.TTFT, d.TPOT, d.ITL = "", "", "" // see Streamed
	}
	return d
}
