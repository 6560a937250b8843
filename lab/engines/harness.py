"""Workers of real engines, runs of lorasim against them, and what a case may use.

A case is a file in cases/ with ENGINES, the engines it is for, and run(t). It calls
t.expect(what, condition) for what must hold and t.fact(name, value) for what the
table shows of it; t.workers are two workers that serve when it begins. A case may
stop, kill and start them, and must leave none of its own behind.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ADAPTERS, SLOTS, HELD = 16, 4, 8
RATES = {"vllm": 30, "sglang": 16}  # requests/s that two idle cores just serve
GATEWAY = 90  # its port after the first one of a run; the next one is the operators'


def call(url, body=None, timeout=30):
    """Status and text of a GET, or of a POST of a JSON body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as r:
            return r.status, r.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def wait_for(what, condition, limit):
    """Waits until a condition holds."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {limit} s")
        time.sleep(0.1)


def samples(text):
    """Samples of a page of Prometheus metrics, (name, labels) to value."""
    found = {}
    for line in text.splitlines():
        if m := re.fullmatch(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)", line):
            found[m[1], tuple(re.findall(r'(\w+)="((?:[^"\\\\]|\\\\.)*)"', m[2] or ""))] = float(m[3])
    return found


class Scraper:
    """Reads a page of metrics every half second, as Prometheus would, while a with statement runs."""

    GAUGES = ("requests_running", "requests_waiting", "requests_pending")  # of what is in flight

    def __init__(self, url, prefix):
        self.url, self.prefix, self.pages, self.errors, self.done = url, prefix, [], [], threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        while not self.done.wait(0.5):
            self._scrape()

    def _scrape(self):
        try:
            status, text = call(self.url)
        except OSError as e:
            status, text = repr(e), ""
        if status == 200:
            self.pages.append(samples(text))
        else:
            self.errors.append(status)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()
        self._scrape()
        for _ in range(20):  # the server may learn of an end after the client
            if self.pages and sum(map(self.sum, self.GAUGES)) == 0:
                break
            time.sleep(0.5)
            self._scrape()
        if not self.pages:
            raise RuntimeError(f"{self.url} does not answer: {self.errors[:3]}")

    def sum(self, name, page=-1, **labels):
        """Sum of a metric over the series with these labels."""
        want = set(labels.items())
        return sum(v for (n, of), v in self.pages[page].items() if n == self.prefix + name and want <= set(of))

    def peak(self, name):
        return max(self.sum(name, page) for page in range(len(self.pages)))

    def judge(self, t, name, lost_workers=False):
        """What holds of every run: each scrape answered, no counter falls, nothing is in flight at the end."""
        t.expect(f"{name}: all scrapes answered, not {self.errors[:3]}", not self.errors and len(self.pages) > 2)
        fallen = [(n, of) for a, b in zip(self.pages, self.pages[1:]) for (n, of), v in a.items()
                  if n.endswith(("_total", "_count", "_bucket", "_sum")) and b.get((n, of), v) < v]
        gone = [k for a, b in zip(self.pages, self.pages[1:]) for k in a if k not in b and k[0].startswith(self.prefix)]
        t.expect(f"{name}: no counter falls, not {fallen[:2]}", not fallen)
        t.expect(f"{name}: no series ends, not {gone[:2]}", lost_workers or not gone)
        for gauge in self.GAUGES:
            t.expect(f"{name}: {gauge} ends at 0, not {self.sum(gauge)}", self.sum(gauge) == 0)


def processes(session):
    """Process ids of a session."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as f:
            if int(f.read().rsplit(")", 1)[1].split()[3]) == session:
                found.append(int(pid))
    return found


def signal_session(session, number):
    for pid in processes(session):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class Worker:
    """One engine's server; a session of its own, so that all of it can be signalled."""

    def __init__(self, setup, engine, index, env=None, flags=()):
        self.setup, self.engine, self.index = setup, engine, index
        self.port = setup.port + index
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = os.path.join(setup.out, f"{engine}{index}.log")
        self.env, self.flags, self.process = env or {}, list(flags), None

    def start(self):
        command = [os.path.join(HERE, f"serve-{self.engine}"), self.setup.dir, self.setup.model, str(self.port), *self.flags]
        core = self.setup.cores[self.index % len(self.setup.cores)]
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(
                ["taskset", "-c", str(core), *command], stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                start_new_session=True, cwd=self.setup.out, env=os.environ | self.env)
        with open(self.setup.sessions, "a") as f:  # for whoever must clean up after this program
            f.write(f"{self.process.pid}\n")

    def answers(self):
        with contextlib.suppress(OSError):
            return call(self.url + "/health", timeout=2)[0] == 200
        return False

    def ready(self, limit=600):
        def look():
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.engine} on port {self.port} ended with {self.process.returncode}, see {self.log}")
            return self.answers()

        wait_for(f"{self.engine} on port {self.port} to be ready", look, limit)

    def signal(self, number):
        signal_session(self.process.pid, number)

    def stop(self):
        if self.process is None:
            return
        session = self.process.pid
        for number, patience in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
            signal_session(session, number)
            with contextlib.suppress(TimeoutError, subprocess.TimeoutExpired):
                self.process.wait(patience)
                wait_for("its end", lambda: not processes(session), patience)
                break
        self.process = None

    def mark(self):
        """A place in the log, for lines(since)."""
        return os.path.getsize(self.log)

    def lines(self, since=0):
        with open(self.log, errors="replace") as f:
            f.seek(since)
            return f.read().splitlines()

    def changes(self, since):
        """Loads and unloads asked for by HTTP: how many, and how many refused."""
        done = refused = 0
        for line in self.lines(since):
            if m := re.search(r'"POST (?:/v1)?/(?:un)?load_lora_adapter HTTP/1.1" (\d+)', line):
                done += m[1] == "200"
                refused += m[1] != "200"
        return done, refused

    def served(self, since):
        return sum('"POST /generate ' in x or '"POST /v1/completions ' in x for x in self.lines(since))


class Gateway:
    """A gateway that listens: the ports and URLs of clients and operators, and its files."""

    def __init__(self, t, name, beside=0):
        self.port, self.log, self.access = t.setup.port + GATEWAY + 2 * beside, t.file(f"{name}.log"), t.file(f"{name}.jsonl")
        self.url, self.admin = (f"http://127.0.0.1:{self.port + i}" for i in (0, 1))
        self.process = None

    def ready(self):
        """Whether all workers have joined and hold their adapters; a gateway without /ready has loaded them before it listens."""
        return call(self.url + "/ready")[0] in (200, 404)

    def started(self):
        if self.process.poll() is not None:
            with open(self.log) as f:
                raise RuntimeError(f"the gateway ended with {self.process.returncode}: {f.read()[-300:]}")
        with open(self.log) as f:
            return "listening" in f.read()

    def requests(self):
        """The lines of the access log."""
        with open(self.access) as f:
            return list(map(json.loads, f))


class Setup:
    """What all cases share."""

    def __init__(self, folder, out, lorasim, port, requests, rate):
        self.dir, self.out, self.lorasim, self.port = folder, out, lorasim, port
        self.requests, self.rate = requests, rate
        self.model = os.path.join(folder, "model")
        self.sessions = os.path.join(out, "sessions")
        self.cores = sorted(os.sched_getaffinity(0))
        self.references = {}  # replies of undisturbed static runs, by engine


class Case:
    """One case on one engine."""

    def __init__(self, setup, name, engine, workers, parts=None):
        self.setup, self.name, self.engine, self.workers, self.parts = setup, name, engine, workers, parts
        self.urls = ",".join(w.url for w in workers)
        self.checks, self.facts = [], {}
        self.marks = [w.mark() for w in workers]

    def expect(self, what, condition):
        self.checks.append((what, bool(condition)))

    def fact(self, name, value):
        self.facts[name] = value

    def failed(self):
        return [what for what, ok in self.checks if not ok]

    def file(self, name):
        return os.path.join(self.setup.out, f"{self.engine}-{self.name}-{name}")

    def lorasim(self, *arguments, stderr=subprocess.PIPE):
        """Runs lorasim; exit code, stdout, and stderr unless that is a file."""
        r = subprocess.run([self.setup.lorasim, *arguments], stdout=subprocess.PIPE, stderr=stderr, text=True, timeout=900)
        return r.returncode, r.stdout, r.stderr

    def adapters(self):
        return ["--lora-path", self.setup.model + "/{name}"]

    @contextlib.contextmanager
    def gateway(self, name, *flags, urls=None, adapters=8, env=None, ready=True, beside=0):
        """A gateway with this many adapters before workers, by default those of the case, once it is ready; beside other gateways."""
        g = Gateway(self, name, beside)
        loras = [f"--lora=lora{i}={self.setup.model}/lora{i}" for i in range(adapters)]
        command = [self.setup.lorasim, "gateway", "--worker-urls", urls or self.urls, "--listen", g.url.removeprefix("http://"),
                   "--admin-listen", g.admin.removeprefix("http://"), "--access-log", g.access, *loras, *flags]
        with open(g.log, "w") as log:
            g.process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | (env or {}))
        try:
            wait_for("the gateway to listen", g.started, 120)
            if ready:
                wait_for("the gateway to be ready", g.ready, 120)
            yield g
        finally:
            g.process.terminate()
            self.expect("the gateway stopped as it should", g.process.wait(60) == 0)

    def bench(self, policy, meanwhile=None, urls=None, requests=None, rate=None, backend=None, flags=()):
        """Sends the workload under a policy; meanwhile() runs beside it. Returns the
        result, with the replies' token ids by request as "replies"."""
        replies = self.file("replies.jsonl")
        flags = [
            "--backend", backend or self.engine, *self.adapters(), "--vocab-size", "2000", "--num-adapters", str(ADAPTERS),
            "--lora-ranks", "8", "--popularity", "zipf:1", "--drift", "10", "--lengths",
            "lognormal:prompt_mean=40,prompt_sigma=0.6,prompt_cap=128,output_mean=20,output_sigma=0.6,output_cap=60",
            "--num-prompts", str(requests or self.setup.requests), "--request-rate", str(rate or self.setup.rate or RATES[self.engine]),
            "--engine-args", f"max_loaded_loras={HELD}", "--policy", policy, "--replies", replies, "--json", *flags]
        problems = []

        def beside():
            try:
                meanwhile()
            except Exception as e:  # told where the case is judged
                problems.append(e)

        thread = threading.Thread(target=beside) if meanwhile else None
        log = self.file("bench.log")
        with open(log, "a") as f:  # before meanwhile(), which may read it
            begun = f.tell()
            if thread:
                thread.start()
            code, stdout, _ = self.lorasim("bench", "--worker-urls", urls or self.urls, *flags, stderr=f)
        if thread:
            thread.join()
        if not stdout.strip() or problems:
            with open(log) as f:
                f.seek(begun)
                raise RuntimeError(f"bench ended with {code}: {problems or f.read().strip()[-300:]}")
        result = json.loads(stdout)
        with open(replies) as f:
            lines = list(map(json.loads, f))
        result["replies"] = {r["id"]: r["tokens"] for r in lines}
        result["prompts"] = {r["id"]: (f"lora{r['adapter']}" if r["adapter"] >= 0 else "base", r["prompt"]) for r in lines}
        return result

    def reference(self):
        """Replies of an undisturbed run under static."""
        if self.engine not in self.setup.references:
            result = self.bench("static")
            self.expect("all of the static run done", result["completed"] == self.setup.requests)
            self.setup.references[self.engine] = result["replies"]
        return self.setup.references[self.engine]

    def tie(self, adapter, prompt, a, b):
        """Whether two replies part at tokens that are equally likely but for the
        last digits of float32, which depend on the batch. vLLM compiles a part for
        its first request with logprobs, which takes minutes on a busy machine."""
        k = next((k for k, (x, y) in enumerate(zip(a, b)) if x != y), None)
        if k is None:
            return False
        ids, url = prompt + a[:k], self.workers[0].url
        if self.engine == "sglang":
            status, text = call(url + "/generate", {"input_ids": ids, "lora_path": adapter if adapter != "base" else None, "return_logprob": True,
                                               "top_logprobs_num": 2, "sampling_params": {"max_new_tokens": 1, "temperature": 0}}, 300)
            top = {t: p for p, t, _ in json.loads(text)["meta_info"]["output_top_logprobs"][0]} if status == 200 else {}
        else:
            status, text = call(url + "/v1/completions", {"model": adapter, "prompt": ids, "max_tokens": 1, "temperature": 0, "logprobs": 2,
                                                     "return_tokens_as_token_ids": True}, 300)
            top = {int(t.split(":")[1]): p for t, p in json.loads(text)["choices"][0]["logprobs"]["top_logprobs"][0].items()} if status == 200 else {}
        return set(top) == {a[k], b[k]} and abs(top[a[k]] - top[b[k]]) < 1e-5

    def judge(self, result, beside_others=False):
        """What holds after every run: nothing failed, replies as in the undisturbed
        run to the last token, no load or unload refused but beside others that
        change the same, engines alive. sglang itself is such another: it drops and
        reloads adapters, and what crosses that is refused as done already."""
        want, got = self.reference(), result["replies"]
        wrong = [i for i in want if got.get(i) != want[i]]
        ties = [i for i in wrong if i in got and self.tie(*result["prompts"][i], want[i], got[i])]
        wrong = [i for i in wrong if i not in ties]
        if ties:
            self.fact("ties", len(ties))
        live = result["config"]["live"]
        self.fact("done", result["completed"])
        self.fact("equal", len(want) - len(wrong))
        for name, key in (("moved", "moved_requests"), ("failovers", "failovers"), ("loads", "adapter_loads"), ("unloads", "adapter_unloads")):
            self.fact(name, live[key])
        self.fact("mean_e2e_ms", round(result["mean_e2e_latency_ms"]))
        self.expect(f"{self.setup.requests} requests done, not {result['completed']}", result["completed"] == self.setup.requests)
        self.expect(f"token ids as in the static run, not {len(wrong)} others", not wrong)
        self.sound(beside_others)

    def sound(self, beside_others=False):
        done, refused = map(sum, zip(*(w.changes(since) for w, since in zip(self.workers, self.marks))))
        self.fact("changes", done)
        self.fact("refused", refused)
        self.expect(f"no load or unload refused, not {refused}", beside_others or self.engine == "sglang" or refused == 0)
        self.expect("engines alive", all(w.answers() for w in self.workers))
