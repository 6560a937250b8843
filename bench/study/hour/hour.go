// Package hour answers what another fleet would have done with the requests of a recorded hour. It fits a profile to
// the first half of the hour, predicts the second half, and simulates other fleets only if the prediction holds.
//
//	h, err := hour.FromAccessLog(list)
//	answer, err := hour.Explain(ctx, h, &sc, hour.Options{})
//	answer.WriteText(os.Stdout)
package hour

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"lorasim/sim/record"
	"lorasim/trace"
	"lorasim/trace/requestlog"
)

// An Hour is the requests of a fleet in some time, with their outcomes.
type Hour struct {
	Begin    time.Time        // time 0 of the requests
	Requests []record.Request // with a whole reply, by arrival; ID is the index
	Adapters []trace.Adapter  // by name
	Workers  []string         // URLs
	Asked    int              // requests for a model, with those that Left counts
	Left     []Left
	// Drawn says that the requests are drawn from metrics: their latencies are means, so only means can be compared.
	Drawn    bool
	shares   [2][]share // of drawn requests, by half
	workload trace.Workload
}

// Left counts requests that are left out, by reason.
type Left struct {
	Reason   string `json:"reason"`
	Requests int    `json:"requests"`
	Client   bool   `json:"of_the_client,omitempty"` // the request was wrong, such as an unknown adapter
}

// Limits of an hour.
const (
	leastRequests = 200  // requests from which a half shows the load
	mostLeft      = 0.05 // share of requests without a whole reply from which they are part of the problem
)

// baseModel is the name of the base model in the access log.
const baseModel = "base"

// FromAccessLog returns the hour of a gateway's access log. from and until, unless zero, cut it by arrival.
func FromAccessLog(list []requestlog.Access, from, until time.Time) (*Hour, error) {
	arrival := func(a *requestlog.Access) time.Time {
		return a.End.Add(-time.Duration(a.Duration * float64(time.Second)))
	}
	list = slices.DeleteFunc(slices.Clone(list), func(a requestlog.Access) bool {
		at := arrival(&a)
		return !from.IsZero() && at.Before(from) || !until.IsZero() && !at.Before(until)
	})
	if len(list) == 0 {
		return nil, errors.New("no request of the log is in the time that --from and --until select")
	}
	slices.SortStableFunc(list, func(a, b requestlog.Access) int { return arrival(&a).Compare(arrival(&b)) })
	h := &Hour{Begin: arrival(&list[0]), Asked: len(list)}
	workers, adapters := map[string]int32{}, map[string]int32{}
	for _, u := range urls(list) {
		workers[u] = int32(len(h.Workers))
		h.Workers = append(h.Workers, u)
	}
	for _, name := range adapterNames(list) {
		adapters[name] = int32(len(h.Adapters))
		h.Adapters = append(h.Adapters, trace.Adapter{Name: name})
	}
	for i := range list {
		a := &list[i]
		if reason := unusable(a); reason != "" {
			h.leave(reason, clientError(a.Status), 1)
			continue
		}
		index := trace.BaseModel
		if a.Adapter != baseModel {
			index = adapters[a.Adapter]
		}
		at := arrival(a).Sub(h.Begin).Seconds()
		r := record.Request{Adapter: index, Arrival: at, Sent: at, FirstToken: at + min(a.FirstByte, a.Duration),
			Finish: at + a.Duration, Prompt: a.Prompt, Output: a.Output, Requested: a.MaxTokens,
			WorkerFirst: workers[a.URL], WorkerLast: workers[a.URL], Streamed: record.Streamed}
		if a.Events <= 1 && a.Output > 1 {
			r.FirstToken, r.Streamed = r.Finish, record.NotStreamed
		}
		h.add(r)
	}
	return h, nil
}

// unusable returns why a request of the log is left out; "": it is used.
func unusable(a *requestlog.Access) string {
	switch {
	case a.Status != 200:
		return fmt.Sprintf("status %d", a.Status)
	case a.Worker < 0:
		return "no worker answered"
	case a.BrokenOff:
		return "broken off"
	case a.Output < 1:
		return "the log states no output tokens"
	case a.Prompt < 1:
		return "the log states no prompt tokens"
	}
	return ""
}

func (h *Hour) leave(reason string, client bool, n int) {
	i := slices.IndexFunc(h.Left, func(l Left) bool { return l.Reason == reason })
	if i < 0 {
		i = len(h.Left)
		h.Left = append(h.Left, Left{Reason: reason, Client: client})
	}
	h.Left[i].Requests += n
}

func (h *Hour) add(r record.Request) {
	r.ID = int64(len(h.Requests))
	h.Requests = append(h.Requests, r)
	h.workload.Adapters = h.Adapters
	h.workload.Requests = append(h.workload.Requests, trace.Request{ID: r.ID, Arrival: r.Arrival, Adapter: r.Adapter,
		Prompt: r.Prompt, Output: r.Output, MaxNew: r.Requested})
}

// urls lists the URLs of workers by their first index.
func urls(list []requestlog.Access) (names []string) {
	index := map[string]int{}
	for i := range list {
		if a := &list[i]; a.Worker >= 0 {
			if _, known := index[a.URL]; !known {
				index[a.URL] = a.Worker
				names = append(names, a.URL)
			}
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(index[a], index[b]) })
	return names
}

// adapterNames lists the adapters in natural order: a2 before a10, as operators number them.
func adapterNames(list []requestlog.Access) (names []string) {
	seen := map[string]bool{baseModel: true}
	for i := range list {
		if name := list[i].Adapter; !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	slices.SortFunc(names, natural)
	return names
}

// natural compares names so that numbers in them are in order.
func natural(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		p, q := digits(x), digits(y)
		if p > 0 && q > 0 {
			n, m := strings.TrimLeft(x[:p], "0"), strings.TrimLeft(y[:q], "0")
			if c := cmp.Or(cmp.Compare(len(n), len(m)), strings.Compare(n, m)); c != 0 {
				return c
			}
			x, y = x[p:], y[q:]
			continue
		}
		if x[0] != y[0] {
			return cmp.Compare(x[0], y[0])
		}
		x, y = x[1:], y[1:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(a, b))
}

// digits is the number of digits at the beginning of a text.
func digits(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789"))
}

// length is the time from the first arrival to the last, s.
func (h *Hour) length() float64 { return h.Requests[len(h.Requests)-1].Arrival - h.Requests[0].Arrival }

// Span returns the time of the first and of the last arrival, s since 1970.
func (h *Hour) Span() (begin, end float64) {
	begin = float64(h.Begin.UnixNano()) / 1e9
	if n := len(h.Requests); n > 0 {
		end = begin + h.Requests[n-1].Arrival
	}
	return begin, end
}

// half is the number of requests of the first half of the time.
func (h *Hour) half() int {
	middle := h.Requests[0].Arrival + h.length()/2
	i, _ := slices.BinarySearchFunc(h.Requests, middle, func(r record.Request, at float64) int {
		return cmp.Compare(r.Arrival, at)
	})
	return i
}

// leftText lists the reasons of requests that are left out.
func (h *Hour) leftText() string {
	if len(h.Left) == 0 {
		return ""
	}
	most := slices.Clone(h.Left)
	slices.SortStableFunc(most, func(a, b Left) int { return cmp.Compare(b.Requests, a.Requests) })
	var parts []string
	for _, l := range most {
		parts = append(parts, fmt.Sprintf("%s: %d", l.Reason, l.Requests))
	}
	return " (left out: " + strings.Join(parts, ", ") + ")"
}
