"""A bad hour of a real worker: a burst and an adapter that becomes hot, behind a gateway with an access log, while the
metrics of the worker and of the gateway are saved every 5 s. `lorasim explain --prove` sees the log and the scrapes,
predicts one half from the other, and prints what its proof says. A refusal with a reason is an answer, too."""

import json
import os
import random
import threading
import time

import traffic
from harness import HERE, call

ENGINES = ("vllm", "sglang")
WORKERS = 1
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


def run(t):
    worker = t.workers[0]
    folder = t.file("scrapes")
    os.makedirs(folder, exist_ok=True)
    with t.gateway("gateway", "--policy", "static", urls=worker.url, adapters=traffic.LORAS) as g:
        ends = send(t, g.port, folder, {"worker0": worker.url, "gateway": g.admin})
        log = g.access
    lost = {i: end for i, end in ends.items() if end != "whole"}
    t.expect(f"every reply whole, not {dict(list(lost.items())[:3])}", not lost)
    profile = os.path.join(HERE, f"profile-{t.engine}.yaml")
    code, text, problem = t.lorasim("explain", log, folder, "--prove", "--policy", "static", "--profile", profile, "--json",
                                    "-o", t.file("hour.html"))
    t.expect(f"exit code 0, or 4 for an hour that is refused, not {code}: {problem[-300:]}", code in (0, 4))
    t.fact("requests", len(ends))
    if code not in (0, 4):
        return
    answer = json.loads(text)
    with open(t.file("answer.json"), "w") as f:
        f.write(text)
    for row in answer["proof"]["rows"]:
        measured, predicted = row["measured"], row["predicted"]
        t.fact(row["metric"], f"{measured:.0f} measured, {predicted:.0f} predicted ({100 * (predicted / measured - 1):+.1f} %)")
    t.fact("refused", "; ".join(answer.get("refused") or ["no"]))
    for change in answer.get("changes") or []:
        t.fact(change["change"], change["hour"])
