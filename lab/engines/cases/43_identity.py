"""Workers that become others behind their URLs, and a gateway before them: both are restarted
with another base model, one after the other; vLLM is replaced by sglang on the same port, and
back; one is killed with -9 while 16 streams wait for their first token; one gets SIGTERM under
load; one hangs while the gateway starts."""

import collections
import http.client
import json
import signal
import threading
import time

from harness import Worker, call, wait_for

ENGINES = ("vllm", "sglang")
OTHER = {"vllm": "sglang", "sglang": "vllm"}


def ask(g, model, prompt=(5, 6, 7, 8), n=12, stream=False):
    """How a request ended, and its text: whole, short (without an error), told (a stream that ends with an error), broken or a status."""
    body = {"model": model, "prompt": list(prompt), "max_tokens": n, "temperature": 0, "ignore_eos": True, "stream": stream}
    c, data, broken = http.client.HTTPConnection("127.0.0.1", g.port, timeout=300), b"", False
    try:
        c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        r = c.getresponse()
        try:
            while part := r.read1(1 << 16):
                data += part
        except (http.client.HTTPException, OSError):
            broken = True
    except Exception as e:
        return type(e).__name__, ""
    finally:
        c.close()
    if r.status != 200:
        return f"status {r.status}", data.decode()[:200]
    events = [data] if not stream else [e.removeprefix(b"data: ") for e in data.split(b"\n\n") if e]
    if stream and any(e.startswith(b'{"error"') for e in events):
        return "told", ""
    if broken or stream and b"[DONE]" not in events:
        return "broken", ""
    choices = [c for e in events if e.startswith(b"{") for c in json.loads(e)["choices"]]
    finish = [c["finish_reason"] for c in choices if c["finish_reason"]]
    return "whole" if finish == ["length"] else f"short ({finish})", "".join(c["text"] for c in choices)


def many(g, number, model, **more):
    """Requests at the same time; their ends."""
    ends = [None] * number

    def one(i):
        ends[i] = ask(g, model(i), **more)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(number)]
    for x in threads:
        x.start()
    return threads, ends


class Steady:
    """Requests, one after the other, while a with statement runs: when each ended, how and with which text."""

    def __init__(self, g, *models):
        self.g, self.models, self.ends, self.over = g, models, [], threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        while not self.over.is_set():
            for m in self.models:
                self.ends.append((time.monotonic(), m, *ask(self.g, m)))
            time.sleep(0.2)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def count(self, model):
        return dict(collections.Counter(end for _, m, end, _ in self.ends if m == model))


def restart(w, *flags):
    w.stop()
    w.flags = list(flags)
    w.start()
    w.ready(900)


def named(name):
    return ["--served-model-name", name]


def rolling(t):
    """Both workers get another base model, one after the other. With an alias the old name and its adapters are served all the time; without one they are refused at the end."""
    old = json.loads(call(t.workers[0].url + "/v1/models")[1])["data"][0]["id"]
    with t.gateway("rolling", adapters=2) as strict, t.gateway("rolling-alias", f"--base-alias={old}=new", adapters=2, beside=1) as g:
        t.expect("rolling: lora0 before", ask(g, "lora0")[0] == "whole")
        with Steady(g, old, "lora0") as alias, Steady(strict, old, "new", "lora0") as s:
            for w in t.workers:
                restart(w, *named("new"))
            both = time.monotonic()
            wait_for("the new model to be served", lambda: ask(strict, "new")[0] == "whole", 120)
            new = time.monotonic() - both
            time.sleep(3)
        t.fact("rolling", f"with an alias: old {alias.count(old)}, lora0 {alias.count('lora0')}; without: old {s.count(old)}, new {s.count('new')}, lora0 {s.count('lora0')}; new serves {new:.1f} s after the last start")
        t.expect("rolling: with an alias all whole", set(alias.count(old)) == set(alias.count("lora0")) == {"whole"})
        t.expect("rolling: adapter's text with an alias", len({text for _, m, _, text in alias.ends if m == "lora0"}) == 1)
        t.expect("rolling: without an alias the old name is refused at the end", ask(strict, old)[0] == "status 404")


def swapped(t):
    """The engine behind a URL becomes the other one, and then itself again, with the same name of the base model: adapters are still adapters."""
    first = t.workers[0]
    t.workers[1].stop()
    name = json.loads(call(first.url + "/v1/models")[1])["data"][0]["id"]
    other = Worker(t.setup, OTHER[t.engine], 0, flags=named(name))
    with t.gateway("swapped", urls=first.url, adapters=2) as g:
        before = ask(g, "lora0")
        for was, now in ((first, other), (other, first)):
            was.stop()
            now.start()
            try:
                with Steady(g, "lora0") as s:
                    now.ready(900)
                    begun = time.monotonic()
                    wait_for("lora0 to be served again", lambda: ask(g, "lora0")[0] == "whole", 120)
                    took = time.monotonic() - begun
                    time.sleep(3)
            except Exception:
                now.stop()
                raise
            texts = collections.Counter(text for _, _, end, text in s.ends if end == "whole")
            t.fact(f"to {now.engine}", f"{s.count('lora0')}, {texts[before[1]]} with the adapter's text, {sum(texts.values()) - texts[before[1]]} with another; served again {took:.1f} s after the start")
            t.expect(f"swapped: the adapter's text at {now.engine}, not {texts}", set(texts) == {before[1]})
            if now.engine == "sglang":  # vLLM without a GPU answers for the base model with an adapter
                t.expect("swapped: another text of the base model", ask(g, name)[1] != before[1])


def waiting(t):
    """kill -9 while 16 streams wait for their first token: all of them end whole elsewhere."""
    with t.gateway("waiting", adapters=2) as g:
        for i in range(4):
            ask(g, f"lora{i % 2}")
        prompt = [10 + i % 1900 for i in range(1500)]
        threads, ends = many(g, 16, lambda i: f"lora{i % 2}", prompt=prompt, n=20, stream=True)
        time.sleep(0.4)
        t.workers[1].signal(signal.SIGKILL)
        for x in threads:
            x.join()
    count = dict(collections.Counter(end for end, _ in ends))
    t.fact("waiting", f"{count}")
    t.expect(f"waiting: all 16 whole, not {count}", count == {"whole": 16})
    t.workers[1].stop()
    restart(t.workers[1])


def draining(t):
    """SIGTERM under load: no request is lost, and the worker ends."""
    w = t.workers[1]
    with t.gateway("draining", adapters=2) as g:
        for i in range(4):
            ask(g, f"lora{i % 2}")
        threads, ends = many(g, 12, lambda i: f"lora{i % 2}", n=150, stream=True)
        time.sleep(2)
        mark, begun = w.mark(), time.monotonic()
        w.process.terminate()
        with Steady(g, "lora0", "lora1") as s:
            try:
                w.process.wait(120)
            except Exception:
                pass
            took = time.monotonic() - begun
            for x in threads:
                x.join()
        late = w.served(mark)
    count = dict(collections.Counter(end for end, _ in ends))
    later = dict(collections.Counter(end for _, _, end, _ in s.ends))
    t.fact("draining", f"running {count}; later {later}; {late} logged by the worker after SIGTERM; it ended after {took:.0f} s")
    t.expect(f"draining: running streams whole or told, not {count}", set(count) <= {"whole", "told"})
    t.expect(f"draining: later requests whole, not {later}", set(later) == {"whole"})
    t.expect(f"draining: the worker ends, not after {took:.0f} s", took < 110)
    w.stop()
    restart(w)


def slow(t):
    """A worker hangs while the gateway starts and loads adapters: /health answers, and the other worker serves."""
    w = t.workers[1]
    w.signal(signal.SIGSTOP)
    try:
        begun = time.monotonic()
        go_on = threading.Timer(25, lambda: w.signal(signal.SIGCONT))
        go_on.start()
        with t.gateway("slow", adapters=8, ready=False) as g:
            listening = time.monotonic() - begun
            wait_for("/health", lambda: call(g.url + "/health", timeout=5)[0] == 200, 60)
            health = time.monotonic() - begun
            wait_for("lora7", lambda: ask(g, "lora7")[0] == "whole", 120)
            served = time.monotonic() - begun
    finally:
        go_on.cancel()
        w.signal(signal.SIGCONT)
    t.fact("slow", f"listens after {listening:.1f} s, /health after {health:.1f} s, an adapter after {served:.1f} s")
    t.expect(f"slow: /health before the worker goes on, not after {health:.1f} s", health < 20)


PARTS = {"waiting": waiting, "draining": draining, "slow": slow, "rolling": rolling, "swapped": swapped}


def run(t):
    for step in (PARTS[name] for name in t.parts or PARTS):
        try:
            step(t)
            print(f"{step.__name__}: {t.facts}", flush=True)
        except Exception as e:
            t.expect(f"{step.__name__}: {type(e).__name__}: {e}", False)
    for w in t.workers:
        w.stop()
        w.flags = []  # the next case starts them
