//go:build linux

package main

import (
	"fmt"
	"io"
)

// bound is the limit of a figure of a row, under every policy.
type bound struct {
	row, figure string
	low, high   float64
	text        string // required text; "": a number from low to high
}

func most(row, figure string, n float64) bound      { return bound{row, figure, 0, n, ""} }
func all(row, figure string, n float64) bound       { return bound{row, figure, n, n, ""} }
func says(row, figure, text string) bound           { return bound{row, figure, 0, 0, text} }
func within(row, figure string, l, h float64) bound { return bound{row, figure, l, h, ""} }

// bounds returns the limits that --check uses. Those for faults of one worker are limits of "lost",
// out of 2000 requests or the number that the row sends.
func bounds() []bound {
	const ejected = 40 // most requests until a worker is ejected
	list := []bound{
		all("none", "lost", 0), all("none", "executed twice", 0),
		most("kill", "lost", clientsAtOnce), all("kill-whole", "lost", 0), most("sigstop", "lost", clientsAtOnce),
		most("freeze", "lost", clientsAtOnce),
		most("hang", "lost", clientsAtOnce), most("stall", "lost", clientsAtOnce),
		most("trickle", "lost", clientsAtOnce),
		all("second", "wrong", 0), all("too-short", "lost", 0),
		all("metrics-{}", "lost", 0), all("metrics-nan", "lost", 0), all("metrics-endless", "lost", 0),
		all("metrics-gzip", "lost", 0),
		most("metrics-endless", "peak RSS, MB", 200), most("metrics-gzip", "peak RSS, MB", 200),
		most("poison", "workers killed", 2), all("poison", "lost of 40 later requests", 0),
		all("retries-0", "executed twice or more", 0), all("redirect", "requests that reached the other host", 0),
		all("places", "2 clients: lost, %", 0), all("places", "8 clients: lost, %", 0),
		all("places", "40 clients: lost, %", 0),
		most("slow-bodies", "peak RSS, MB", 100), all("slow-bodies", "lost of 100 other requests", 0),
		most("large-bodies", "peak RSS, MB", 1000), all("streams", "lost", 0), all("streams", "executed twice", 0),
		most("bogus-models", "size of /metrics, bytes", 20_000), most("bogus-models", "RSS grew by, MB", 20),
		most("long-name", "size of the answer, bytes", 10_000), all("sigterm", "ended well", 200),
		all("sigterm", "exit status", 0),
		all("half-close", "answered", 20), all("sighup", "ended well", 50), all("fds", "served", 300),
		most("idle-connections", "CLOSE_WAIT 8 s later", 10), all("smuggling", "did harm", 0),
		all("data-plane", "odd spellings that reached a worker", 0),
		most("data-plane", "workers asked for an unknown GET path", 1),
		all("data-plane", "methods of /health that passed --gateway-key without a key", 0),
		most("adapters", "slowest /health, s", 1), says("bench-counts", "bench", "ended with a result"),
		most("bench-counts", "peak RSS, MB", 200),
		all("bench-metrics", "completed", 600), all("bench-drop", "executed twice or more", 0),
		all("bench-places", "completed", 2000),
		most("rolling-base", "longest time without a reply, s", 1), all("rolling-base", "served by another adapter", 0),
		all("rolling-base", "afterwards lost, of 200 requests for the new model", 0),
		all("rolling-base", "afterwards lost, of 200 requests for adapters", 0),
		most("engine-swap", "to sglang: longest time without a reply, s", 5),
		all("engine-swap", "to sglang: served by the base model", 0),
		most("engine-swap", "to vllm: longest time without a reply, s", 5),
		all("engine-swap", "to vllm: served by the base model", 0),
		all("unhealthy", "lost", 0), all("unhealthy", "served by the worker that drains", 0),
		most("slow-start", "/health is 200 after, s", 2), most("slow-start", "four adapters served after, s", 10),
		all("unload-hangs", "requests for other adapters: lost", 0),
		all("unload-hangs", "requests for the adapter: lost", 0), most("unload-hangs", "slowest one, s", 3),
		all("two-paths", "lost", 0), all("two-paths", "replies with other weights", 0),
		most("unloadable", "loads in 5 s", 10),
	}
	// 600 of 2000 are cut if no worker is better than the others; the others must be served.
	list = append(list, most("cut-all", "lost", 700), most("cut-adapter", "lost", ejected))
	for _, row := range []string{"cut", "reset", "cut-some"} {
		list = append(list, most(row, "lost", ejected))
	}
	for _, row := range []string{"reset-first", "drop", "not-http", "cut-whole", "cut-head", "stall-head",
		"retry-after", "401", "counts", "too-long", "5xx", "5xx-half", "probes-500", "loads-refused",
		"loads-slow"} {
		list = append(list, all(row, "lost", 0))
	}
	for _, f := range faults() {
		list = append(list, says(f.name, "gateway", "alive"), within(f.name, "recovery, s", 0, 60))
	}
	return list
}

// inFlight returns the requests that may be lost beyond the bound, if a policy has all requests in
// flight on the worker that begins to cut them.
func inFlight(r *Result, b bound) float64 {
	if r.Policy == "rank-aware" && b.figure == "lost" && b.high > 0 {
		return clientsAtOnce
	}
	return 0
}

// check prints the figures beyond their bounds, and returns their number. A quick run skips
// recovery.
func check(w io.Writer, results []Result, quick bool) (missed int) {
	miss := func(r *Result, format string, args ...any) {
		missed++
		fmt.Fprintf(w, "MISSED: %s, %s: %s\n", r.Row, r.Policy, fmt.Sprintf(format, args...))
	}
	for i := range results {
		r := &results[i]
		if r.Error != "" {
			miss(r, "%s", r.Error)
		}
		for _, b := range bounds() {
			f, ok := r.of(b.figure)
			switch {
			case b.row != r.Row || !ok || quick && b.figure == "recovery, s":
			case b.text != "" && f.Text != b.text:
				miss(r, "%s is %s, expected %s", b.figure, f, b.text)
			case b.text == "" && (f.Text != "" || f.Value < b.low || f.Value > b.high+inFlight(r, b)):
				miss(r, "%s is %s, expected %v to %v", b.figure, f, b.low, b.high)
			}
		}
	}
	return missed
}
