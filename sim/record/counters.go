package record

import "reflect"

// Counters counts what one worker did. A simulated engine fills it; in a live run the client and the fleet do, each
// what it knows. A result has it for each worker and, added up, for the run. The JSON names are those of the
// table of metrics (package bench/result). To add a metric, add a field here, count it, and describe it in that table.
type Counters struct {
	ColdLoads   int64   `json:"cold_loads,omitempty"`  // adapters loaded to a GPU slot; live runs do not know
	Evictions   int64   `json:"evictions,omitempty"`   // adapters evicted from a GPU slot
	Preemptions int64   `json:"retractions,omitempty"` // running requests that went back to the queue
	LoadTime    float64 `json:"load_time_s,omitempty"` // time lost to adapter loads, s
	// RepeatedTokens are KV tokens computed again after a preemption, a failure of the worker or a move of the request.
	// The live client does not see preemptions.
	RepeatedTokens int64 `json:"repeated_tokens,omitempty"`
	FailedLoads    int64 `json:"-"` // failed loads; a result has only their sum
}

// Add adds the counts of o, field by field.
func (c *Counters) Add(o *Counters) {
	to, from := reflect.ValueOf(c).Elem(), reflect.ValueOf(o).Elem()
	for i := range to.NumField() {
		switch f := to.Field(i); f.Kind() {
		case reflect.Int64:
			f.SetInt(f.Int() + from.Field(i).Int())
		case reflect.Float64:
			f.SetFloat(f.Float() + from.Field(i).Float())
		default:
			panic("record: a counter is an int64 or a float64, not " + f.Type().String())
		}
	}
}
