"""auto races beside routing and corrects the step times of its profile; its log has each
decision with the reason; replies stay the same."""

import collections
import json

ENGINES = ("vllm", "sglang")


def run(t):
    log = t.file("plans.jsonl")
    result = t.bench("auto:candidates=plan-and-route+static+least-loaded+affinity-spill,every=32", flags=["--plans", log])
    t.judge(result)
    live = result["config"]["live"]
    for name in ("races", "race_changes", "race_s"):
        t.fact(name, round(live[name], 2))
    t.expect("some races", live["races"] > 0)
    with open(log) as f:
        races = [line for line in map(json.loads, f) if line.get("msg") == "race"]
    t.expect(f"each race in the log, not {len(races)} of {live['races']}", len(races) == live["races"])
    t.expect("each decision with its reason and gains", all(r.get("chosen") and r.get("reason") and r.get("gains") for r in races))
    t.fact("chosen", "; ".join(f"{name} {n}" for name, n in collections.Counter(r.get("chosen") for r in races).items()))
    t.fact("step_time_factors", races[-1].get("step_time_factors") if races else None)
