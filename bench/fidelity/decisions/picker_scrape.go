package decisions

import (
	"encoding/json"
	"reflect"

	"lorasim/router/epp"
	"lorasim/router/epp/scrape"
)

// read is the metrics that the picker read from a scrape.
type read struct {
	pickerMetrics
	Updated bool `json:"updated"`
}

// scrapeCase compares the metrics read from a scrape.
func scrapeCase(l *pickerCase) Case {
	c := Case{Steps: 1}
	var want read
	if err := json.Unmarshal(l.Expect, &want); err != nil {
		c.FirstDifference = &Difference{What: "expect", Got: err.Error()}
		return c
	}
	families, err := scrape.Parse(l.Text)
	if err != nil {
		c.FirstDifference = &Difference{What: "text", Expected: "metrics", Got: err.Error()}
		return c
	}
	var e epp.Endpoint
	updated, _ := scrape.Update(&e, families, scrape.Engine(*l.Engine))
	got := read{pickerMetrics{e.Waiting, e.Running, e.KV, e.RunningAdapters, e.WaitingAdapters, e.MaxLora, e.BlockSize,
		e.NumBlocks}, updated}
	for _, r := range []*read{&want, &got} {
		if len(r.RunningAdapters) == 0 {
			r.RunningAdapters = nil
		}
		if len(r.WaitingAdapters) == 0 {
			r.WaitingAdapters = nil
		}
	}
	if !reflect.DeepEqual(want, got) {
		c.FirstDifference = &Difference{What: "scrape", Expected: want, Got: got}
	}
	return c
}
