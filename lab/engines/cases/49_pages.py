"""The page of lorasim bench --ui and that of a gateway, in a real Chromium while requests run. Each shows the adapters
and the requests that the engines report, the latencies of the records, and the events of the run; an operator drains,
loads and unloads by it, and sees a worker that is killed. CHROMIUM names the browser's program."""

import json
import re
import signal
import time

from browser import Browser, find
from fleetpage import Engines, Watch, number, seconds
from harness import RATES, call, wait_for
from traffic import ask, load

ENGINES = ("vllm", "sglang")
LATENCIES = ("ttft", "tpot", "e2e")


def quantile(values, share):
    values, at = sorted(values), share * (len(values) - 1)
    low = values[int(at):][:2]
    return low[0] + (at - int(at)) * (low[-1] - low[0])


def latencies(file):
    """TTFT, TPOT and E2E latency of the records by worker, without the first quarter of the requests, as on the page."""
    with open(file) as f:
        records = sorted(map(json.loads, f), key=lambda r: (r["sent_s"], r["id"]))
    found = {}
    for r in records[len(records) // 4:]:
        at = found.setdefault(r["worker_last"], {k: [] for k in LATENCIES})
        at["ttft"].append(r["first_token_s"] - r["sent_s"])
        at["e2e"].append(r["finish_s"] - r["sent_s"])
        if r["output_tokens"] > 1:
            at["tpot"].append((r["finish_s"] - r["first_token_s"]) / (r["output_tokens"] - 1))
    return found


def judge_latencies(t, shown, records):
    """The last latencies of the page, of each metric, beside the records."""
    want, wrong, compared = latencies(records), [], 0
    for metric in LATENCIES:
        for row in shown[metric]:
            worker, cells = int(row[0]), row[1:]
            if number(cells[0]) != len(want[worker]["e2e"]):
                wrong.append((worker, "requests", cells[0], len(want[worker]["e2e"])))
            for share, cell in ((0.5, cells[1]), (0.9, cells[3]), (0.99, cells[5])):
                expected, got = quantile(want[worker][metric], share), seconds(cell)
                compared += 1
                if got is None or abs(got - expected) > 0.02 * expected + 0.002:
                    wrong.append((metric, worker, share, cell, round(expected, 4)))
            if None in (seconds(cells[2]), seconds(cells[4])):
                wrong.append((metric, worker, "no prediction", cells))
    t.fact("latencies", f"{compared} compared, {len(wrong)} wrong")
    t.expect(f"latencies as in the records, not {wrong[:3]}", compared == 18 and not wrong)


def judge_events(t, events, result):
    """The events of the page beside the run's result."""
    live = result["config"]["live"]
    count = {kind: sum(e[2] == kind for e in events) for kind in ("Load", "Unload", "Load failed", "Ejection", "Down")}
    moved = sum(int(number(e[3])) for e in events if e[2] == "Move")
    t.fact("events", f"{len(events)}: {count['Load']} loads, {count['Unload']} unloads, {moved} moved")
    for what, got, want in (("loads", count["Load"], live["adapter_loads"]), ("unloads", count["Unload"], live["adapter_unloads"]),
                            ("moved requests", moved, live["moved_requests"]), ("failed loads", count["Load failed"], 0),
                            ("ejections", count["Ejection"], 0), ("downs", count["Down"], 0)):
        t.expect(f"{what} among the events: {want}, not {got}", got == want)


def judge_result(t, shown, result):
    """The result block of the page beside the JSON object of the command."""
    for label, key in (("Successful requests", "completed"), ("Mean E2E Latency (ms)", "mean_e2e_latency_ms"), ("Mean TTFT (ms)", "mean_ttft_ms"),
                       ("Total generated tokens", "total_output_tokens")):
        m = re.search(rf"^{re.escape(label)}:\s+(\S+)", shown["result"], re.M)
        t.expect(f"{label} {result[key]} in the result, not {m and m[1]}", m and abs(number(m[1]) - result[key]) <= 0.006 * max(1, abs(result[key])))


def all_events(page):
    """Has the table show every event."""
    page.eval("[...document.querySelectorAll('#events button')].find(b => b.textContent.startsWith('Show all') && !b.hidden)?.click()")


def bench_page(t, browser):
    """A run with --ui, seen by somebody who opens the page that it names."""
    log, records, seen = t.file("bench.log"), t.file("records.jsonl"), {}

    def address():
        with open(log) as f:
            return re.search(r"page at (\S+)", f.read())

    def person():
        wait_for("the address of the page", address, 60)
        with Engines(t.workers) as engines:
            watch = seen["watch"] = Watch(browser.open(address()[1]), engines)
            part = 0
            while not seen.get("last"):
                shown = watch.look()
                m = re.match(r"(\d+) of (\d+) requests done, (\d+) failed", shown["run"])
                if m and int(m[1]) >= t.setup.requests // 2 and not part:
                    part = 1
                    watch.page.click("document.querySelector('#workers-more summary')")
                    watch.shots(t, "bench")
                if "The run" in shown["run"]:
                    seen["last"] = shown
                time.sleep(0.7)
        all_events(watch.page)
        seen["latencies"] = {}
        for metric in LATENCIES:
            watch.choose("Latency", metric)
            seen["latencies"][metric] = watch.look()["latency"]
        seen["events"] = watch.look()["events"]
        watch.shots(t, "bench-ended")

    result = t.bench("dlora_period_mig:interval=2,threshold=2", meanwhile=person, flags=["--ui", "--records", records])
    last, n = seen["last"], t.setup.requests
    words = f"The run has ended: {n} of {n} requests done, 0 failed, 0 in flight after"
    t.expect(f"{words!r}, not {last['run']!r}", last["run"].startswith(words))
    t.expect("all done", result["completed"] == n)
    t.expect(f"no tokens in the KV caches at the end, not {[w['kv'] for w in last['workers']]}", all(re.match("KV cache 0 of", w["kv"]) for w in last["workers"]))
    seen["watch"].judge(t, "bench")
    judge_latencies(t, seen["latencies"], records)
    judge_events(t, seen["events"], result)
    judge_result(t, last, result)


def button(word, worker):
    return f"""document.querySelector('button[aria-label="{word} worker {worker}"]')"""


def change(page, word, worker, adapter=None):
    """What a person does for a drain, a load or an unload; what the page says of it."""
    page.click(button(word, worker))
    if adapter:
        page.click("document.getElementById('adapter')")
        page.type(adapter)
    page.click("document.getElementById('yes')")
    status = "document.getElementById('outcome').textContent"
    wait_for(f"{word} on worker {worker}", lambda: re.search(r"on worker \d+: ", page.eval(status)), 10)
    return page.eval(status)


def state_of(watch, worker):
    return watch.look()["workers"][worker]["state"]


def drained(t, watch):
    """Drains worker 1 while requests run, and ends the drain."""
    said = change(watch.page, "Drain", 1)
    t.expect(f"the drain is done, not {said}", said.endswith("done"))
    wait_for("the page to show the drain", lambda: state_of(watch, 1) == "draining", 10)
    time.sleep(1)
    mark = t.workers[1].mark()
    time.sleep(4)
    late = t.workers[1].served(mark)  # engines log a request when it has ended
    wait_for("the last request there", lambda: number(watch.look()["workers"][1]["running"]) == 0, 60)
    mark = t.workers[1].mark()
    time.sleep(2)
    t.expect("no request on the worker that drains", t.workers[1].served(mark) == 0)
    watch.shots(t, "gateway-drain")
    change(watch.page, "Resume", 1)
    wait_for("requests there again", lambda: t.workers[1].served(mark) > 0, 60)
    return late


def killed(t, watch):
    """Kills worker 1 while requests run; it starts again."""
    victim, begun = t.workers[1], time.monotonic()
    victim.signal(signal.SIGKILL)
    wait_for("the page to show it down", lambda: "down" in state_of(watch, 1), 60)
    t.fact("down after", f"{time.monotonic() - begun:.1f} s")
    t.expect("1 of 2 workers take requests", watch.look()["summary"].startswith("1 of 2 workers take requests, 1 down"))
    watch.shots(t, "gateway-down")
    victim.stop()
    victim.start()
    victim.ready()
    wait_for("the page to show it up", lambda: "down" not in state_of(watch, 1), 60)


def placed(t, watch):
    """Unloads an adapter from worker 0 and loads it again, by the page, when no request runs."""
    def held():
        return {m["id"] for m in json.loads(call(t.workers[0].url + "/v1/models")[1])["data"] if m.get("parent")}

    adapter = min(held())
    said = change(watch.page, "Unload", 0, adapter)
    wait_for(f"{adapter} to go, {said}", lambda: adapter not in held(), 30)
    shown = lambda: watch.look()["workers"][0]
    wait_for("the page to show it gone", lambda: adapter not in shown()["slots"] + shown()["host"], 10)
    said = change(watch.page, "Load", 0, adapter)
    t.expect(f"the load is done, not {said}", said.endswith("done"))
    t.expect("the engine holds it again", adapter in held())
    wait_for("the page to show it", lambda: adapter in shown()["slots"] + shown()["host"], 10)
    said = change(watch.page, "Load", 0, "nobody")
    t.fact("load of nobody", said)
    t.expect(f"a load of an unknown adapter is refused by name, not {said}", "nobody" in said and not said.endswith("done"))
    watch.page.errors[:] = [e for e in watch.page.errors if "/load" not in e]  # browsers log a refused request


def gateway_page(t, browser):
    """A gateway under load, watched and changed by an operator."""
    with t.gateway("page", "--policy", "least-loaded") as g, Engines(t.workers) as engines:
        watch = Watch(browser.open(g.admin + "/admin/"), engines)

        def person():
            time.sleep(t.setup.requests / (t.setup.rate or RATES[t.engine]) / 8)
            for _ in range(6):
                watch.look()
                time.sleep(0.7)
            t.fact("served while it began to drain", drained(t, watch))
            killed(t, watch)

        ends = load(t, g.port, person)
        wait_for("the trial of the worker that was killed to end", lambda: [ask(t, g.port, i) for i in range(4)] and not state_of(watch, 1), 90)
        for _ in range(6):
            watch.look()
            time.sleep(0.7)
        watched = len(watch.samples)
        placed(t, watch)  # it compares by itself: an adapter may be gone for less than the readings tell
        del watch.samples[watched:]
        all_events(watch.page)
        shown = watch.look()
        watch.shots(t, "gateway-ended")
    wrong = {i: end for i, (end, _) in ends.items() if end not in ("whole", "told")}
    t.expect(f"whole replies and streams that end with an error event, not {dict(list(wrong.items())[:3])}", not wrong)
    watch.judge(t, "gateway")
    kinds = [e[2] for e in shown["events"]]
    for kind, least in (("Drain", 2), ("Down", 1), ("Up", 1), ("Load", 9), ("Unload", 1)):
        t.expect(f"{least} events {kind}, not {kinds.count(kind)}", kinds.count(kind) >= least)
    t.expect(f"no request is left, not {shown['summary']}", ", 0 requests running, 0 queued," in shown["summary"])


def run(t):
    binary = find()
    if binary is None:
        t.fact("SKIPPED", "no Chromium here (CHROMIUM names its program)")
        return
    with Browser(binary) as browser:
        bench_page(t, browser)
        gateway_page(t, browser)
    t.expect("engines alive", all(w.answers() for w in t.workers))
