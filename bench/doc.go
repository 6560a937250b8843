// Package bench holds no code. Its folders run workloads, simulated or on real workers,
// and say what came out.
//
// One run:
//
//   - [lorasim/bench/scenario]: the settings of a run, from YAML and flags, and running it in the simulator
//   - [lorasim/bench/result]: the schema of a run's result, its metrics and its text and JSON forms
//   - [lorasim/bench/result/records]: files with one row per request
//   - [lorasim/bench/series]: what happened over time: queues, placements, plans, latencies
//   - [lorasim/bench/steady]: whether a run reached a steady state, and the rate that it sustains
//   - [lorasim/bench/importer]: results of other benchmarks: sglang, vLLM, AIPerf, GuideLLM, inference-perf
//
// Many runs:
//
//   - [lorasim/bench/sweep]: a grid of settings, policies and seeds, kept in a folder
//   - [lorasim/bench/compare]: runs side by side, with a verdict
//   - [lorasim/bench/capacity]: the cheapest cluster that serves a workload within an SLO
//   - [lorasim/bench/worth]: whether moving requests and placing adapters pays
//   - [lorasim/bench/report]: an HTML page with figures of runs and sweeps
//   - [lorasim/bench/stats]: estimates, confidence intervals, tests and verdicts
//
// Real and emulated workers:
//
//   - [lorasim/bench/live]: a load generator for workers behind HTTP, routed as in the simulator
//   - [lorasim/bench/live/fleet]: the workers' state: health, adapters, requests in flight
//   - [lorasim/bench/live/wire]: the HTTP client of the load generator
//   - [lorasim/bench/gateway]: a reverse proxy that routes by the same policies
//   - [lorasim/bench/emulate]: a worker without a GPU, with the HTTP interfaces of sglang and vLLM
//   - [lorasim/bench/matrix]: all combinations of server and client commands, one after the other
//
// How close simulation comes to measurement:
//
//   - [lorasim/bench/calibrate]: fits the coefficients of a latency profile to measurements
//   - [lorasim/bench/validate]: predicted and measured metrics of whole runs
//   - [lorasim/bench/validate/steps]: the simulated engines against recorded decisions of sglang and vLLM
//   - [lorasim/bench/validate/vllmruns]: predictions for measured hours of vLLM with many adapters
package bench
