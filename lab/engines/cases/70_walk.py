"""Every route of the engine, one by one, through the gateway with a client's key:
what is not for clients never reaches the worker, however its path is written, and
afterwards weights, adapters, sessions and files are as before.

bench/serving/gateway/testdata/routes-ENGINE.txt says which routes are for clients (allow),
answered by the gateway itself (own), and neither (deny)."""

import http.client
import json
import os
import re
import subprocess

from harness import HERE, Worker

ENGINES = ("vllm", "sglang")
WORKERS = 0  # it has one of its own
CLIENT, WORKER = "client-key", "worker-key"
LISTS = os.path.join(HERE, "..", "..", "bench", "gateway", "testdata")

# What each route is asked to do, where an empty object would do nothing.
HARM = {
    "/weights_checker": {"action": "reset_tensors"},
    "/weight_checker": {"action": "reset_tensors"},
    "/abort_request": {"abort_all": True},
    "/open_session": {"capacity_of_str_len": 1000, "session_id": "evil"},
    "/close_session": {"session_id": "evil"},
    "/get_weights_by_name": {"name": "lm_head.weight", "truncate_size": 10},
    "/collective_rpc": {"method": "sleep", "args": []},
    "/configure_logging": {"log_requests": True, "log_requests_level": 3},
    "/update_weight_version": {"new_version": "evil", "weight_version": "evil"},
    "/set_internal_state": {"server_args": {"pp_max_micro_batch_size": 1}},
}


def harm(t, path, folder):
    adapter = {"lora_name": "evil", "lora_path": t.setup.model + "/lora1", "name": "evil", "src": t.setup.model + "/lora1"}
    if "lora" in path or path.startswith("/adapters"):
        return adapter
    if path == "/start_profile":
        return {"output_dir": folder, "num_steps": 1}
    if path == "/update_weights_from_disk":
        return {"model_path": t.setup.model + "/evil"}
    return HARM.get(path, {})


def ask(port, method, target, body=None, key=CLIENT, headers=()):
    """Status and text of one request, whose target is sent as it is written."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        c.putrequest(method, target)
        data = b"" if body is None else json.dumps(body).encode()
        for name, value in (("Authorization", f"Bearer {key}"), ("Content-Type", "application/json"), ("Content-Length", str(len(data))), *headers):
            c.putheader(name, value)
        c.endheaders(data)
        r = c.getresponse()
        return r.status, r.read().decode(errors="replace")
    finally:
        c.close()


def spellings(path):
    """Other ways to write a path that some server or proxy might take for it."""
    rest = path[1:]
    return ["//" + rest, "/./" + rest, "/x/../" + rest, "/%2e/" + rest, "/x/%2e%2e/" + rest, "/%2F" + rest, "/%" + format(ord(rest[0]), "x") + rest[1:],
            path + "/", path + ";x", path + "%3Fx", "/" + rest.upper(), "/v1/completions/../.." + path, "/v1/completions" + path, "/generate;" + path,
            "http://worker" + path] if rest else []


def read_list(engine):
    with open(os.path.join(LISTS, f"routes-{engine}.txt")) as f:
        return {(method, path): verdict for verdict, method, path in (line.split() for line in f if not line.startswith("#"))}


def routes(t):
    env = os.environ | {"SGLANG_USE_CPU_ENGINE": "1", "VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}
    out = subprocess.run([f"{t.setup.dir}/env-{t.engine}/bin/python", os.path.join(HERE, "routes.py"), t.engine], env=env, capture_output=True, text=True,
                         timeout=600, check=True).stdout
    return {tuple(line.split()) for line in out.splitlines()}


def replies(t, port):
    """Greedy replies of the base model and an adapter."""
    base = json.loads(ask(port, "GET", "/v1/models")[1])["data"][0]["id"]
    texts = []
    for model in (base, "lora0"):
        body = {"model": model, "prompt": [5, 6, 7, 8], "max_tokens": 24, "temperature": 0}
        status, text = ask(port, "POST", "/v1/completions", body)
        texts.append(json.loads(text)["choices"][0]["text"] if status == 200 else f"status {status}: {text}")
    return texts


def files(*folders):
    return {os.path.join(f, name) for folder in folders for f, _, names in os.walk(folder) for name in names}


def run(t):
    folder = t.file("profiles")
    os.makedirs(folder)
    flags = ["--api-key", WORKER]
    if t.engine == "vllm":
        flags += ["--enable-tokenizer-info-endpoint", "--profiler-config", json.dumps({"profiler": "torch", "torch_profiler_dir": folder})]
    worker = Worker(t.setup, t.engine, 2, env={"VLLM_SERVER_DEV_MODE": "1", "SGLANG_TORCH_PROFILER_DIR": folder}, flags=flags)
    try:
        worker.start()
        worker.ready(1200)
        with t.gateway("gateway", "--admin-listen", "none", "--gateway-key", CLIENT, urls=worker.url, adapters=1, env={"LORASIM_WORKER_KEY": WORKER}) as g:
            inspect(t, worker, g.port, folder)
    finally:
        worker.stop()


def inspect(t, worker, port, folder):
    verdicts, found = read_list(t.engine), routes(t)
    t.expect(f"routes as in testdata/routes-{t.engine}.txt, not also {sorted(found - set(verdicts))} without {sorted(set(verdicts) - found)}", found == set(verdicts))
    t.expect("no access without the client's key", ask(port, "GET", "/v1/models", key="x")[0] == 401)
    before, state = replies(t, port), models(worker)
    t.expect(f"replies, not {before}", not any(text.startswith("status") for text in before))
    present = files(folder, t.setup.model)
    asked, reached, wrong = 0, {}, []
    for method, path in sorted(found):
        if method in ("WEBSOCKET", "MOUNT"):
            method = "GET"
        plain = re.sub(r"\{[^}]*\}", "x", path)
        verdict = verdicts[method, path] if (method, path) in verdicts else "deny"
        # a client may only do it the way that is on the list; writing it otherwise, or with other methods, must not help
        tries = [(method, plain, ())]
        if verdict == "deny":
            tries += [(method, other, ()) for other in spellings(plain)]
            tries += [("POST", "/v1/completions", ((name, value),)) for name, value in (("X-HTTP-Method-Override", method), ("X-Original-URL", plain), ("X-Rewrite-URL", plain))]
            tries += [("GET", plain, (("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"), ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")))]
        for verb, target, headers in tries:
            asked += 1
            mark = f"walk={asked}."
            status, text = ask(port, verb, target + "?" + mark, harm(t, plain, folder), headers=headers)
            reached[mark] = (method, path, verdict, verb, target, status)
            if verdict == "deny" and target != "/v1/completions" and status not in (404, 405):
                wrong.append(f"{verb} {target}: {status} {text[:100]}")
    lines = "\n".join(worker.lines())
    got = set(re.findall(r"walk=\d+\.", lines))
    for mark, (method, path, verdict, verb, target, status) in reached.items():
        if mark in got and verdict != "allow" and target != "/v1/completions":
            wrong.append(f"{verb} {target} reached the worker")
    for method, path in (r for r, verdict in verdicts.items() if verdict == "deny"):  # also by headers or odd spellings
        if re.search(rf'"{method} {re.escape(path)}\?walk=', lines):
            wrong.append(f"{method} {path} is in the worker's log")
    allowed = [m for m, r in reached.items() if r[2] == "allow"]
    t.fact("routes", len(found))
    t.fact("requests", asked)
    t.fact("for clients", len(allowed))
    t.fact("of these reached the worker", sum(m in got for m in allowed))
    t.expect(f"only what is for clients reaches the worker, not {wrong[:5]} and {max(len(wrong) - 5, 0)} more", not wrong)
    t.expect(f"what is for clients reaches the worker, not {[reached[m][:2] for m in allowed if m not in got]}", all(m in got for m in allowed))
    after = replies(t, port)
    t.expect(f"the same replies as before, not {after} instead of {before}", after == before)
    t.expect("the same models and sessions as before", models(worker) == state)
    t.expect(f"no new files, not {sorted(files(folder, t.setup.model) - present)[:3]}", files(folder, t.setup.model) == present)
    if t.engine == "sglang":  # what the checks above would have seen
        status, _ = ask(worker.port, "POST", "/weights_checker", {"action": "reset_tensors"}, key=WORKER)
        t.fact("weights reset directly", status)
        t.expect("other replies after the weights were reset directly", replies(t, port) != before)


def models(worker):
    listed = json.loads(ask(worker.port, "GET", "/v1/models", key=WORKER)[1])["data"]
    return sorted(m["id"] for m in listed)
