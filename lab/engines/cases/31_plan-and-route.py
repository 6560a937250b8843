"""plan-and-route, with nothing to hold its plans back; replies stay the same."""

ENGINES = ("vllm", "sglang")


def run(t):
    t.judge(t.bench("plan-and-route:interval=2,busy=0,margin=0"))
    t.expect("some loads", t.facts["loads"] > 0)
