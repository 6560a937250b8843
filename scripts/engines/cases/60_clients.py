"""Clients of others, unchanged, through a gateway before both workers: see
clients.sh. AIPerf and GuideLLM are run where AIPERF and GUIDELLM name them."""

import os
import subprocess

from harness import HERE, wait_for

ENGINES = ("vllm", "sglang")
CLIENTS = {"vllm": ("vllm", "aiperf", "guidellm"), "sglang": ("sglang", "sglang_rust")}


def run(t):
    url = f"http://127.0.0.1:{t.setup.port + 90}"
    adapters = [flag for a in range(4) for flag in ("--lora", f"lora{a}={t.setup.model}/lora{a}")]
    with open(t.file("gateway.log"), "w") as log:
        gateway = subprocess.Popen([t.setup.lorasim, "gateway", "--worker-urls", t.urls, "--listen", url.removeprefix("http://"), "--policy", "affinity-spill", "--allow", "/flush_cache",
                                    "--access-log", t.file("access.jsonl"), *adapters], stdout=log, stderr=log)
    try:
        wait_for("the gateway to listen", lambda: "listening" in open(t.file("gateway.log")).read() or gateway.poll() is not None, 120)
        env = dict(os.environ, TOKENIZER=t.setup.model + "/base", LORASIM=t.setup.lorasim, REQUESTS="24", RATE="4",
                   VLLM=f"{t.setup.dir}/env-vllm/bin/vllm", SGLANG=f"{t.setup.dir}/env-sglang/bin/python")
        r = subprocess.run(["bash", "-c", '. "$1"; shift; clients "$@"', "clients", os.path.join(HERE, "clients.sh"), url, t.file("clients"), *CLIENTS[t.engine]],
                           env=env, capture_output=True, text=True, timeout=1800)
        for line in r.stdout.splitlines():
            t.fact(line.split()[1].rstrip(":"), line.split()[0])
        t.expect(f"no client with an error, not {r.stdout.strip()} {r.stderr.strip()[-300:]}", r.returncode == 0)
    finally:
        gateway.terminate()
        t.expect("the gateway stopped as it should", gateway.wait(60) == 0)
    t.expect("engines alive", all(w.answers() for w in t.workers))
