"""dlora_period_mig loads, unloads and moves requests; replies stay the same."""

ENGINES = ("vllm", "sglang")


def run(t):
    t.judge(t.bench("dlora_period_mig:interval=1,threshold=1"))
    for name in ("moved", "loads", "unloads"):
        t.expect(f"some {name}", t.facts[name] > 0)
