"""Simulated against real: a profile is calibrated on two live runs of one worker, low
rate with few adapters and high rate with many, and predicts runs at other rates,
mixes and lengths, and two workers under three policies. Where others use the machine it is not equally fast all the time:
how much slower than in the calibration it was, with one request in the batch, is told
of each run, and errors count at that speed."""

import json
import os
import re
import statistics

from harness import HERE

ENGINES = ("vllm", "sglang")
SHORT = "lognormal:prompt_mean=40,prompt_sigma=0.8,prompt_cap=400,output_mean=40,output_sigma=0.8,output_cap=200"
LONG = "lognormal:prompt_mean=120,prompt_sigma=0.6,prompt_cap=500,output_mean=25,output_sigma=0.6,output_cap=120"
# name: requests, rate, seed, adapters, popularity, lengths
RUNS = {
    "uniform": (85, 2.5, 311, 16, "uniform", SHORT),
    "low": (55, 1.5, 301, 3, "zipf:1.5", SHORT),
    "high": (95, 3, 302, 16, "zipf:1.5", SHORT),
    "one": (95, 3.5, 313, 1, "uniform", SHORT),
    "long": (85, 2.5, 314, 8, "zipf:1", LONG),
}
CALIBRATION = ("low", "high")
TWO = (80, 4, 321, 16, "zipf:1", SHORT)  # on two workers, under
POLICIES = ("static", "least-loaded", "plan-and-route:interval=3")


def workload(run):
    n, rate, seed, adapters, popularity, lengths = run
    return ["--num-prompts", str(n), "--request-rate", str(rate), "--seed", str(seed), "--num-adapters", str(adapters), "--lora-ranks", "8",
            "--popularity", popularity, "--lengths", lengths, "--max-new-tokens", "exact"]


def alone(file):
    """Mean length of the decode steps of a run that had one request in the batch."""
    tokens = []
    with open(file) as f:
        for r in map(json.loads, f):
            at = r["first_token_s"]
            tokens.append((at, r["id"], False))
            for gap in r["token_gaps_s"] or []:
                at += gap
                tokens.append((at, r["id"], True))
    tokens.sort()
    last = {r: i for i, (_, r, _) in enumerate(tokens)}
    lengths, running = [], set()
    for i, (at, r, goes_on) in enumerate(tokens):
        if goes_on and running == {r} and tokens[i - 1][1] == r:
            lengths.append(at - tokens[i - 1][0])
        running.add(r)
        if last[r] == i:
            running.remove(r)
    return sum(lengths) / len(lengths)


def scaled(profile, factor, file):
    with open(profile) as f:
        text = re.sub(r"((?:_ms|_us): )([\d.e+-]+)", lambda m: m[1] + repr(float(m[2]) * factor), f.read())
    with open(file, "w") as f:
        f.write(text)
    return file


def simulate(t, profile, run, policy="least-loaded", workers=1):
    code, stdout, stderr = t.lorasim("sim", "--profile", profile, "--num-workers", str(workers), *workload(run), "--policy", policy, "--json")
    if code != 0:
        raise RuntimeError(f"sim ended with {code}: {stderr.strip()[-300:]}")
    r = json.loads(stdout)
    return r["mean_e2e_latency_ms"], r["mean_ttft_ms"]


def measure(t, name, run, policy="least-loaded", urls=None):
    r = t.bench(policy, urls=urls, flags=["--drift", "0", *workload(run), "--records", t.file(f"{name}.jsonl")])
    t.expect(f"all requests of {name} done, not {r['completed']}", r["completed"] == run[0])
    return r["mean_e2e_latency_ms"], r["mean_ttft_ms"]


def compare(t, measured, profile):
    """The policies on two workers. One run each: differences below 20 % are noise."""
    simulated = {p: simulate(t, profile, TWO, p, 2) for p in POLICIES}
    for p in POLICIES:
        print(f"{p:22} measured: E2E {measured[p][0]:6.0f} TTFT {measured[p][1]:6.1f}  predicted: E2E {simulated[p][0]:6.0f} TTFT {simulated[p][1]:6.1f}", flush=True)
    t.fact("policies", "/".join(f"{measured[p][0]:.0f}" for p in POLICIES) + " ms, predicted " + "/".join(f"{simulated[p][0]:.0f}" for p in POLICIES))


def run(t):
    t.bench("static", requests=40, rate=8)  # an engine's first steps are slow
    policies = {p: measure(t, p.split(":")[0], TWO, p) for p in POLICIES}
    t.workers[1].stop()  # the cores are the other's and the client's
    measured = {name: measure(t, name, run, urls=t.workers[0].url) for name, run in RUNS.items()}
    records = [t.file(f"{name}.jsonl") for name in CALIBRATION]
    profile = t.file("fitted.yaml")
    code, stdout, stderr = t.lorasim("profile", "fit", "records", *records, "--holdout", "0",
                                     "--profile", os.path.join(HERE, f"profile-{t.engine}.yaml"), "--output", profile)
    if code != 0:
        raise RuntimeError(f"profile fit ended with {code}: {stderr.strip()[-300:]}")
    print(f"\n{t.engine}\n{stdout}")
    base = statistics.geometric_mean(map(alone, records))
    print(f"{'run':8} {'measured: E2E':>13} {'TTFT':>6}  {'predicted: E2E':>14} {'TTFT':>6} {'error: E2E':>10} {'TTFT':>6}  {'slower by':>9}  {'error then: E2E':>15} {'TTFT':>6}")
    for name in RUNS:
        slow = alone(t.file(f"{name}.jsonl")) / base
        m, p = measured[name], simulate(t, profile, RUNS[name])
        q = simulate(t, scaled(profile, slow, t.file("scaled.yaml")), RUNS[name])
        plain, then = [[100 * (x / y - 1) for x, y in zip(a, m)] for a in (p, q)]
        print(f"{name:8} {m[0]:13.0f} {m[1]:6.1f}  {p[0]:14.0f} {p[1]:6.1f} {plain[0]:+9.1f}% {plain[1]:+5.1f}%  {100 * (slow - 1):+8.1f}%  {then[0]:+14.1f}% {then[1]:+5.1f}%", flush=True)
        t.fact(name, f"{m[0]:.0f} ms {plain[0]:+.0f}%")
        if name not in CALIBRATION:
            t.expect(f"mean E2E of {name} within 10 %, not {then[0]:+.1f} %", abs(then[0]) <= 10)
            t.expect(f"mean TTFT of {name} within 25 %, not {then[1]:+.1f} %", abs(then[1]) <= 25)  # repeats of a run differ by as much
    compare(t, policies, profile)
