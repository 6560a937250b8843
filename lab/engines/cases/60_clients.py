"""Clients of others, unchanged, through a gateway before both workers: see
clients.sh. AIPerf and GuideLLM are run where AIPERF and GUIDELLM name them."""

import os
import subprocess

from harness import HERE

ENGINES = ("vllm", "sglang")
CLIENTS = {"vllm": ("vllm", "aiperf", "guidellm"), "sglang": ("sglang", "sglang_rust")}


def run(t):
    with t.gateway("gateway", "--policy", "affinity-spill", "--allow", "/flush_cache", adapters=4) as g:
        env = dict(os.environ, TOKENIZER=t.setup.model + "/base", LORASIM=t.setup.lorasim, REQUESTS="24", RATE="4",
                   VLLM=f"{t.setup.dir}/env-vllm/bin/vllm", SGLANG=f"{t.setup.dir}/env-sglang/bin/python")
        r = subprocess.run(["bash", "-c", '. "$1"; shift; clients "$@"', "clients", os.path.join(HERE, "clients.sh"), g.url, t.file("clients"), *CLIENTS[t.engine]],
                           env=env, capture_output=True, text=True, timeout=1800)
        for line in r.stdout.splitlines():
            t.fact(line.split()[1].rstrip(":"), line.split()[0])
        t.expect(f"no client with an error, not {r.stdout.strip()} {r.stderr.strip()[-300:]}", r.returncode == 0)
    t.expect("engines alive", all(w.answers() for w in t.workers))
