//go:build linux

package main

// special is a row with figures of its own, measured under one policy or under all requested ones.
type special struct {
	name     string
	what     string
	policies bool // measured under all policies
	run      func(c *cell) error
}

func specials() []special {
	return []special{
		{name: "poison", what: "a request that kills its worker, 4 workers", run: poison},
		{name: "retries-0", what: "`--retries 0`, workers drop 30 % after executing, 600 whole replies",
			run: noRetries},
		{name: "rolling-base", what: "two vLLM workers restart with another base model, one after the other",
			policies: true, run: rollingBase},
		{name: "engine-swap", what: "a vLLM worker becomes sglang at its URL, and vLLM again", run: engineSwap},
		{name: "unhealthy", what: "`/health` of one of three workers is 503, all else is good", run: unhealthy},
		{name: "slow-start", what: "one of two workers takes 3 s for each of 6 adapters at the start", run: slowStart},
		{name: "unload-hangs", what: "an unload does not end at one of two workers", run: unloadHangs},
		{name: "two-paths", what: "two workers hold an adapter from different folders", run: twoPaths},
		{name: "unloadable", what: "no worker can load an adapter", run: unloadable},
		{name: "redirect", what: "a worker redirects to another host", run: redirected},
		{name: "places", what: "2 workers x 3 places, 8 adapters", policies: true, run: places},
		{name: "two-gateways", what: "two gateways on 2 workers x 3 places, 8 adapters", run: twoGateways},
		{name: "slow-bodies", what: "500 connections that send 209 bytes of 1 MB each", run: slowBodies},
		{name: "large-bodies", what: "bodies of 31 MB, 20 at a time", run: largeBodies},
		{name: "streams", what: "1000 streams for 60 s", run: streams},
		{name: "bogus-models", what: "100,000 unknown model names", run: bogusModels},
		{name: "long-name", what: "a model name of 1 MB", run: longName},
		{name: "hang-ups", what: "510 clients hang up in mid-stream", run: hangUps},
		{name: "half-close", what: "20 clients close their sending side, then read", run: halfClose},
		{name: "sigterm", what: "SIGTERM during 200 streams", run: sigterm},
		{name: "sighup", what: "SIGHUP during 50 streams", run: sighup},
		{name: "stderr", what: "nobody reads standard error, `--access-log -`", run: unreadLog},
		{name: "fds", what: "file descriptors used up by other clients", run: descriptors},
		{name: "idle-connections", what: "workers close 600 idle connections after a burst", run: idleConnections},
		{name: "smuggling", what: "raw requests that must be refused", run: smuggling},
		{name: "data-plane", what: "requests without a key that change or read workers", run: dataPlane},
		{name: "adapters", what: "20,000 adapters on one worker", run: manyAdapters},
		{name: "bench-counts", what: "`lorasim bench`: a worker states 4,000,000,000 tokens", run: benchCounts},
		{name: "bench-metrics", what: "`lorasim bench`, vLLM: `/metrics` is `{}` on one of three", run: benchMetrics},
		{name: "bench-cut", what: "`lorasim bench`: one of three cuts each stream", policies: true, run: benchCut},
		{name: "bench-drop", what: "`lorasim bench --retries 0`: workers drop 30 % after executing", run: benchDrop},
		{name: "bench-places", what: "`lorasim bench`: 2 workers x 3 places, 8 adapters", run: benchPlaces},
	}
}
