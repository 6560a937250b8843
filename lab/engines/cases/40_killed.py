"""A worker is killed with -9 in the middle and started again: its requests go on
elsewhere with the tokens they have."""

import signal

from harness import wait_for

ENGINES = ("vllm", "sglang")


def run(t):
    victim, mark = t.workers[1], t.marks[1]

    def strike():
        wait_for("requests", lambda: victim.served(mark) >= t.setup.requests // 8, 300)
        victim.signal(signal.SIGKILL)
        victim.stop()
        victim.start()

    t.reference()
    result = t.bench("dlora_period_mig:interval=2,threshold=4", meanwhile=strike)
    victim.ready()
    t.judge(result)
    t.expect("requests that went on elsewhere", t.facts["failovers"] > 0)
