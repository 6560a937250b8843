"""The reference of all other runs: every adapter stays where it is."""

ENGINES = ("vllm", "sglang")


def run(t):
    result = t.bench("static")
    t.setup.references[t.engine] = result["replies"]
    t.judge(result)
