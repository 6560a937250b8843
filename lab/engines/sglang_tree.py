#!/usr/bin/env python3
"""Records random operations on sglang's own radix cache: testdata of router/prefix.

    sglang_tree.py OUT.json --seed dev --cases 40 [--backend rust|python]

Run it with the Python of the environment that setup-sglang made. A case has a page size and operations in order; each
has what the cache answered, and the tokens that may be evicted and that are held after it. Prompts are parts of (seed,
tokens), so equal beginnings have equal tokens.

  match   a waiting request looks for the first `tokens` tokens of a text
  take    the same, and request `id` holds what it found
  add     request `id` has computed the first `tokens` tokens of its text, of which `prompt` are its prompt
  release request `id` ends
  evict   `tokens` tokens are needed
"""
import argparse
import json
import random
from array import array

import torch
from sglang.srt.mem_cache.base_prefix_cache import InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_cache.tree_core_registry import create_tree_core


class Cache:
    """sglang's tree with the calls of UnifiedRadixCache.checkpoint_into_tree, for one kind of memory."""

    def __init__(self, page, backend):
        components = {}
        params = CacheInitParams(disable=False, req_to_token_pool=None, token_to_kv_pool_allocator=None, page_size=page,
                                 tree_components=(ComponentType.FULL,))
        if backend == "python":
            from sglang.srt.mem_cache.unified_cache.components.full import FullComponent

            owner = type("Owner", (), {"enable_session_radix_cache": False, "token_to_kv_pool_allocator": None,
                                       "is_swa_enabled": False, "page_size": page})()
            components[ComponentType.FULL] = FullComponent(owner, params)
        self.page, self.tree, self.locks = page, create_tree_core(backend, params, components), {}

    def key(self, tokens, adapter):
        return RadixKey(array("q", tokens), f"lora{adapter}")

    def match(self, tokens, adapter):
        return self.tree.match_prefix(MatchPrefixParams(key=self.key(tokens, adapter)))

    def lock(self, who, node):
        self.locks[who] = (node, self.tree.inc_lock_ref(node))

    def unlock(self, who):
        if who in self.locks:
            node, result = self.locks.pop(who)
            self.tree.dec_lock_ref(node, result.to_dec_params())

    def insert(self, tokens, adapter, prefix):
        value = torch.arange(len(tokens), dtype=torch.int64)
        step = self.tree.begin_insert(InsertParams(key=self.key(tokens, adapter), value=value, prev_prefix_len=prefix))
        while step.result is None:
            step = self.tree.resume_insert()
        self.tree.end_insert()
        return step.result

    def add(self, who, tokens, prompt, adapter):
        whole = len(tokens) // self.page * self.page
        node = self.insert(tokens, adapter, 0).last_device_node
        if 0 < prompt // self.page * self.page < whole:
            self.insert(tokens[:prompt], adapter, prompt)
        self.unlock(who)
        self.lock(who, node)

    def evict(self, tokens):
        tracker = {ComponentType.FULL: 0}
        self.tree.evict_device_start(ComponentType.FULL, tokens)
        while tracker[ComponentType.FULL] < tokens:
            step = self.tree.evict_device_next_node(ComponentType.FULL, tracker)
            if step.node_id is None:
                break
            leaf = self.tree.evict_device_leaf(step.node_id, False)
            for component, n in leaf.tracker.items():
                tracker[component] += n
            leaf.device_frees.clear()  # there is no memory behind this tree
        self.tree.evict_device_end(ComponentType.FULL)
        return tracker[ComponentType.FULL]

    def sizes(self):
        return [self.tree.full_evictable_size(), self.tree.full_protected_size()]


def tokens_of(parts):
    tokens = []
    for seed, n in parts:
        r = random.Random(seed)
        r.random()
        tokens += [r.randrange(1 << 30) for _ in range(n)]
    return tokens


def draw_case(r, backend):
    page = r.choice([1, 1, 1, 4])
    cache, operations, running, old = Cache(page, backend), [], {}, []
    longest, adapters, limit = r.choice([6, 12, 40]), r.choice([1, 1, 3]), r.choice([40, 100, 300])

    def note(**operation):
        operations.append(dict(operation, sizes=cache.sizes()))

    def text():
        if old and r.random() < 0.4:  # as another request, or further
            parts, adapter = r.choice(old)
            parts = [list(p) for p in parts]
            if r.random() < 0.5:
                parts[-1][1] = r.randrange(1, parts[-1][1] + 1)
        else:
            parts, adapter = [[r.randrange(3), r.randrange(1, longest)]], r.randrange(adapters)
        if r.random() < 0.7:
            parts.append([r.randrange(100, 1 << 20), r.randrange(1, longest)])
        return parts, adapter

    for _ in range(r.choice([40, 150])):
        kind = r.choice(["match", "take", "take", "add", "add", "release", "evict"])
        if kind in ("match", "take"):
            parts, adapter = text()
            tokens = tokens_of(parts)
            n = max(len(tokens) - 1, 1)
            found = cache.match(tokens[:n], adapter)
            who = len(operations)
            if kind == "take":
                cache.lock(who, found.last_device_node)
                reply = r.randrange(0, longest)
                parts.append([r.randrange(1 << 20, 1 << 30), reply + 1])
                running[who] = [parts, adapter, len(tokens), reply, False]
                old.append((parts, adapter))
            note(op=kind, id=who, parts=parts, adapter=adapter, tokens=n, want=found.device_prefix_len)
        elif kind == "evict":
            n = max(sum(cache.sizes()) - limit, 0) + r.randrange(longest)
            note(op=kind, tokens=n, want=cache.evict(n))
        elif running:
            who = r.choice(list(running))
            parts, adapter, prompt, reply, computed = running[who]
            if kind == "add" or not computed:
                n = prompt + (r.randrange(reply + 1) if computed or r.random() < 0.3 else 0)
                cache.add(who, tokens_of(parts)[:n], prompt, adapter)
                running[who][4] = True
                note(op="add", id=who, prompt=prompt, tokens=n)
            else:
                del running[who]
                if r.random() < 0.7:
                    cache.add(who, tokens_of(parts)[:prompt + reply], prompt, adapter)
                    note(op="add", id=who, prompt=prompt, tokens=prompt + reply)
                cache.unlock(who)
                note(op="release", id=who)
    return {"page": page, "operations": operations}


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("out")
    a.add_argument("--seed", default="dev")
    a.add_argument("--cases", type=int, default=40)
    a.add_argument("--backend", default="rust", choices=["rust", "python"])
    o = a.parse_args()
    cases = [draw_case(random.Random(f"{o.seed}-{k}"), o.backend) for k in range(o.cases)]
    with open(o.out, "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
