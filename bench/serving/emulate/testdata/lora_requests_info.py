"""Writes vllm.prom: the page of vLLM's own LoRA metric after the steps of steps.txt.

    PYTHONPATH=VLLM python3 lora_requests_info.py < steps.txt > vllm.prom

VLLM is a folder that holds the package vllm, 0.32.0 or 0.33.0 (both write the same bytes). The states are vLLM's own;
the gauge is made and set as PrometheusStatLogger does (vllm/v1/metrics/loggers.py).
"""

import sys

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from vllm.v1.engine import EngineCoreEvent, EngineCoreEventType
from vllm.v1.metrics.stats import IterationStats, LoRARequestStates, RequestStateStats, SchedulerStats

registry = CollectorRegistry()
gauge = Gauge(
    name="vllm:lora_requests_info",
    documentation="Running stats on lora requests.",
    multiprocess_mode="sum",
    labelnames=["max_lora", "waiting_lora_adapters", "running_lora_adapters"],
    registry=registry,
)
states = LoRARequestStates(log_stats=True)
adapters = {}
for line in sys.stdin:
    if line.startswith("#"):
        continue
    at, *events = line.split()
    scheduler, iteration = SchedulerStats(), IterationStats()
    for e in events:
        request, _, adapter = e[1:].partition(":")
        if e[0] == "+":
            adapters[request] = None if adapter == "base" else adapter
            came = [EngineCoreEvent(type=t, timestamp=float(at))
                    for t in (EngineCoreEventType.QUEUED, EngineCoreEventType.SCHEDULED)]
            iteration.update_from_events(request, came, True, RequestStateStats(), states, adapters[request])
        else:
            states.request_finished(request, adapters[request])
    states.update_scheduler_stats(scheduler)
    gauge.labels(
        running_lora_adapters=",".join(scheduler.running_lora_adapters.keys()),
        waiting_lora_adapters=",".join(scheduler.waiting_lora_adapters.keys()),
        max_lora=2,
    ).set(float(at))
sys.stdout.write(generate_latest(registry).decode())
