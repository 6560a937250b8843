"""1,000 unloads and loads of adapters under load, by the gateway's administration:
vLLM lives, and every reply is right."""

import contextlib
import json
import threading

from harness import ADAPTERS, call, wait_for

ENGINES = ("vllm",)
ROUNDS = 1000


def churn(url, adapter, left, done, over):
    """Unloads and loads an adapter again and again, as long as rounds are left. One
    that is in use all the time stays, and its load calls the unload off."""
    def held():
        return adapter in json.loads(call(url + "/admin/workers")[1])["workers"][0]["adapters"]

    while left() and not over.is_set():
        call(url + "/admin/unload", {"worker": 0, "adapter": adapter})
        with contextlib.suppress(TimeoutError):
            wait_for(f"{adapter} to go", lambda: not held() or over.is_set(), 10)
            done()
        status, text = call(url + "/admin/load", {"worker": 0, "adapter": adapter}, timeout=120)
        if status != 200:
            raise RuntimeError(f"loading {adapter}: {status} {text}")


def run(t):
    worker, mark, lock = t.workers[0], t.marks[0], threading.Lock()
    rounds, problems, over = [ROUNDS], [], threading.Event()

    def left():
        with lock:
            return rounds[0] > 0

    def done_one():
        with lock:
            rounds[0] -= 1

    def churner(i):
        try:
            churn(g.admin, f"lora{i}", left, done_one, over)
        except Exception as e:
            problems.append(repr(e))

    sent, rate, few = 100, 1000, ["--max-concurrency", "3"]  # most adapters are idle at any time
    want = t.bench("static", urls=t.workers[1].url, requests=sent, rate=rate, flags=few)["replies"]
    with t.gateway("gateway", "--policy", "least-loaded", "--access-log", "none", urls=worker.url, adapters=ADAPTERS) as g:
        threads = [threading.Thread(target=churner, args=(i,)) for i in range(ADAPTERS)]
        for x in threads:
            x.start()
        done = equal = 0
        while any(x.is_alive() for x in threads):  # as often as it takes
            result = t.bench("static", urls=g.url, requests=sent, rate=rate, flags=few)
            done += result["completed"]
            equal += sum(result["replies"].get(i) == want[i] for i in range(sent))
            t.fact("runs", t.facts.get("runs", 0) + 1)
            if problems:
                over.set()
    t.fact("done", done)
    t.fact("equal", equal)
    t.expect(f"no problem, not {problems[:2]}", not problems)
    t.expect(f"all of {t.facts['runs']} times {sent} requests done, not {done}", done == t.facts["runs"] * sent)
    t.expect(f"token ids as on a worker left alone, not {done - equal} others", done == equal)
    t.marks = [mark, t.marks[1]]
    t.sound()
    t.expect(f"{ROUNDS} unloads and loads, not {t.facts['changes'] // 2}", t.facts["changes"] >= 2 * ROUNDS)
