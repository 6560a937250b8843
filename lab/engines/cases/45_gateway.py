"""A gateway with default flags before both workers. One is killed with -9 and started
again, then one hangs for 20 s (SIGSTOP): what had no byte yet goes on elsewhere,
streams that had begun end with an error event, and both serve again afterwards."""

import collections
import signal
import time

from harness import RATES, call, wait_for
from traffic import ask, load

ENGINES = ("vllm", "sglang")


def serves(t, port, mark):
    """Sends requests until the disturbed worker serves one; s."""
    begun = time.monotonic()
    wait_for("the worker to serve again", lambda: [ask(t, port, i) for i in range(4)] and t.workers[1].served(mark) > 0, 120)
    return round(time.monotonic() - begun, 1)


def disturb(t, name, want, strike, after=lambda: None):
    """A run with a disturbance."""
    with t.gateway(name) as g:
        quarter = t.setup.requests / (t.setup.rate or RATES[t.engine]) / 4
        ends = load(t, g.port, lambda: (time.sleep(quarter), strike()))
        after()
        mark = t.workers[1].mark()
        back = serves(t, g.port, mark)
        metrics = call(g.admin + "/metrics")[1]
    count = collections.Counter(end for end, _ in ends.values())
    wrong = [i for i, (end, text) in ends.items() if end == "whole" and text != want[i]]
    tries = collections.Counter(line.get("tries", 0) for line in g.requests())
    t.fact(name, f"{count['whole']} whole + {count['told']} told; {tries[2]} tried twice; serves again after {back} s")
    t.expect(f"{name}: whole replies and streams that end with an error event, not {dict(count)}", count["whole"] + count["told"] == len(ends) and count["whole"] >= 0.8 * len(ends))
    t.expect(f"{name}: the same text as undisturbed, not {len(wrong)} others", not wrong)
    t.expect(f"{name}: at most two workers a request, not {dict(tries)}", max(tries) <= 2)
    t.expect(f"{name}: no panic", "panics_total 0" in metrics or "panics_total" not in metrics)


def run(t):
    victim = t.workers[1]
    with t.gateway("calm") as g:
        ends = load(t, g.port)
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
