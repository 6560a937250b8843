"""The emulated worker beside the real engine: both get the same requests (twins.py), and must
answer with the same status, headers in the same order in time, and bodies of the same shape,
except for what bench/serving/emulate/testdata/twins-named.txt names with its reason. With
TWINS=record the replies of the real engine become testdata of that package, whose test compares
the emulated worker with them without an engine."""

import fnmatch
import json
import os
import subprocess
import threading
import time

import twins
from harness import HERE, Worker, wait_for

ENGINES = ("vllm", "sglang")
WORKERS = 0  # it has its own
TESTDATA = os.path.join(HERE, "..", "..", "bench", "serving", "emulate", "testdata")
VERSION = {"vllm": "0.32", "sglang": "0.5.23"}
KEY = "secret"
FULL = {"vllm": ["--max-num-seqs", "2", "--max-num-queued-reqs", "4"], "sglang": ["--max-running-requests", "2", "--max-queued-requests", "2"]}
EMULATED_FULL = {"vllm": ["max_running_requests=2", "max_num_queued_reqs=4"], "sglang": ["max_running_requests=2", "max_queued_requests=2"]}
ADAPTERS = {"lora0": "lora0", "lora1": "lora1", "v:1": "lora2"}


class Emulated:
    """lorasim worker with the limits that serve-vllm and serve-sglang set."""

    draining = 1500  # tokens of the streams that run when it must end

    def __init__(self, t, *flags):
        self.t, self.port, self.flags, self.process = t, t.setup.port + 80, flags, None
        self.places = {"path": "adapters", "missing": "adapters/gone?load=missing"}

    def start(self):
        loras = [f"--lora={name}=adapters/{lora}" for name, lora in ADAPTERS.items()]
        command = [self.t.setup.lorasim, "worker", "--api", self.t.engine, "--listen", f"127.0.0.1:{self.port}", "--served-model-name", "base",
                   "--profile", os.path.join(HERE, f"profile-{self.t.engine}.yaml"), *loras, *self.flags]
        with open(self.t.file("emulated.log"), "a") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for("the emulated worker", lambda: twins.ask(self.port, twins.R("", "/health"), self.places)["status"] == 200, 30)

    def stop(self):
        self.process.kill()
        self.process.wait()


class Real:
    """A real engine with the same adapters."""

    draining = 400

    def __init__(self, t, *flags):
        name = ["--served-model-name", "base"] if t.engine == "sglang" else []
        # nothing compiled: vLLM answers nothing while it compiles for its first request with logprobs
        self.worker = Worker(t.setup, t.engine, 3, env={"TORCHDYNAMO_DISABLE": "1"}, flags=[*name, *flags])
        self.t, self.port = t, self.worker.port
        self.places = {"path": t.setup.model, "missing": "/nonexistent/adapter"}

    def start(self):
        self.worker.start()
        self.worker.ready(1200)
        load = "/v1/load_lora_adapter" if self.t.engine == "vllm" else "/load_lora_adapter"
        for name, lora in ADAPTERS.items():
            r = twins.ask(self.port, twins.R("", load, {"lora_name": name, "lora_path": "@path/" + lora}), self.places, KEY)
            self.t.expect(f"{name} loaded, not {r}", r["status"] == 200)

    @property
    def process(self):
        return self.worker.process

    def stop(self):
        self.worker.stop()


def endless(adapter="base", tokens=1800):
    return {"path": "/v1/completions", "body": {"model": adapter, "prompt": [5, 6], "max_tokens": tokens, "ignore_eos": True, "stream": True}}


def begin(server, n, tokens=1800):
    """Streams that have had a token."""
    streams = [twins.Reply(server.port, endless(tokens=tokens), server.places, KEY) for _ in range(n)]
    for s in streams:
        s.read(lambda text: "\n\n" in text)
    return streams


def settle(server):
    """Waits until no request runs: those of closed connections end with their step."""
    def idle():
        r = twins.Reply(server.port, twins.R("", "/metrics"), server.places, KEY)
        r.read()
        r.close()
        counts = [line.rsplit(" ", 1)[1] for line in r.text.splitlines()
                  if line.startswith(("vllm:num_requests_running{", "vllm:num_requests_waiting{", "sglang:num_running_reqs{", "sglang:num_queue_reqs{"))]
        return all(float(c) == 0 for c in counts)
    wait_for("the requests to end", idle, 60)


def idle_phase(server):
    records = {}
    for r in twins.requests(server.t.engine):
        records[r["name"]] = r, twins.ask(server.port, r, server.places)
        if "events" in r:
            settle(server)
    return records


def full_phase(server):
    """A queue that is full, a stream that waits in it, a key, and the end by SIGTERM."""
    records = {}

    def note(phase, requests, key):
        for r in requests:
            records[f"{phase}: {r['name']}"] = r, twins.ask(server.port, r, server.places, key)

    note("no key", twins.keyless(), None)
    running = begin(server, 2)
    waiting = [twins.Reply(server.port, endless(tokens=3), server.places, KEY) for _ in range(2)]
    reading = [threading.Thread(target=s.read) for s in waiting]  # sees when the header comes
    for r in reading:
        r.start()
    time.sleep(1)  # until the engine has them in its queue
    note("full", twins.busy(server.t.engine), KEY)
    for s in running:
        s.close()
    for r in reading:
        r.join()
    records["waiting: stream"] = endless(tokens=3), waiting[0].record(early=True)
    settle(server)
    running = begin(server, 2, server.draining)
    server.process.terminate()
    ended = threading.Event()
    threading.Thread(target=lambda: (server.process.wait(), ended.set()), daemon=True).start()
    time.sleep(0.5)
    note("draining", twins.draining(), KEY)
    for s in running:
        s.read()
    records["draining: running stream"] = endless(), running[0].record()
    server.t.fact(f"{type(server).__name__.lower()} ends by SIGTERM", ended.wait(60))
    return records


def named(engine):
    """Patterns of requests that differ, and the parts that do."""
    found = []
    with open(os.path.join(TESTDATA, "twins-named.txt")) as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                which, pattern, parts, _ = (x.strip() for x in line.split("|", 3))
                if which in (engine, "both"):
                    found.append((pattern, parts.split()))
    return found


def compare(t, real, emulated):
    names, wrong, excused = named(t.engine), 0, 0
    for name, (_, want) in real.items():
        got = emulated[name][1]
        differ = [k for k in sorted(want.keys() | got.keys()) if want.get(k) != got.get(k)]
        known = {part for pattern, parts in names if fnmatch.fnmatchcase(name, pattern) for part in parts}
        if not differ:
            continue
        if set(differ) <= known:
            excused += 1
            continue
        wrong += 1
        print(f"{t.engine}: {name}")
        for k in differ:
            print(f"  {k}: real {json.dumps(want.get(k))}\n  {k}: emul {json.dumps(got.get(k))}")
    t.fact("requests", len(real))
    t.fact("equal", len(real) - wrong - excused)
    t.fact("named", excused)
    t.expect(f"the same replies but for named ones, not {wrong} others", wrong == 0)


def save(t, records):
    with open(os.path.join(TESTDATA, f"twins-{t.engine}-{VERSION[t.engine]}.jsonl"), "w") as f:
        for name, (request, record) in records.items():
            request = {k: v for k, v in request.items() if k != "name"}
            if (raw := request.get("raw")) and not raw.isascii():  # no text
                request["hex"] = request.pop("raw").encode("utf-8", "surrogateescape").hex()
            f.write(json.dumps({"name": name, "request": request, "reply": record}) + "\n")


def phases(idle, full):
    """Both phases of a kind of server, one after the other."""
    records = {}
    for server, phase in ((idle, idle_phase), (full, full_phase)):
        try:
            server.start()
            records |= phase(server)
        finally:
            server.stop()
    return records


def run(t):
    given = os.environ.get("TWINS", "")
    key = ["--api-key", KEY]
    kept = t.file("real.json")
    if given and os.path.exists(given):  # replies of an earlier run
        with open(given) as f:
            real = json.load(f)
    else:
        real = phases(Real(t), Real(t, *FULL[t.engine], *key))
        with open(kept, "w") as f:
            json.dump(real, f)
    if given == "record":
        save(t, real)
    compare(t, real, phases(Emulated(t), Emulated(t, *key, *(x for a in EMULATED_FULL[t.engine] for x in ("--engine-args", a)))))
