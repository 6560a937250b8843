"""Clients of a gateway: requests for adapters at a rate, half of them streamed, and how each ended."""

import http.client
import json
import random
import threading
import time

from harness import RATES

LORAS = 8


def body(t, i):
    """A request, every second one streamed."""
    r = random.Random(i)
    return {"model": f"lora{min(LORAS, int(r.paretovariate(0.7))) - 1}", "prompt": [r.randrange(10, 1900) for _ in range(r.randrange(10, 100))],
            "max_tokens": r.randrange(20, 60), "temperature": 0, "ignore_eos": True, "stream": i % 2 == 0}


def ask(t, port, i, request=None):
    """How a request ended, and its text; by default that of body()."""
    c, data, broken = http.client.HTTPConnection("127.0.0.1", port, timeout=300), b"", False
    try:
        c.request("POST", "/v1/completions", json.dumps(request or body(t, i)), {"Content-Type": "application/json"})
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


def load(t, port, meanwhile=None, send=ask):
    """Sends the requests at the rate, each by send(t, port, i); what it returns by request."""
    n, rate, ends = t.setup.requests, t.setup.rate or RATES[t.engine], {}

    def one(i):
        try:
            ends[i] = send(t, port, i)
        except Exception as e:
            ends[i] = repr(e), ""

    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)] + ([threading.Thread(target=meanwhile)] if meanwhile else [])
    for k, x in enumerate(reversed(threads)):  # the disturbance first
        x.start()
        time.sleep(1 / rate if k else 0)
    for x in threads:
        x.join()
    return ends
