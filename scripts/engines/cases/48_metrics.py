"""A gateway under the policy auto, whose metrics are read every half second while
requests run: they agree with what the clients have seen and with each other."""

import contextlib
import importlib.util
import os
import subprocess

from harness import Scraper, wait_for

ENGINES = ("vllm", "sglang")
_spec = importlib.util.spec_from_file_location("gateway_case", os.path.join(os.path.dirname(__file__), "45_gateway.py"))
_case = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_case)


@contextlib.contextmanager
def gateway(t):
    """A gateway under auto; its port. Its metrics are on the next one."""
    port, log = t.setup.port + 90, t.file("gateway.log")
    loras = [f"--lora=lora{i}={t.setup.model}/lora{i}" for i in range(_case.LORAS)]
    with open(log, "w") as f:
        g = subprocess.Popen([t.setup.lorasim, "gateway", "--worker-urls", t.urls, "--listen", f"127.0.0.1:{port}", "--admin-listen", f"127.0.0.1:{port + 1}",
                              "--policy", "auto:candidates=plan-and-route+static+least-loaded+affinity-spill,every=32",
                              "--access-log", t.file("access.jsonl"), *loras], stdout=f, stderr=f)
    try:
        wait_for("the gateway to listen", lambda: "listening" in open(log).read() or g.poll() is not None, 120)
        yield port
    finally:
        g.terminate()
        t.expect("the gateway stopped as it should", g.wait(60) == 0)


def run(t):
    with gateway(t) as port:
        with Scraper(f"http://127.0.0.1:{port + 1}/metrics", "lorasim_gateway_") as s:
            ends = _case.load(t, port)
    n, sent = len(ends), [_case.body(t, i) for i in ends]
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
            ("rejected_total", s.sum("rejected_total"), 0), ("panics_total", s.sum("panics_total"), 0),
            ("race_failures_total", s.sum("race_failures_total"), 0), ("race_policy_info", s.sum("race_policy_info"), 1)):
        t.expect(f"{name} {want}, not {got}", got == want)
    t.expect("requests in flight while it runs", s.peak("requests_running") > 0 and s.peak("requests_waiting") > 0)
    t.expect("races", s.sum("races_total") > 0)
    t.fact("scrapes", len(s.pages))
    for name in ("races_total", "race_changes_total", "adapter_loads_total", "adapter_hits_total"):
        t.fact(name, round(s.sum(name)))
    t.fact("policy", next((dict(of)["policy"] for (name, of), v in s.pages[-1].items() if name == s.prefix + "race_policy_info" and v == 1), None))
    for name in ("race_step_time_ratio", "race_e2e_seconds"):
        t.fact(name, {dict(of).get("from", dict(of).get("worker", "")[-5:]): round(v, 2) for (x, of), v in s.pages[-1].items() if x == s.prefix + name})
