"""A worker hangs for 20 s (SIGSTOP) and goes on: requests wait or go elsewhere."""

import signal
import time

from harness import wait_for

ENGINES = ("vllm", "sglang")


def run(t):
    victim, mark = t.workers[1], t.marks[1]

    def strike():
        wait_for("requests", lambda: victim.served(mark) >= t.setup.requests // 8, 300)
        victim.signal(signal.SIGSTOP)
        try:
            time.sleep(20)
        finally:
            victim.signal(signal.SIGCONT)

    t.reference()
    result = t.bench("dlora_period_mig:interval=2,threshold=4", meanwhile=strike)
    t.judge(result)
    t.fact("downs", result["config"]["live"]["worker_downs"])
    t.expect("it was found to be down", t.facts["downs"] > 0)
