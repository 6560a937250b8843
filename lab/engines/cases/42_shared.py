"""Another client uses the workers, too: it loads and unloads adapters of its own,
sends requests for them, and unloads those of the run that the engine says are
idle. It is careful as vLLM needs it: it never loads a name whose requests go on."""

import itertools
import re
import threading

from harness import call

ENGINES = ("vllm", "sglang")


def unload_path(engine):
    return "/v1/unload_lora_adapter" if engine == "vllm" else "/unload_lora_adapter"


def in_use(worker):
    """Adapters that vLLM names in its newest sample."""
    samples = re.findall(r'^vllm:lora_requests_info{.*running_lora_adapters="([^"]*)".*} (\S+)$', call(worker.url + "/metrics")[1], re.M)
    return max(samples, key=lambda s: float(s[1]), default=("", 0))[0].split(",")


def ask(t, worker, adapter):
    if t.engine == "vllm":
        return call(worker.url + "/v1/completions", {"model": adapter, "prompt": [5, 6, 7], "max_tokens": 8})
    return call(worker.url + "/generate", {"input_ids": [5, 6, 7], "lora_path": adapter, "sampling_params": {"max_new_tokens": 8}})


def other(t, over, counts):
    """One round after the other until the run is over; refusals of its own requests
    and loads count as wrong."""
    load, unload = unload_path(t.engine).replace("unload", "load"), unload_path(t.engine)
    for n in itertools.count():
        worker = t.workers[n % 2]
        own = f"other{n % 3}"
        for path, body in ((load, {"lora_name": own, "lora_path": f"{t.setup.model}/lora{n % 3}"}), (None, own), (unload, {"lora_name": own})):
            status, text = call(worker.url + path, body) if path else ask(t, worker, body)
            counts["other's calls"] += 1
            if status != 200 and not re.search("not exist|cannot be found|not loaded", text):  # sglang may have dropped it
                counts["wrong"].append(f"{path or 'request'} {own}: {status} {text[:200]}")
        theirs = f"lora{n % 16}"
        if t.engine == "sglang" or theirs not in in_use(worker):
            counts["taken away"] += call(worker.url + unload, {"lora_name": theirs})[0] == 200
        if over.wait(0.3):
            return


def run(t):
    t.reference()
    over, counts = threading.Event(), {"other's calls": 0, "taken away": 0, "wrong": []}
    beside = threading.Thread(target=other, args=(t, over, counts))
    beside.start()
    try:
        result = t.bench("dlora_period_mig:interval=2,threshold=4")
    finally:
        over.set()
        beside.join()
    t.judge(result, beside_others=True)
    wrong = counts.pop("wrong")
    t.expect(f"the other client was served, not {wrong[:2]}", not wrong)
    t.expect("adapters were taken away", counts["taken away"] > 0)
    for name, n in counts.items():
        t.fact(name, n)
