"""A gateway that begins with one worker. While requests run, the other worker joins and
serves, and then the first one leaves: it takes no new requests, those in flight there
end, and each reply has the same text as undisturbed."""

import collections
import json
import time
import urllib.request

from harness import RATES, call, wait_for
from traffic import load

ENGINES = ("vllm", "sglang")


def members(admin):
    return {w["url"]: w for w in json.loads(call(admin + "/admin/workers")[1])["workers"]}


def remove(admin, url):
    request = urllib.request.Request(admin + "/admin/workers", json.dumps({"url": url}).encode(), {"Content-Type": "application/json"}, method="DELETE")
    with urllib.request.urlopen(request, timeout=30) as r:
        return r.status


def run(t):
    first, second = (w.url for w in t.workers[:2])
    with t.gateway("alone", "--policy", "least-loaded", urls=first) as g:
        want = {i: text for i, (_, text) in load(t, g.port).items()}
    for policy in ("least-loaded", "plan-and-route"):
        with t.gateway(policy, "--policy", policy, urls=first) as g:
            quarter = t.setup.requests / (t.setup.rate or RATES[t.engine]) / 4
            times = {}

            def change():
                time.sleep(quarter)
                status, text = call(g.admin + "/admin/workers", {"url": second}, timeout=120)
                t.expect(f"{policy}: the second worker joins, not {status} {text[:200]}", status == 200)
                time.sleep(quarter)
                t.expect(f"{policy}: the first worker is to leave", remove(g.admin, first) == 200)
                begun = time.monotonic()
                wait_for("the first worker to leave", lambda: first not in members(g.admin), 120)
                times["left"] = round(time.monotonic() - begun, 1)

            ends = load(t, g.port, change)
            t.expect(f"{policy}: the second worker is the only one", list(members(g.admin)) == [second])
        lines = [line for line in g.requests() if "url" in line]
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
