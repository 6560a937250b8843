"""A gateway whose metrics are read every half second while
requests run: they agree with what the clients have seen and with each other."""

from harness import Scraper
from traffic import body, load

ENGINES = ("vllm", "sglang")
POLICY = "plan-and-route"


def run(t):
    with t.gateway("gateway", "--policy", POLICY) as g:
        with Scraper(g.admin + "/metrics", "lorasim_gateway_") as s:
            ends = load(t, g.port)
    n, sent = len(ends), [body(t, i) for i in ends]
    lost = {i: end for i, (end, _) in ends.items() if end != "whole"}
    t.expect(f"every reply whole, not {dict(list(lost.items())[:3])}", not lost)
    s.judge(t, "gateway")
    for name, got, want in (
            ("requests_total", s.sum("requests_total", code="200", result="complete"), n),
            ("first_byte_seconds", s.sum("first_byte_seconds_count"), n),
            ("request_duration_seconds", s.sum("request_duration_seconds_count"), n),
            ("prompt_tokens_total", s.sum("prompt_tokens_total"), sum(len(b["prompt"]) for b in sent)),
            ("generation_tokens_total", s.sum("generation_tokens_total"), sum(b["max_tokens"] for b in sent)),
            ("hits and misses", s.sum("adapter_hits_total") + s.sum("adapter_misses_total"), n),
            ("worker_up", s.sum("worker_up"), 2), ("worker_ejected", s.sum("worker_ejected"), 0),
            ("rejected_total", s.sum("rejected_total"), 0), ("panics_total", s.sum("panics_total"), 0)):
        t.expect(f"{name} {want}, not {got}", got == want)
    t.expect("requests in flight while it runs", s.peak("requests_running") > 0 and s.peak("requests_waiting") > 0)
    t.fact("scrapes", len(s.pages))
    for name in ("adapter_loads_total", "adapter_hits_total"):
        t.fact(name, round(s.sum(name)))
