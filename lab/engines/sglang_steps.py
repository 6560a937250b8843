#!/usr/bin/env python3
"""Records what a running sglang makes of scripted requests, batch by batch: cases for `lorasim profile check sglang-batches`.

    sglang_steps.py DIR MODEL OUT --seed dev --sets 10 --cases 4 [--tight] [--no-overlap] [--port 8399]

DIR is what setup-sglang made, MODEL what make_model.py made; OUT/SEED-SET-CASE.json are the cases. Each set is a server
with flags of its own, drawn from the seed. All requests of a case are sent first; the scheduler gets a request when
`step` batches of the case have been processed, or when it is idle. A request whose `max_tokens` is larger than its
`output` is ended by a stop token. `ids` of a batch are the requests in it, `first` those that got their first token
from one batch. With --no-overlap the server runs with --disable-overlap-schedule.

The server is this file, too (`--serve`): its scheduler, a process that imports this file, is patched at three places,
so that requests come when they are to, stop when they are to, and batches tell their requests.
"""
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

STOP, OTHER = 7, 8  # tokens


def patch():
    """Has the scheduler of this process follow the script that request IDs carry: CASE/REQUESTS/ID/STEP/OUTPUT."""
    from sglang.srt.managers.schedule_batch import Req
    from sglang.srt.managers.scheduler import Scheduler

    take, process, finish = Scheduler.process_input_requests, Scheduler.process_batch_result, Req.update_finish_state
    held, state = [], {"processed": 0, "open": False}

    def scripted(request):
        part = str(getattr(request, "rid", None) or "").split("/")
        return [int(x) for x in part[1:]] if len(part) == 5 and part[0].startswith("case") else None

    def process_input_requests(self, requests):
        now = []
        for r in requests:
            (held if scripted(r) else now).append(r)
        if held and not state["open"] and len(held) == scripted(held[0])[0]:
            state.update(open=True, processed=0)
            held.sort(key=lambda r: (scripted(r)[2], scripted(r)[1]))
        if state["open"]:
            while held and scripted(held[0])[2] <= state["processed"]:
                now.append(held.pop(0))
            if held and not now and self.is_fully_idle():
                now.append(held.pop(0))
            state["open"] = bool(held)
        take(self, now)

    def process_batch_result(self, batch, result):
        requests = [(scripted(r), r, len(r.output_ids)) for r in batch.reqs]
        if any(s for s, _, _ in requests):
            state["processed"] += 1
            print("@ids", json.dumps(sorted(s[1] for s, _, _ in requests)), flush=True)
        process(self, batch, result)
        first = [s[1] for s, r, n in requests if s and n == 0 and len(r.output_ids) > 0]
        if first:
            print("@first", json.dumps(sorted(first)), flush=True)

    def update_finish_state(self, accepted=1):
        s = scripted(self)
        if s and not self.finished() and len(self.output_ids) > 0:
            self.output_ids[-1] = STOP if len(self.output_ids) == s[3] else OTHER
        finish(self, accepted)

    Scheduler.process_input_requests = process_input_requests
    Scheduler.process_batch_result = process_batch_result
    Req.update_finish_state = update_finish_state


def draw_flags(r):
    """Flags of a server: few slots or seats, or little memory, which has requests retracted; chunks or none."""
    tight = r.random() < 0.6
    flags = {"--max-loras-per-batch": str(r.choice([3, 8] if tight else [1, 2, 4])),
             "--max-running-requests": str(r.choice([8, 16, 48] if tight else [2, 4, 16])),
             "--chunked-prefill-size": str(r.choice([-1, 32, 64, 128, 256])),
             "--max-total-tokens": str(r.choice([320, 480, 800] if tight else [2048, 16384])),
             "--page-size": str(r.choice([1, 1, 1, 16])),
             "--schedule-conservativeness": str(r.choice([0.1, 0.3] if tight else [0.3, 1.0]))}
    if flags["--chunked-prefill-size"] == "-1":
        flags["--max-prefill-tokens"] = str(r.choice([300, 700, 4096]))
    elif r.random() < 0.4 and int(flags["--chunked-prefill-size"]) > int(flags["--max-running-requests"]):
        flags["--enable-mixed-chunk"] = None
    if r.random() < 0.6:
        flags["--disable-radix-cache"] = None
    if r.random() < 0.25:
        flags["--enable-priority-scheduling"] = None
        if r.random() < 0.5:
            flags["--schedule-low-priority-values-first"] = None
        if r.random() < 0.5:
            flags["--priority-scheduling-preemption-threshold"] = str(r.choice([0, 2]))
    return flags


def tighten(r, flags):
    """Has nearly all requests of a case retracted: memory for a few of the outputs that are let in."""
    flags.update({"--max-loras-per-batch": "8", "--max-running-requests": str(r.choice([12, 24, 32])),
                  "--max-total-tokens": str(r.choice([192, 256])), "--schedule-conservativeness": "0.1"})


def draw_case(r, flags):
    """Requests that come before different batches; half of the cases end some of them by a stop token."""
    ignore, room = r.random() < 0.3, int(flags["--max-total-tokens"])
    stops = not ignore and r.random() < 0.6
    tight = [(20, 120), (12, 80), (40, 100)]  # prompts are admitted that leave no room for their outputs
    longest, budget = r.choice([(60, 30), (150, 60), (400, 60)] + (tight * 2 if room < 1000 else []))
    longest, budget = min(longest, room // 3), min(budget, room // 3)
    spread = r.choice([0, 0, 20, 80])
    requests = []
    for i in range(r.choice([10, 20, 36])):
        adapter = -1 if r.random() < 0.1 else min(9, int(r.paretovariate(0.9)) - 1)
        prompt, output = r.randrange(2, longest), r.randrange(1, r.choice([3, budget]))
        if room < 300:
            prompt, output = r.randrange(2, 16), r.randrange(10, 70)
        q = {"id": i, "adapter": adapter, "prompt": prompt, "output": output}
        if spread:
            q["step"] = r.randrange(spread)
        if stops and r.random() < 0.6:
            q["max_tokens"] = output + r.randrange(1, budget)
        if "--disable-radix-cache" not in flags and r.random() < 0.6:
            q["shared"] = [r.randrange(3), min(prompt - 1, 32 * r.randrange(1, 4))]
        requests.append(q)
    requests.sort(key=lambda q: q.get("step", 0))
    for i, q in enumerate(requests):
        q["id"] = i
    case = {"flags": flags, "ignore_eos": ignore, "requests": requests}
    if "--enable-priority-scheduling" in flags:
        case["priorities"] = [r.randrange(6) for _ in range(10)]
    return case


def prompt_of(q):
    r = random.Random(10000 + q["id"])
    tokens = [r.randrange(10, 1000) for _ in range(q["prompt"])]
    if "shared" in q:
        r = random.Random(q["shared"][0])
        shared = [r.randrange(10, 1000) for _ in range(q["shared"][1])]
        tokens[:len(shared)] = shared
    return tokens


def post(port, path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return answer.read()


def record(port, model, log, name, case):
    """Sends a case and returns what the server logged of it; IDs that it refused are put into the case."""
    requests, refused, failed = case["requests"], [], []
    for a in sorted({q["adapter"] for q in requests} - {-1}):
        try:
            post(port, "/unload_lora_adapter", {"lora_name": f"lora{a}"})
        except urllib.error.HTTPError:
            pass  # it was not there
        post(port, "/load_lora_adapter", {"lora_name": f"lora{a}", "lora_path": f"{model}/lora{a}"})
    post(port, "/flush_cache", {})
    time.sleep(0.3)
    at = os.path.getsize(log)

    def send(q):
        budget = q.get("max_tokens", q["output"])
        sampling = {"max_new_tokens": budget, "temperature": 0, "ignore_eos": case["ignore_eos"]}
        if not case["ignore_eos"]:
            sampling["stop_token_ids"] = [STOP]
        body = {"input_ids": prompt_of(q), "sampling_params": sampling,
                "rid": f"case{name}/{len(requests)}/{q['id']}/{q.get('step', 0)}/"
                       f"{q['output'] if budget > q['output'] else 0}"}
        if q["adapter"] >= 0:
            body["lora_path"] = f"lora{q['adapter']}"
        if "priorities" in case:
            body["priority"] = case["priorities"][q["adapter"]] if q["adapter"] >= 0 else 0
        try:
            post(port, "/generate", body)
        except urllib.error.HTTPError as e:
            (refused if "--max-queued-requests" in case["flags"] else failed).append(f"{q['id']}: {e.read()[:200]}")

    threads = [threading.Thread(target=send, args=(q,)) for q in requests]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    time.sleep(0.5)
    if failed:
        raise RuntimeError(failed[0])
    with open(log, encoding="utf-8") as f:
        f.seek(at)
        return parse(f)


def parse(lines):
    batches, first, ids = [], [], None
    for line in lines:
        if line.startswith("@ids "):
            ids = json.loads(line[5:])
        if line.startswith("@first "):
            first.append(json.loads(line[7:]))
        m = re.search(r"Prefill batch.*?#new-seq: (\d+), #new-token: (\d+), #cached-token: (\d+),"
                      r".*?#running-req: (\d+), #queue-req: (\d+)", line)
        if m:
            batches.append({"prefill": [int(x) for x in m.groups()], "ids": ids})
        m = re.search(r"Decode batch.*?#running-req: (\d+), #token: (\d+),.*#queue-req: (\d+)", line)
        if m:
            batches.append({"decode": [int(x) for x in m.groups()], "ids": ids})
        if "#retracted_reqs" in line:
            batches.append({"log": re.sub(r"^\[[^]]*\] ", "", line.strip())[:200]})
    return batches, first


def run_set(o, k):
    r = random.Random(f"{o.seed}-{k}")
    flags = draw_flags(r)
    if o.tight:
        tighten(r, flags)
    log = f"{o.out}/{o.seed}-{k}.log"
    env = dict(os.environ, SGLANG_USE_CPU_ENGINE="1", OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1",
               LORASIM_STEPS="1", SGLANG_ENABLE_WAITING_PREFIX_REFRESH="0")
    command = [f"{o.dir}/env-sglang/bin/python", os.path.abspath(__file__), "--serve", "--model-path",
               f"{o.model}/base", "--host", "127.0.0.1", "--port", str(o.port), "--device", "cpu", "--dtype", "float32",
               "--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--lora-backend", "torch_native",
               "--enable-lora", "--max-lora-rank", "8", "--lora-target-modules", "all", "--max-loaded-loras", "16",
               "--context-length", "2048", "--disable-cuda-graph", "--decode-log-interval", "1",
               "--skip-server-warmup"]
    if o.no_overlap:
        command.append("--disable-overlap-schedule")
    for name, value in flags.items():
        command += [name] if value is None else [name, value]
    with open(log, "w", encoding="utf-8") as f:
        server = subprocess.Popen(command, stdout=f, stderr=subprocess.STDOUT, env=env, start_new_session=True)
    try:
        for _ in range(600):
            time.sleep(1)
            with open(log, encoding="utf-8") as f:
                if "fired up" in f.read():
                    break
            if server.poll() is not None:
                raise RuntimeError(f"the server of {log} ended")
        else:
            raise RuntimeError(f"the server of {log} does not start")
        for c in range(o.cases):
            case, name = draw_case(r, flags), f"{o.seed}-{k}-{c}"
            try:
                batches, first = record(o.port, o.model, log, name, case)
            except (RuntimeError, OSError) as e:
                print(name, "failed:", repr(e)[:300], flush=True)
                if server.poll() is not None or isinstance(e, OSError):
                    return
                continue
            if not o.no_overlap:
                case["overlap_schedule"] = True
            case.update(batches=batches, first=first)
            write(f"{o.out}/{name}.json", case)
            print(name, len(case["requests"]), "requests", len(batches), "batches", flush=True)
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def write(path, case):
    """Writes a case, a line for each request and batch."""
    with open(path, "w", encoding="utf-8") as f:
        f.write("{\n")
        for k, (key, value) in enumerate(case.items()):
            rows = key in ("requests", "batches")
            text = "[\n" + ",\n".join(json.dumps(v) for v in value) + "\n]" if rows else json.dumps(value)
            f.write(("" if k == 0 else ",\n") + f'"{key}": {text}')
        f.write("\n}\n")


def main():
    import argparse
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("dir")
    a.add_argument("model")
    a.add_argument("out")
    a.add_argument("--seed", default="dev")
    a.add_argument("--from-set", type=int, default=0)
    a.add_argument("--sets", type=int, default=10)
    a.add_argument("--cases", type=int, default=4)
    a.add_argument("--port", type=int, default=8399)
    a.add_argument("--tight", action="store_true", help="have requests retracted")
    a.add_argument("--no-overlap", action="store_true")
    o = a.parse_args()
    os.makedirs(o.out, exist_ok=True)
    for k in range(o.from_set, o.from_set + o.sets):
        run_set(o, k)


if os.environ.get("LORASIM_STEPS"):
    patch()
if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        from sglang.launch_server import run_server
        from sglang.srt.server_args import prepare_server_args
        run_server(prepare_server_args(sys.argv[2:]))
    else:
        main()
