"""Replays a trace with Dynamo's offline replay and prints its report: TRACE WORKERS BLOCK ENGINE"""

import json
import sys

from dynamo.replay import run_trace_replay

trace, workers, block, engine = sys.argv[1:]
report = run_trace_replay(
    trace,
    num_workers=int(workers),
    router_mode="round_robin",
    trace_block_size=int(block),
    extra_engine_args={"engine": json.loads(engine)},
)
print(json.dumps(report.summary))
