"""auto races beside routing and corrects the step times of its profile; replies stay the same."""

ENGINES = ("vllm", "sglang")


def run(t):
    result = t.bench("auto:candidates=plan-and-route+static+least-loaded+affinity-spill,every=128")
    t.judge(result)
    live = result["config"]["live"]
    for name in ("races", "race_changes", "race_s"):
        t.fact(name, round(live[name], 2))
    t.expect("some races", live["races"] > 0)
