#!/usr/bin/env python3
"""Makes cases for vLLM's own scheduler and records its steps; no model runs, and no clock.

    vllm_steps.py MODEL DIR --seed 1 --cases 40 [--async-scheduling] [--priority]   # writes DIR/NAME.case.json
    vllm_steps.py MODEL DIR                                                         # records DIR/NAME.steps.jsonl

MODEL is what make_model.py made. `lorasim profile check vllm-steps DIR` holds its scheduler against the steps.
For a vLLM that has no build for the CPU, unpack its wheel and put it first in PYTHONPATH: the scheduler is Python.

A case is as in the README of testdata/vllm in bench/fidelity/decisions, with `async_scheduling`, `vllm_version` and, for
each request, `max_tokens`: where it is larger than `output`, a stop token ends the request.

With async_scheduling the calls follow EngineCore.step_with_batch_queue of v1/engine/core.py with a queue of two
batches: a step calls schedule(), and update_from_output() of the older batch where two are in the queue or schedule()
had nothing to give. `finished` are the requests that end in that update; running, waiting and free are as of its end.
"""
import argparse
import glob
import json
import os
import random

SAMPLED, STOP = 7, 8


def make_case(seed, k, asynchronous, priority):
    """One random case: small memories, few seats and slots, prompts shared or not."""
    r = random.Random(f"{seed}-{k}")
    long = r.random() < 0.4
    prefixes = r.random() < 0.5
    loras = r.choice([0, 0, 1, 2, 4])
    block = r.choice([16, 16, 4])
    model_len = r.choice([4096, 4096, 600])
    need = min(model_len, 700 if long else 300)
    case = dict(max_loras=loras, max_num_seqs=r.choice([2, 4, 8, 16, 64]),
                max_num_batched_tokens=r.choice([64, 128, 256, 2048]), max_model_len=model_len, block_size=block,
                num_blocks=need // block + 2 + r.choice([0, 5, 30, 100, 1000]), prefix_caching=prefixes,
                long_prefill_token_threshold=r.choice([0, 0, 0, 48]))
    if asynchronous:
        case["async_scheduling"] = True
    if priority:
        case["policy"] = "priority"
        case["priorities"] = [r.randrange(4) for _ in range(10)]
    requests, texts = [], [(100 + s, r.randrange(10, 200)) for s in range(4)]
    spread = r.choice([0, 0, 30, 200])
    top = (case["num_blocks"] - 1) * block
    for i in range(r.choice([10, 20, 40, 60])):
        prompt = r.randrange(1, r.choice([20, 100, 400 if long else 150]))
        budget = r.randrange(1, r.choice([4, 30, 120]))
        parts = [[5000 + i, prompt]]
        if prefixes and r.random() < 0.7:
            parts = [list(r.choice(texts))]
            if r.random() < 0.4:
                parts.append([-1, r.randrange(1, 40)])
            if r.random() < 0.8:
                parts.append([5000 + i, r.randrange(1, 60)])
        n = sum(p[1] for p in parts)
        if n + 1 > min(model_len - 1, top):
            parts, n = [[5000 + i, 5]], 5
        over = r.random() < 0.05  # its budget goes beyond the longest sequence
        if not over:
            budget = min(budget, min(model_len, top + 1) - n)
        else:
            budget = model_len
        if over and model_len > top + 1:
            budget = top + 1 - n
        output = budget
        if asynchronous and r.random() < 0.4:
            output = r.randrange(1, min(budget, min(model_len, top + 1) - n) + 1)
        q = dict(id=i, step=r.randrange(spread + 1) if r.random() < 0.8 else 0, adapter=r.randrange(-1, 10),
                 parts=parts, output=min(output, min(model_len, top + 1) - n))
        if asynchronous:
            q["max_tokens"] = budget
        requests.append(q)
    if priority:  # of equals the earlier one goes first: ids and arrivals in one order
        requests.sort(key=lambda q: (q["step"], q["id"]))
        for i, q in enumerate(requests):
            q["id"] = i
    case["requests"] = requests
    return case


class Recorder:
    """One scheduler of vLLM, made for a case."""

    def __init__(self, model, case):
        import torch
        from vllm.config import (CacheConfig, DeviceConfig, LoRAConfig, ModelConfig, ParallelConfig, SchedulerConfig,
                                 VllmConfig)
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.structured_output import StructuredOutputManager
        init_none_hash(sha256)
        self.case, self.asynchronous = case, case.get("async_scheduling", False)
        mc = ModelConfig(model=model + "/base", tokenizer=model + "/base", dtype="float32", seed=0,
                         max_model_len=case.get("max_model_len", 4096))
        cc = CacheConfig(block_size=case["block_size"], gpu_memory_utilization=0.9,
                         enable_prefix_caching=case.get("prefix_caching", False))
        sc = SchedulerConfig(max_num_seqs=case["max_num_seqs"], max_num_batched_tokens=case["max_num_batched_tokens"],
                             max_model_len=mc.max_model_len, enable_chunked_prefill=True, is_encoder_decoder=False,
                             long_prefill_token_threshold=case.get("long_prefill_token_threshold", 0),
                             policy=case.get("policy") or "fcfs", async_scheduling=self.asynchronous)
        self.lora = LoRAConfig(max_loras=case["max_loras"], max_lora_rank=8,
                               max_cpu_loras=max(case["max_loras"], 64)) if case["max_loras"] else None
        vc = VllmConfig(model_config=mc, cache_config=cc, scheduler_config=sc, lora_config=self.lora,
                        device_config=DeviceConfig("cpu"), parallel_config=ParallelConfig())
        sc.async_scheduling = self.asynchronous  # the platform of the CPU may turn it off
        cc.num_gpu_blocks = case["num_blocks"]
        spec = FullAttentionSpec(block_size=case["block_size"], num_kv_heads=1, head_size=1, dtype=torch.float32)
        kv = KVCacheConfig(num_blocks=case["num_blocks"], kv_cache_tensors=[],
                           kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])
        self.scheduler = (AsyncScheduler if self.asynchronous else Scheduler)(
            vllm_config=vc, kv_cache_config=kv, structured_output_manager=StructuredOutputManager(vc),
            block_size=case["block_size"], log_stats=False)
        self.hasher = get_request_block_hasher(case["block_size"], sha256) if cc.enable_prefix_caching else None
        self.todo = sorted(case["requests"], key=lambda r: (r["step"], r["id"]))
        self.outputs = {str(r["id"]): r["output"] for r in self.todo}
        self.live, self.sampled, self.queue, self.ran = {}, {}, [], set()

    def request(self, r):
        from vllm.lora.request import LoRARequest
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request
        prompt = []
        for seed, n in r["parts"]:
            rnd = random.Random(seed)
            prompt += [SAMPLED] * n if seed == -1 else [rnd.randrange(10, 2000) for _ in range(n)]
        lora = LoRARequest(f"lora{r['adapter']}", r["adapter"] + 1, "none") if r["adapter"] >= 0 and self.lora else None
        budget = r.get("max_tokens", r["output"])
        params = SamplingParams(max_tokens=budget, ignore_eos=True, temperature=0, stop_token_ids=[STOP])
        kinds = self.case.get("priorities", [])
        priority = kinds[r["adapter"]] if self.lora and 0 <= r["adapter"] < len(kinds) else 0
        return Request(request_id=str(r["id"]), prompt_token_ids=prompt, sampling_params=params, pooling_params=None,
                       lora_request=lora, arrival_time=float(r["step"]) + r["id"] * 1e-6, block_hasher=self.hasher,
                       priority=priority)

    def sample(self, out):
        """What the model gives: a token for each request whose tokens are all computed by the end of the step."""
        tokens = {}
        for i in out.num_scheduled_tokens:
            q = self.live[i]
            if q.is_prefill_chunk:
                tokens[i] = []
                continue
            self.sampled[i] = self.sampled.get(i, 0) + 1
            stop = self.sampled[i] == self.outputs[i] and q.max_tokens > self.outputs[i]
            tokens[i] = [STOP if stop else SAMPLED]
        return tokens

    def update(self):
        from vllm.v1.outputs import ModelRunnerOutput
        out, tokens = self.queue.pop(0)
        ids = list(out.num_scheduled_tokens)
        self.scheduler.update_from_output(out, ModelRunnerOutput(
            req_ids=ids, req_id_to_index={i: k for k, i in enumerate(ids)}, sampled_token_ids=[tokens[i] for i in ids]))
        done = [i for i, q in self.live.items() if q.is_finished()]
        for i in done:
            del self.live[i]
        return done

    def step(self, number):
        s = self.scheduler
        while self.todo and self.todo[0]["step"] <= number:
            q = self.request(self.todo.pop(0))
            self.live[q.request_id] = q
            s.add_request(q)
        out = s.schedule()
        ids, cached = list(out.num_scheduled_tokens), out.scheduled_cached_reqs
        come = {d.req_id: d.num_computed_tokens for d in out.scheduled_new_reqs}  # with runner V2 resumed ones, too
        come.update({i: n for i, n in zip(cached.req_ids, cached.num_computed_tokens)
                     if i in getattr(cached, "resumed_req_ids", set())})
        new, resumed = [i for i in come if i not in self.ran], [i for i in come if i in self.ran]
        self.ran.update(new)
        if ids:
            self.queue.append((out, self.sample(out)))
        done = []
        if len(self.queue) == (2 if self.asynchronous else 1) or self.queue and not ids:
            done = self.update()
        return dict(step=number, tokens=out.num_scheduled_tokens, new=new, resumed=resumed,
                    preempted=sorted(out.preempted_req_ids or []), finished=done,
                    running=len(s.running), waiting=len(s.waiting), skipped=len(getattr(s, "skipped_waiting", [])),
                    free=s.kv_cache_manager.block_pool.get_num_free_blocks(), computed=come)


def record(model, path):
    with open(path, encoding="utf-8") as f:
        case = json.load(f)
    r, lines = Recorder(model, case), []
    while r.todo or r.live or r.queue:
        lines.append(json.dumps(r.step(len(lines)), separators=(",", ":")))
        if len(lines) > 20000:
            raise SystemExit(f"{path}: no end")
    with open(path.replace(".case.json", ".steps.jsonl"), "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("model")
    a.add_argument("dir")
    a.add_argument("--seed")
    a.add_argument("--cases", type=int, default=40)
    a.add_argument("--async-scheduling", action="store_true")
    a.add_argument("--priority", action="store_true")
    a.add_argument("--vllm-version", help="written into the cases, e.g. 0.33")
    o = a.parse_args()
    if o.seed:
        os.makedirs(o.dir, exist_ok=True)
        for k in range(o.cases):
            case = make_case(o.seed, k, o.async_scheduling, o.priority)
            if o.vllm_version:
                case["vllm_version"] = o.vllm_version
            with open(f"{o.dir}/{o.seed}-{k:02}.case.json", "w", encoding="utf-8") as f:
                json.dump(case, f)
        return
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    for path in sorted(glob.glob(o.dir + "/*.case.json")):
        record(o.model, path)


main()
