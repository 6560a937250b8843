// Lorasim-web is the explorer as WebAssembly: the page of lorasim explore without a server. It runs
// in a Web Worker (worker.js), and sets the global object lorasim there:
//
//	lorasim.start()                    returns explore.Start as JSON
//	lorasim.run(query, event, done)    calls event with the JSON of each explore.Event
//	lorasim.replay(query, run, done)   calls done with the recording of a run of the query
//	lorasim.bench(policy, n, done)     calls done with the least time of n runs of 2000 requests, ms
//	lorasim.keep(path, bytes)          keeps a log, which queries name by its path
//
// All calls return at once. done is called once, with an error text or "", and the result if there
// is one. make web creates the folder of static files.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"runtime/debug"
	"syscall/js"
	"time"

	"lorasim/bench/explore"
	"lorasim/bench/scenario"
	"lorasim/scenarios"
	"lorasim/trace"
)

// limits are below those of a server: a browser computes one run at a time on one processor.
var limits = explore.Limits{Requests: 50_000, Workers: 64, Adapters: 2000, Places: 50_000, Seeds: 10, Work: 300_000}

func main() {
	debug.SetGCPercent(400) // runs are short, and the collector shares the one processor
	logs := explore.NewLogs()
	x := explore.New(limits, trace.Files{FS: logs})
	presets, err := explore.Presets(scenarios.Files)
	if err != nil {
		panic(err) // a fault of the embedded files
	}
	start := explore.NewStart(presets, explore.DefaultPreset().Query)
	start.Replay, start.Upload = true, true
	js.Global().Set("lorasim", map[string]any{
		"start": js.FuncOf(func(js.Value, []js.Value) any { return text(start) }),
		"run": js.FuncOf(func(_ js.Value, args []js.Value) any {
			go run(x, args[0].String(), args[1], args[2])
			return nil
		}),
		"replay": js.FuncOf(func(_ js.Value, args []js.Value) any {
			go replay(x, args[0].String(), args[1].String(), args[2])
			return nil
		}),
		"keep": js.FuncOf(func(_ js.Value, args []js.Value) any {
			data := make([]byte, args[1].Length())
			js.CopyBytesToGo(data, args[1])
			logs.Keep(args[0].String(), data)
			return nil
		}),
		"bench": js.FuncOf(func(_ js.Value, args []js.Value) any {
			go bench(args[0].String(), args[1].Int(), args[2])
			return nil
		}),
	})
	select {}
}

// text returns a value as JSON.
func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // a programming error
	}
	return string(data)
}

// words returns the text of an error, "" for nil.
func words(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func run(x *explore.Explorer, query string, event, done js.Value) {
	var q explore.Query
	err := json.Unmarshal([]byte(query), &q)
	if err == nil {
		err = x.Run(context.Background(), q, func(e explore.Event) { event.Invoke(text(e)) })
	}
	done.Invoke(words(err))
}

// replay records a run again. A Web Worker that has just started does not have the run, so that
// replay first answers the query up to the list of its runs.
func replay(x *explore.Explorer, query, id string, done js.Value) {
	var q explore.Query
	if err := json.Unmarshal([]byte(query), &q); err != nil {
		done.Invoke(words(err), "")
		return
	}
	sc, ok := x.Scenario(id)
	if !ok {
		ctx, cancel := context.WithCancel(context.Background())
		x.Run(ctx, q, func(e explore.Event) {
			if e.Kind == explore.KindRuns {
				cancel()
			}
		})
		cancel()
		if sc, ok = x.Scenario(id); !ok {
			done.Invoke(fmt.Sprintf("the query has no run %.50q", id), "")
			return
		}
	}
	data, err := x.Replay(context.Background(), &sc)
	done.Invoke(words(err), string(data))
}

// bench measures the speed of runs in this browser.
func bench(policy string, n int, done js.Value) {
	sc := scenario.Default()
	err := sc.Set("policy", policy)
	ps, profileErr := sc.Profiles(context.Background())
	err = cmp.Or(err, profileErr)
	least := time.Duration(math.MaxInt64)
	for range n {
		begun := time.Now()
		if err == nil {
			_, err = sc.Simulate(context.Background(), scenario.RunOptions{Workers: ps})
		}
		least = min(least, time.Since(begun))
	}
	done.Invoke(words(err), least.Seconds()*1000)
}
