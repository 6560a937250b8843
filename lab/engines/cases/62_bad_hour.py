"""A bad hour of a real worker: a burst and an adapter that becomes hot, behind a gateway with an access log, while the
metrics of the worker and of the gateway are saved every 5 s. `lorasim explain --prove` sees the log and the scrapes,
predicts one half from the other, and prints what its proof says. A refusal with a reason is an answer, too. The part
`changed` makes a change real: the hour is that of a worker with few adapter slots, and a worker with twice as many gets
the same requests at the same times."""

import contextlib
import json
import os
import random
import statistics
import threading
import time

import traffic
from harness import HERE, Worker, call

ENGINES = ("vllm", "sglang")
WORKERS = 1
FEW = 2  # adapter slots of the worker that is changed
SLOTS_FLAG = {"vllm": "--max-loras", "sglang": "--max-loras-per-batch"}
SECONDS = 240
RATE = {"vllm": 3, "sglang": 2}  # requests/s of one worker outside the burst
BURSTS = ((0.3, 0.38), (0.7, 0.78))  # shares of the time with twice the rate
HOT = (0.6, 0.8)  # share of the time in which one adapter gets half of the requests


def arrivals(rate, seconds):
    """Arrival times and adapters of Poisson requests."""
    r, at, found = random.Random(46), 0.0, []
    while True:
        share = at / seconds
        at += r.expovariate(rate * (2 if any(a <= share < b for a, b in BURSTS) else 1))
        if at > seconds:
            return found
        found.append((at, 5 if HOT[0] <= at / seconds < HOT[1] and r.random() < 0.5 else None))


def request(t, i, adapter):
    body = traffic.body(t, i)
    return body if adapter is None else body | {"model": f"lora{adapter}"}


def send(t, port, folder, urls):
    """Sends the requests at their times while it saves scrapes; ends by request."""
    ends, done = {}, threading.Event()

    def scrape():
        while not done.wait(5):
            for name, url in urls.items():
                status, text = call(url + "/metrics")
                if status == 200:
                    with open(os.path.join(folder, f"{name}-{1000 * time.time():.0f}.txt"), "w") as f:
                        f.write(text)

    def one(i, adapter):
        try:
            ends[i] = traffic.ask(t, port, i, request(t, i, adapter))[0]
        except Exception as e:
            ends[i] = repr(e)

    scraper = threading.Thread(target=scrape)
    scraper.start()
    threads, begun = [], time.monotonic()
    for i, (at, adapter) in enumerate(arrivals(t.setup.rate or RATE[t.engine], SECONDS)):
        time.sleep(max(0, begun + at - time.monotonic()))
        threads.append(threading.Thread(target=one, args=(i, adapter)))
        threads[-1].start()
    for x in threads:
        x.join()
    done.set()
    scraper.join()
    return ends


def serve(t, worker, name):
    """Serves the requests, and returns the gateway's access log, the folder of scrapes, and how the requests ended."""
    folder = t.file(f"{name}-scrapes")
    os.makedirs(folder, exist_ok=True)
    with t.gateway(name, "--policy", "static", urls=worker.url, adapters=traffic.LORAS) as g:
        ends = send(t, g.port, folder, {"worker0": worker.url, "gateway": g.admin})
        lost = {i: end for i, end in ends.items() if end != "whole"}
        t.fact(f"{name}: without a whole reply", len(lost))
        t.expect(f"nearly all replies whole, not {dict(list(lost.items())[:3])}", len(lost) <= 0.05 * len(ends))
        return g, folder, ends


@contextlib.contextmanager
def other_slots(t, n):
    """A worker in the place of the first one, with n adapter slots."""
    t.workers[0].stop()
    w = Worker(t.setup, t.engine, 0, flags=(SLOTS_FLAG[t.engine], str(n)))
    w.start()
    try:
        w.ready()
        yield w
    finally:
        w.stop()


def means(g):
    """Mean TTFT of the streams and mean E2E latency of all requests of a gateway, ms."""
    rows = [r for r in g.requests() if r.get("output_tokens")]
    streams = [r["first_byte_s"] for r in rows if r.get("events", 0) > 1]
    return [1000 * statistics.mean(x) for x in (streams, [r["duration_s"] for r in rows])]


def explain(t, name, g, folder, *flags):
    """The changes that lorasim predicts for an hour, None without an answer."""
    profile = os.path.join(HERE, f"profile-{t.engine}.yaml")
    code, text, problem = t.lorasim("explain", g.access, folder, "--prove", "--policy", "static", "--profile", profile,
                                    "--json", "-o", t.file(f"{name}.html"), *flags)
    t.expect(f"exit code 0, or 4 for an hour that is refused, not {code}: {problem[-300:]}", code in (0, 4))
    if code not in (0, 4):
        return None
    answer = json.loads(text)
    with open(t.file(f"{name}.json"), "w") as f:
        f.write(text)
    for row in answer["proof"]["rows"]:
        measured, predicted = row["measured"], row["predicted"]
        t.fact(f"{name}: {row['metric']}",
               f"{measured:.0f} measured, {predicted:.0f} predicted ({100 * (predicted / measured - 1):+.1f} %)")
    t.fact(f"{name}: refused", "; ".join(answer.get("refused") or ["no"]))
    return answer.get("changes") or []


def whole_hour(t):
    g, folder, ends = serve(t, t.workers[0], "hour")
    t.fact("requests", len(ends))
    for change in explain(t, "hour", g, folder) or []:
        t.fact(change["change"], change["hour"])


def changed(t):
    with other_slots(t, FEW) as w:
        before, folder, _ = serve(t, w, "few")
    # The speed of a CPU core changes more than a GPU's.
    changes = explain(t, "few", before, folder, "--max-error", "0.15")
    with other_slots(t, 2 * FEW) as w:
        after, _, _ = serve(t, w, "more")
    t.workers[0].start()
    t.workers[0].ready()
    was, became = means(before), means(after)
    t.fact(f"{FEW} slots: mean TTFT, mean E2E", "{:.0f}, {:.0f}".format(*was))
    t.fact(f"{2 * FEW} slots: mean TTFT, mean E2E", "{:.0f}, {:.0f}".format(*became))
    said = next((c for c in changes or [] if c["change"].startswith(f"{2 * FEW} adapter slots")), None)
    if said is None:
        return
    t.fact("predicted", "{mean_ttft_ms:.0f}, {mean_e2e_ms:.0f}".format(**said["hour"]))
    for i, key in enumerate(("ttft_change", "e2e_change")):
        low, high = said[key]["low"], said[key]["high"]
        t.expect(f"{key} has the sign of {low:+.2f} to {high:+.2f}, not {became[i] / was[i] - 1:+.2f}",
                 low <= 0 <= high or (became[i] - was[i]) * low > 0)


PARTS = {"hour": whole_hour, "changed": changed}


def run(t):
    for name in t.parts or PARTS:
        PARTS[name](t)
