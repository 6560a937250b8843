"""New versions of an adapter while requests run, pushed through a gateway (POST /admin/push) and by `lorasim bench
--push-every`. No request is lost. Afterwards the worker itself generates each reply with the adapter of each version
that may have served it: each reply must be that of the newest version, or of one that the bound allows."""

import collections
import csv
import json
import os
import time
from concurrent import futures

import traffic
from harness import RATES, call, wait_for

ENGINES = ("vllm", "sglang")
WORKERS = 1
EVERY = 8  # s between versions
BOUND = 1  # --max-staleness
NAME = "chat"


def path(t, version):
    """The adapter that is a version, from 1; the worker holds no other one under a name of its own."""
    return os.path.join(t.setup.model, f"lora{version - 1}")


def generate(t, name, prompt, tokens):
    """What the first worker generates: token ids, and their text."""
    url = t.workers[0].url
    if t.engine == "vllm":
        body = {"model": name, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
        choice = json.loads(call(url + "/v1/completions", body, 120)[1])["choices"][0]
        return choice["token_ids"], choice["text"]
    body = {"input_ids": prompt, "lora_path": name, "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}}
    answer = json.loads(call(url + "/generate", body, 120)[1])
    return answer["output_ids"], answer["text"]


def judge(t, part, sent, got):
    """Compares the replies with those of each version. sent has (prompt, number of tokens, first and last version that
    was the newest while the request ran) by request; got has token ids or texts."""
    prefix = "/v1" if t.engine == "vllm" else ""
    matches = collections.defaultdict(list)
    for version in range(1, max(last for *_, last in sent.values()) + 1):
        name = f"check{version}"
        status, text = call(t.workers[0].url + prefix + "/load_lora_adapter", {"lora_name": name, "lora_path": path(t, version)}, 120)
        t.expect(f"{part}: version {version} loaded for the check, not {status} {text[:200]}", status == 200)
        some = [i for i, (_, _, first, last) in sent.items() if first - BOUND - 1 <= version <= last]
        with futures.ThreadPoolExecutor(4) as pool:
            for i, want in zip(some, pool.map(lambda i: generate(t, name, *sent[i][:2]), some)):
                if got[i] in want:
                    matches[i].append(version)
        call(t.workers[0].url + prefix + "/unload_lora_adapter", {"lora_name": name}, 120)
    count, wrong = collections.Counter(), []
    for i, (_, _, first, last) in sent.items():
        ok = [v for v in matches[i] if first - BOUND <= v <= last]
        if not ok:
            wrong.append((i, first, last, matches[i]))
        elif any(v >= first for v in ok):
            count["of the newest version"] += 1
        else:
            count[f"{first - max(ok)} behind"] += 1
    t.fact(part, f"{len(sent)} replies, " + ", ".join(f"{n} {what}" for what, n in sorted(count.items())))
    t.expect(f"{part}: each reply of a version within the bound, not {wrong[:3]}", not wrong)


def by_gateway(t):
    pushed, sent = [(0, 1)], {}  # time and number of each version

    def newest(until):
        return max(version for at, version in pushed if at <= until)

    def one(t, port, i):
        request, begun = traffic.body(t, i) | {"model": NAME}, time.monotonic()
        end = traffic.ask(t, port, i, request)
        sent[i] = request["prompt"], request["max_tokens"], newest(begun), newest(time.monotonic())
        return end

    seconds = t.setup.requests / (t.setup.rate or RATES[t.engine])
    with t.gateway("gateway", "--policy", "least-loaded", "--max-staleness", str(BOUND), f"--lora={NAME}={path(t, 1)}", adapters=0) as g:
        def push():
            for version in range(2, 2 + min(6, int(seconds / EVERY))):
                time.sleep(EVERY)
                pushed.append((time.monotonic(), version))  # before the answer: a request may see the version at once
                status, text = call(g.admin + "/admin/push", {"adapter": NAME, "path": path(t, version)}, 60)
                t.expect(f"version {version} is published, not {status} {text[:200]}", status == 200 and json.loads(text)["version"] == version)

        ends = traffic.load(t, g.port, push, one)
        listed = [m["id"] for m in json.loads(call(g.url + "/v1/models")[1])["data"]]
        t.expect(f"/v1/models has the adapter's name alone, not {listed}", NAME in listed and not [x for x in listed if "@" in x])
        if t.engine == "vllm":  # its list has the loaded adapters
            names = lambda: [m["id"] for m in json.loads(call(t.workers[0].url + "/v1/models")[1])["data"] if m["id"].startswith(NAME)]
            wait_for("old versions to be unloaded", lambda: len(names()) == 1, 30)
    lost = {i: end for i, (end, _) in ends.items() if end != "whole"}
    t.expect(f"gateway: no request lost, not {dict(list(lost.items())[:3])}", not lost)
    t.fact("pushes", len(pushed) - 1)
    judge(t, "gateway", {i: x for i, x in sent.items() if i not in lost}, {i: text for i, (_, text) in ends.items()})


def by_bench(t):
    folder, replies, records = t.file("pushes"), t.file("replies.jsonl"), t.file("records.csv")
    name = "lora0"  # what bench calls its first adapter
    os.makedirs(os.path.join(folder, name))
    for version in range(2, 9):
        os.symlink(path(t, version), os.path.join(folder, name, f"v{version}"))
    code, text, problem = t.lorasim(
        "bench", t.workers[0].url, "--backend", t.engine, "--lora", f"{name}={path(t, 1)}", "--num-adapters", "1", "--num-prompts", "60",
        "--request-rate", "1.5", "--lengths", "constant:30,24", "--vocab-size", "500", "--policy", "least-loaded", "--push-every", str(EVERY),
        "--push-dir", folder, "--max-staleness", str(BOUND), "--replies", replies, "--records", records, "--json")
    t.expect(f"bench: exit code 0, not {code}: {problem[-300:]}", code == 0)
    if code:
        return
    with open(records) as f:
        times = {int(r["id"]): (float(r["sent_s"]), float(r["finish_s"])) for r in csv.DictReader(f)}
    with open(replies) as f:
        rows = {r["id"]: r for r in map(json.loads, f)}
    t.expect(f"bench: no request lost, not {60 - len(rows)}", len(rows) == 60)
    sent = {i: (r["prompt"], len(r["tokens"]), *(1 + int(at / EVERY) for at in times[i])) for i, r in rows.items()}
    judge(t, "bench", sent, {i: r["tokens"] for i, r in rows.items()})


PARTS = {"gateway": by_gateway, "bench": by_bench}


def run(t):
    for name in t.parts or PARTS:
        PARTS[name](t)
    t.expect("engines alive", all(w.answers() for w in t.workers))
