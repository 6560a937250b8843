package metrics

import (
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"lorasim/router/promtext"
)

// A Collector adds metrics to a page when Prometheus reads it.
type Collector func(*promtext.Page)

// mostLabels is the largest number of labels of a metric that counts by itself.
const mostLabels = 4

// metric has the series of a counter or a histogram that counts by itself, one for each combination of label values.
type metric struct {
	name, help string
	labels     []string
	bounds     []float64 // of a histogram; nil: a counter

	mu     sync.RWMutex
	series map[[mostLabels]string]*counts
}

// counts is a series. Observations and reads may be concurrent.
type counts struct {
	sum     atomic.Uint64   // bits of a float64: the value of a counter, the sum of a histogram
	buckets []atomic.Uint64 // of a histogram; the last is above all bounds
}

func newMetric(name, help string, bounds []float64, labels []string) *metric {
	m := &metric{name: name, help: help, labels: labels, bounds: bounds, series: map[[mostLabels]string]*counts{}}
	if len(labels) == 0 {
		m.with() // is there from the start
	}
	return m
}

// with returns the series of label values, in the order of the labels.
func (m *metric) with(values ...string) *counts {
	var key [mostLabels]string
	copy(key[:], values)
	m.mu.RLock()
	c := m.series[key]
	m.mu.RUnlock()
	if c != nil {
		return c
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if c = m.series[key]; c == nil {
		c = &counts{}
		if m.bounds != nil {
			c.buckets = make([]atomic.Uint64, len(m.bounds)+1)
		}
		for i, v := range key {
			key[i] = strings.Clone(v) // it may be a part of a request
		}
		m.series[key] = c
	}
	return c
}

// forget drops the series whose label has a value.
func (m *metric) forget(label, value string) {
	i := slices.Index(m.labels, label)
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.series {
		if key[i] == value {
			delete(m.series, key)
		}
	}
}

// add adds to a counter.
func (c *counts) add(v float64) {
	for {
		old := c.sum.Load()
		if c.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v)) {
			return
		}
	}
}

// observe adds an observation to a histogram.
func (m *metric) observe(v float64, values ...string) {
	c := m.with(values...)
	i, _ := slices.BinarySearch(m.bounds, v)
	c.buckets[i].Add(1)
	c.add(v)
}

// collect is a [Collector].
func (m *metric) collect(p *promtext.Page) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	labels := make([]promtext.Label, len(m.labels))
	for key, c := range m.series {
		for i, name := range m.labels {
			labels[i] = promtext.Label{Name: name, Value: key[i]}
		}
		sum := math.Float64frombits(c.sum.Load())
		if m.bounds == nil {
			p.Add(promtext.Counter, m.name, m.help, sum, labels...)
			continue
		}
		buckets := make([]uint64, len(c.buckets))
		for i := range buckets {
			buckets[i] = c.buckets[i].Load()
		}
		p.AddHistogram(m.name, m.help, m.bounds, buckets, sum, labels...)
	}
}
