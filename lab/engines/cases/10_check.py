"""lorasim check tells what the workers were started with."""

import json

from harness import HELD, SLOTS

ENGINES = ("vllm", "sglang")


def run(t):
    code, stdout, stderr = t.lorasim("check", "--json", *t.urls.split(","))
    t.expect(f"exit code 0, not {code}: {stderr.strip()}", code == 0)
    for w in json.loads(stdout)["workers"]:
        told = {k: w[k] for k in ("api", "lora", "run_time_loading", "adapter_slots", "token_ids")}
        t.expect(f"what it is, not {told}", list(told.values()) == [t.engine, "on", "on", SLOTS, "on"])
        t.expect(f"KV tokens, not {w['kv_tokens']}", w["kv_tokens"] >= 65536)
        t.expect(f"the clock of this machine, not {w.get('clock')}", w.get("clock") and abs(w["clock"]["offset_s"]) <= w["clock"]["error_s"] + 0.05)
        if t.engine == "sglang":
            rest = [w["max_running_requests"], w["max_loaded_loras"], w["max_lora_rank"]]
            t.expect(f"limits, not {rest}", rest == [16, HELD, 8])
        t.fact("engine", f"{w['api']} {w['version']}")
        t.fact("clock_error_ms", round(1e3 * w["clock"]["error_s"]) if w.get("clock") else None)
