"""run.py --dir DIR --lorasim FILE [--engines LIST] [--cases LIST] ...: the cases of
cases/ on two workers of each engine. Prints a table, and writes its rows as JSON
lines to OUT/results.jsonl. See lab/real-engines."""

import argparse
import importlib.util
import json
import os
import signal
import sys
import time
import traceback

from harness import HERE, RATES, Case, Setup, Worker


def load_cases(names):
    """The cases by name, in the order of their files."""
    cases = {}
    for file in sorted(os.listdir(os.path.join(HERE, "cases"))):
        if not file.endswith(".py"):
            continue
        name = file[:-3].split("_", 1)[1]  # 10_check.py
        spec = importlib.util.spec_from_file_location(name, os.path.join(HERE, "cases", file))
        cases[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(cases[name])
    if unknown := set(names) - set(cases):
        sys.exit(f"real-engines: no case {sorted(unknown)[0]}, expected some of {', '.join(cases)}")
    return {n: c for n, c in cases.items() if not names or n in names}


def parts_of(chosen):
    """The cases of a list NAME,NAME:PART+PART,... and their parts; []: all."""
    return {name: list(filter(None, parts.split("+"))) for name, _, parts in (c.partition(":") for c in chosen.split(",") if c)}


def run_case(setup, name, module, engine, workers, parts):
    for w in workers:  # one that an earlier case has lost
        if not w.answers():
            w.stop()
            w.start()
            w.ready()
    t = Case(setup, name, engine, workers, parts)
    begun = time.monotonic()
    try:
        module.run(t)
    except Exception as e:
        traceback.print_exc()
        t.expect(f"{type(e).__name__}: {e}", False)
    return {"case": name, "engine": engine, "ok": not t.failed(), "seconds": round(time.monotonic() - begun), "failed": t.failed(), "facts": t.facts}


def print_table(rows):
    print(f"\n{'case':14} {'engine':7} {'result':7} {'s':>4}  facts")
    for r in rows:
        facts = ", ".join(f"{k} {v}" for k, v in r["facts"].items())
        print(f"{r['case']:14} {r['engine']:7} {'ok' if r['ok'] else 'FAILED':7} {r['seconds']:4}  {facts}")
        for what in r["failed"]:
            print(f"    expected: {what}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--dir", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--lorasim", required=True)
    p.add_argument("--engines", default="vllm,sglang")
    p.add_argument("--cases", default="")
    p.add_argument("--port", type=int, default=31000)
    p.add_argument("--requests", type=int, default=500)
    p.add_argument("--rate", type=float, help="requests/s (default: %s)" % ", ".join(f"{e} {r}" for e, r in RATES.items()))
    a = p.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(130))
    parts = parts_of(a.cases)
    cases = load_cases(list(parts))
    for name, some in parts.items():
        if unknown := set(some) - set(getattr(cases[name], "PARTS", ())):
            sys.exit(f"real-engines: case {name} has no part {sorted(unknown)[0]}, expected some of {', '.join(getattr(cases[name], 'PARTS', ()))}")
    setup = Setup(a.dir, a.out, a.lorasim, a.port, a.requests, a.rate)
    rows = []
    try:
        for engine in a.engines.split(","):
            workers = [Worker(setup, engine, i) for i in range(max((getattr(c, "WORKERS", 2) for c in cases.values()), default=2))]
            try:
                for w in workers:
                    w.start()
                for w in workers:
                    w.ready()
                for name, module in cases.items():
                    if engine not in module.ENGINES:
                        continue
                    print(f"{time.strftime('%H:%M:%S')} {engine}: {name}", file=sys.stderr, flush=True)
                    rows.append(run_case(setup, name, module, engine, workers, parts.get(name)))
                    with open(os.path.join(a.out, "results.jsonl"), "a") as f:
                        f.write(json.dumps(rows[-1]) + "\n")
            finally:
                for w in workers:
                    w.stop()
    finally:
        print_table(rows)
    sys.exit(not rows or any(not r["ok"] for r in rows))


main()
