"""A gateway that begins with one worker. While requests run, the other worker joins and
serves, and then the first one leaves: it takes no new requests, those in flight there
end, and each reply has the same text as undisturbed."""

import collections
import contextlib
import importlib.util
import json
import os
import subprocess
import time
import urllib.request

from harness import RATES, call, wait_for

ENGINES = ("vllm", "sglang")
_spec = importlib.util.spec_from_file_location("gateway_case", os.path.join(os.path.dirname(__file__), "45_gateway.py"))
_case = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_case)


@contextlib.contextmanager
def gateway(t, name, policy, url):
    """A gateway before one worker; its URL for operators and its port."""
    port, log = t.setup.port + 96, t.file(f"{name}.log")
    loras = [f"--lora=lora{i}={t.setup.model}/lora{i}" for i in range(_case.LORAS)]
    with open(log, "w") as f:
        g = subprocess.Popen([t.setup.lorasim, "gateway", url, "--listen", f"127.0.0.1:{port}", "--admin-listen", f"127.0.0.1:{port + 1}",
                              "--policy", policy, "--access-log", t.file(f"{name}.jsonl"), *loras], stdout=f, stderr=f)
    try:
        wait_for("the gateway to listen", lambda: "listening" in open(log).read() or g.poll() is not None, 120)
        yield port, f"http://127.0.0.1:{port + 1}"
    finally:
        g.terminate()
        t.expect("the gateway stopped as it should", g.wait(60) == 0)


def members(admin):
    return {w["url"]: w for w in json.loads(call(admin + "/admin/workers")[1])["workers"]}


def remove(admin, url):
    request = urllib.request.Request(admin + "/admin/workers", json.dumps({"url": url}).encode(), {"Content-Type": "application/json"}, method="DELETE")
    with urllib.request.urlopen(request, timeout=30) as r:
        return r.status


def run(t):
    first, second = (w.url for w in t.workers[:2])
    with gateway(t, "alone", "least-loaded", first) as (port, _):
        want = {i: text for i, (_, text) in _case.load(t, port).items()}
    for policy in ("least-loaded", "plan-and-route"):
        with gateway(t, policy, policy, first) as (port, admin):
            quarter = t.setup.requests / (t.setup.rate or RATES[t.engine]) / 4
            times = {}

            def change():
                time.sleep(quarter)
                status, text = call(admin + "/admin/workers", {"url": second}, timeout=120)
                t.expect(f"{policy}: the second worker joins, not {status} {text[:200]}", status == 200)
                time.sleep(quarter)
                t.expect(f"{policy}: the first worker is to leave", remove(admin, first) == 200)
                begun = time.monotonic()
                wait_for("the first worker to leave", lambda: first not in members(admin), 120)
                times["left"] = round(time.monotonic() - begun, 1)

            ends = _case.load(t, port, change)
            t.expect(f"{policy}: the second worker is the only one", list(members(admin)) == [second])
        with open(t.file(f"{policy}.jsonl")) as f:
            lines = [line for line in map(json.loads, f) if "url" in line]
        served = collections.Counter(line["url"] for line in lines)
        short = [line for line in lines if line.get("status") == 200 and line.get("output_tokens", 0) < 1]
        lost = {i: end for i, (end, _) in ends.items() if end != "whole"}
        wrong = [i for i, (end, text) in ends.items() if end == "whole" and text != want[i]]
        t.fact(policy, f"{served[first]} + {served[second]} requests; the first left after {times.get('left')} s")
        t.expect(f"{policy}: no request is lost, not {dict(list(lost.items())[:3])}", not lost)
        t.expect(f"{policy}: the same text as undisturbed, not {len(wrong)} others", not wrong)
        t.expect(f"{policy}: both workers served, not {dict(served)}", served[first] > 0 and served[second] > 0)
        t.expect(f"{policy}: the log has output tokens, not {short[:1]}", not short)
    t.expect("engines alive", all(w.answers() for w in t.workers))
