"""A gateway with default flags before both workers. One is killed with -9 and started
again, then one hangs for 20 s (SIGSTOP): what had no byte yet goes on elsewhere,
streams that had begun end with an error event, and both serve again afterwards."""

import collections
import contextlib
import http.client
import json
import random
import signal
import subprocess
import threading
import time

from harness import RATES, call, wait_for

ENGINES = ("vllm", "sglang")
LORAS = 8


def body(t, i):
    """A request, every second one streamed."""
    r = random.Random(i)
    return {"model": f"lora{min(LORAS, int(r.paretovariate(0.7))) - 1}", "prompt": [r.randrange(10, 1900) for _ in range(r.randrange(10, 100))],
            "max_tokens": r.randrange(20, 60), "temperature": 0, "ignore_eos": True, "stream": i % 2 == 0}


def ask(t, port, i):
    """How a request ended, and its text."""
    c, data, broken = http.client.HTTPConnection("127.0.0.1", port, timeout=300), b"", False
    try:
        c.request("POST", "/v1/completions", json.dumps(body(t, i)), {"Content-Type": "application/json"})
        r = c.getresponse()
        try:
            while part := r.read1(1 << 16):
                data += part
        except (http.client.HTTPException, OSError):
            broken = True
    finally:
        c.close()
    if r.status != 200:
        return f"status {r.status}", ""
    if i % 2:
        return ("broken" if broken else "whole"), "" if broken else json.loads(data)["choices"][0]["text"]
    events = [e.removeprefix(b"data: ") for e in data.split(b"\n\n")]
    if any(e.startswith(b'{"error"') for e in events):
        return "told", ""
    if broken or b"[DONE]" not in events:
        return "broken", ""
    return "whole", "".join(c["text"] for e in events if e.startswith(b"{") for c in json.loads(e)["choices"])


def load(t, port, meanwhile=None):
    """Sends the requests at the rate; ends by request."""
    n, rate, ends = t.setup.requests, t.setup.rate or RATES[t.engine], {}

    def one(i):
        try:
            ends[i] = ask(t, port, i)
        except Exception as e:
            ends[i] = repr(e), ""

    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)] + ([threading.Thread(target=meanwhile)] if meanwhile else [])
    for k, x in enumerate(reversed(threads)):  # the disturbance first
        x.start()
        time.sleep(1 / rate if k else 0)
    for x in threads:
        x.join()
    return ends


@contextlib.contextmanager
def gateway(t, name):
    port, log = t.setup.port + 94, t.file(f"{name}.log")
    loras = [f"--lora=lora{i}={t.setup.model}/lora{i}" for i in range(LORAS)]
    with open(log, "w") as f:
        g = subprocess.Popen([t.setup.lorasim, "gateway", "--worker-urls", t.urls, "--listen", f"127.0.0.1:{port}", "--admin-listen", f"127.0.0.1:{port + 1}",
                              "--access-log", t.file(f"{name}.jsonl"), *loras], stdout=f, stderr=f)
    try:
        wait_for("the gateway to listen", lambda: "listening" in open(log).read() or g.poll() is not None, 120)
        yield port
    finally:
        g.terminate()
        t.expect("the gateway stopped as it should", g.wait(60) == 0)


def serves(t, port, mark):
    """Sends requests until the disturbed worker serves one; s."""
    begun = time.monotonic()
    wait_for("the worker to serve again", lambda: [ask(t, port, i) for i in range(4)] and t.workers[1].served(mark) > 0, 120)
    return round(time.monotonic() - begun, 1)


def disturb(t, name, want, strike, after=lambda: None):
    """A run with a disturbance."""
    with gateway(t, name) as port:
        quarter = t.setup.requests / (t.setup.rate or RATES[t.engine]) / 4
        ends = load(t, port, lambda: (time.sleep(quarter), strike()))
        after()
        mark = t.workers[1].mark()
        back = serves(t, port, mark)
        metrics = call(f"http://127.0.0.1:{port + 1}/metrics")[1]
    count = collections.Counter(end for end, _ in ends.values())
    wrong = [i for i, (end, text) in ends.items() if end == "whole" and text != want[i]]
    with open(t.file(f"{name}.jsonl")) as f:
        tries = collections.Counter(json.loads(line).get("tries", 0) for line in f)
    t.fact(name, f"{count['whole']} whole + {count['told']} told; {tries[2]} tried twice; serves again after {back} s")
    t.expect(f"{name}: whole replies and streams that end with an error event, not {dict(count)}", count["whole"] + count["told"] == len(ends) and count["whole"] >= 0.8 * len(ends))
    t.expect(f"{name}: the same text as undisturbed, not {len(wrong)} others", not wrong)
    t.expect(f"{name}: at most two workers a request, not {dict(tries)}", max(tries) <= 2)
    t.expect(f"{name}: no panic", "panics_total 0" in metrics or "panics_total" not in metrics)


def run(t):
    victim = t.workers[1]
    with gateway(t, "calm") as port:
        ends = load(t, port)
    want = {i: text for i, (_, text) in ends.items()}
    t.expect("every reply whole while nothing happens", all(end == "whole" for end, _ in ends.values()))

    def kill():
        victim.signal(signal.SIGKILL)
        victim.stop()
        victim.start()

    def hang():
        victim.signal(signal.SIGSTOP)
        try:
            time.sleep(20)
        finally:
            victim.signal(signal.SIGCONT)

    disturb(t, "killed", want, kill, victim.ready)
    disturb(t, "hung", want, hang)
    t.expect("engines alive", all(w.answers() for w in t.workers))
