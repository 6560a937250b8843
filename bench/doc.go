// Package bench has no code. Its folders run workloads, in the simulator or on real workers, and report the results.
//
// One run:
//
//   - [lorasim/bench/scenario]: the settings of a run, from YAML and flags, and the run in the simulator
//   - [lorasim/bench/scenario/manifest]: workers and adapters of Kubernetes manifests, and their faults
//   - [lorasim/bench/scenario/starter]: a first scenario for a cluster, with comments
//   - [lorasim/bench/run]: the driver of a run, for the simulator and the live client
//   - [lorasim/bench/result]: the schema of a run's result, its metrics and its text and JSON forms
//   - [lorasim/bench/result/records]: files with one row per request
//   - [lorasim/bench/result/series]: a run over time: queues, placements, plans, latencies
//   - [lorasim/bench/replay]: the places of requests and adapters at any time of a simulated run
//   - [lorasim/bench/result/waits]: the causes of waiting
//   - [lorasim/bench/result/importer]: results of other benchmarks: sglang, vLLM, AIPerf, GuideLLM, inference-perf
//   - [lorasim/bench/steady]: whether a run reached a steady state, and the rate that it sustains
//   - [lorasim/bench/stats]: estimates, confidence intervals, tests and verdicts
//
// What a person sees in a browser:
//
//   - [lorasim/bench/pages]: layout, styles and scripts of all pages: report, explorer, replay, fleet
//
// bench/study, many runs:
//
//   - [lorasim/bench/study/sweep]: a grid of settings, policies and seeds, stored in a folder
//   - [lorasim/bench/study/compare]: runs side by side, with a verdict
//   - [lorasim/bench/study/capacity]: the cheapest cluster that serves a workload within an SLO
//   - [lorasim/bench/study/advise]: the policy and options for a workload
//   - [lorasim/bench/study/worth]: the gain from moving requests and placing adapters
//   - [lorasim/bench/study/remedy]: the one change of a scenario that helps most
//   - [lorasim/bench/study/explain]: slow adapters, the causes, and the change that helps
//   - [lorasim/bench/study/hour]: what another fleet would have done with the requests of a gateway's log
//   - [lorasim/bench/study/tune]: the weights and thresholds of endpoint pickers that advise searches
//   - [lorasim/bench/study/report]: an HTML page with figures of runs and sweeps
//
// bench/explore, an interactive page of settings and results:
//
//   - [lorasim/bench/explore]: content of the explorer, without a server: settings, runs, attainment over rate
//   - [lorasim/bench/explore/web]: its server
//
// bench/serving, real and emulated workers:
//
//   - [lorasim/bench/serving/live]: a load generator for workers behind HTTP, routed as in the simulator
//   - [lorasim/bench/serving/fleet]: the workers' state: health, adapters, requests in flight
//   - [lorasim/bench/serving/wire]: the HTTP client of the load generator
//   - [lorasim/bench/serving/gateway]: a reverse proxy with the same routing policies
//   - [lorasim/bench/serving/extproc]: an endpoint picker for Envoy, by the same policies
//   - [lorasim/bench/serving/fleetpage]: data and server of the page of a fleet, of gateway and bench
//   - [lorasim/bench/serving/metrics]: the Prometheus metrics of gateway and picker
//   - [lorasim/bench/serving/metrics/metricstest]: compares a scrape with the table of docs/metrics.md
//   - [lorasim/bench/serving/httpapi]: the two HTTP interfaces, names of models and token counts in replies
//   - [lorasim/bench/serving/emulate]: a worker without a GPU, with the HTTP interfaces of sglang and vLLM
//   - [lorasim/bench/serving/faultworker]: a worker that misbehaves on request, for tests of clients
//   - [lorasim/bench/serving/matrix]: runs all combinations of server and client commands, one after the other
//   - [lorasim/bench/serving/bearer]: keys (bearer tokens) that a server accepts, read from files
//
// bench/fidelity, how close simulation comes to measurement:
//
//   - [lorasim/bench/fidelity/measured]: measured runs, a reader and a prediction for each format
//   - [lorasim/bench/fidelity/check]: errors of predictions, prediction intervals (profile check)
//   - [lorasim/bench/fidelity/fit]: fits the coefficients of a latency profile to measured runs (profile fit)
//   - [lorasim/bench/fidelity/decisions]: rules of schedulers and endpoint pickers against recorded decisions
package bench
