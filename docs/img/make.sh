#!/bin/sh
# Makes the pictures of docs/scenarios.md, docs/prefix.md and docs/elastic.md, and the maps of docs/migration.md, again, from the studies in scenarios/
# (some minutes; the sweeps stay in the folder given, for a look at them):
#
#   docs/img/make.sh out
#
# report.png is a view of the page that this leaves in out/report.html:
#
#   chromium --headless --hide-scrollbars --virtual-time-budget=3000 --window-size=1100,757 \
#     --screenshot=docs/img/report.png "file://$PWD/out/report.html"
set -eu
mkdir -p "${1:?usage: docs/img/make.sh OUT}"
out=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
(cd "$here/../.." && go build -o "$out/lorasim" ./cmd/lorasim)
lorasim=$out/lorasim

study() { # NAME METRIC PICTURE [KIND]
	"$lorasim" sweep "$here/../../scenarios/$1.yaml" -o "$out/$1" >"$out/$1.txt"
	"$lorasim" report "$out/$1" --no-runs --svg "$out/figures" >/dev/null
	cp "$out/figures/${4:-sweep}-$1-$2.svg" "$here/$3.svg"
}
study measured-rates mean_e2e_latency_ms measured-rates
study skew mean_ttft_ms skew
study burstiness mean_ttft_ms burstiness
study noisy-neighbour goodput.others.share noisy-neighbour
study rank-mix mean_e2e_latency_ms rank-mix
study scale mean_e2e_latency_ms scale
study sessions mean_ttft_ms sessions
study prefix mean_ttft_ms prefix
study elastic gpu-hours-diurnal_5000_0.9_affinity elastic-day
study elastic gpu-hours-flash_2000_600_3_affinity elastic-crowd
study migration-interval mean_e2e_latency_ms migration-interval
study migration-interval p99_ttft_ms migration-interval-p99
study worth-map mean_e2e_latency_ms worth-map map
study worth-map p99_ttft_ms worth-map-p99 map
"$lorasim" report "$out/migration-interval" --at migration_interval=10 --png "$out/figures" -o "$out/report.html" >/dev/null
cp "$out/figures/placement-plan-and-route.png" "$here/placement.png"
