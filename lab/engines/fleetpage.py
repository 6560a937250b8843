"""The page of a fleet in a browser: what it shows, beside what the engines say of themselves."""

import json
import re
import threading
import time

from harness import call, samples

LAG = 4.0  # s by which the page may be late: polls of the workers, and of the page, each second, on a busy machine

READ = """(() => {
  const text = (root, s) => root.querySelector(s)?.textContent.trim() ?? '';
  const part = (box, place) => box.querySelector(`ol[data-place=${place}]`);
  const chips = (box, place) => [...part(box, place).querySelectorAll('.chip:not(.loading) .name')].map(e => e.textContent);
  const count = (box, place) => text(part(box, place).parentElement, '.count');
  return {
    status: text(document, '#status'), run: text(document, '#run-words'), summary: text(document, '#summary'), result: text(document, '#result'),
    workers: [...document.querySelectorAll('#columns .worker')].map(box => ({
      url: text(box, '.url'), state: text(box, '.state'), kv: text(box, '.kv'), slots: chips(box, 'slots'), loading: [...box.querySelectorAll('.chip.loading .name')].map(e => e.textContent), host: chips(box, 'host'),
      slotCount: count(box, 'slots'), hostCount: count(box, 'host'), running: count(box, 'running'), queue: count(box, 'queue'),
      dots: [part(box, 'running').children.length, part(box, 'queue').children.length]})),
    latency: [...document.querySelectorAll('#latency-table tbody tr')].map(r => [...r.children].map(c => c.textContent.trim())),
    events: [...document.querySelectorAll('#event-table tbody tr')].map(r => [...r.children].map(c => c.textContent.trim())),
  };
})()"""

OUTSIDE = """[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1 &&
  !e.closest('pre, .scroll, .skip, .sr, .unseen, svg')).map(e => `${e.tagName}#${e.id}.${e.className}`).slice(0, 5)"""


def number(text):
    """The first number of a text: "1,234 requests" is 1234."""
    m = re.search(r"[\d,]+(?:\.\d+)?", text)
    return float(m[0].replace(",", "")) if m else None


def seconds(text):
    """A time with its unit, s; None for a dash."""
    m = re.fullmatch(r"([\d,.]+) (ms|s|h)", text)
    return float(m[1].replace(",", "")) * {"ms": 1e-3, "s": 1, "h": 3600}[m[2]] if m else None


class Engines:
    """Reads twice a second what workers hold and what is in flight there, while a with statement runs."""

    def __init__(self, workers):
        self.workers, self.done, self.lock = workers, threading.Event(), threading.Lock()
        self.seen = {w.url: [] for w in workers}  # (time, adapters, requests in flight)
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        while not self.done.is_set():
            for w in self.workers:
                try:
                    one = self._read(w)
                except OSError:
                    continue  # it is down
                with self.lock:
                    self.seen[w.url].append(one)
            self.done.wait(0.5)

    @staticmethod
    def _read(w):
        at = time.monotonic()
        models = json.loads(call(w.url + "/v1/models", timeout=5)[1])["data"]
        names = frozenset(m["id"] for m in models if m.get("parent"))
        page = samples(call(w.url + "/metrics", timeout=5)[1])
        gauges = ("vllm:num_requests_running", "vllm:num_requests_waiting", "sglang:num_running_reqs", "sglang:num_queue_reqs")
        return at, names, sum(v for (n, _), v in page.items() if n in gauges)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()

    def during(self, url, begin, end):
        """What was read in a time, with the last reading before it."""
        with self.lock:
            inside = [x for x in self.seen[url] if begin <= x[0] <= end]
            before = [x for x in self.seen[url] if x[0] < begin][-1:]
        return before + inside


class Watch:
    """What a page showed, sample by sample, compared with the engines at those times."""

    def __init__(self, page, engines):
        self.page, self.engines, self.samples = page, engines, []

    def look(self):
        at = time.monotonic()
        shown = self.page.eval(READ)
        self.samples.append((at, shown))
        return shown

    def shots(self, t, name):
        """Pictures of the page for a telephone and a desk, in both themes, chosen by its button as a person does."""
        for theme in ("light", "dark"):
            if (self.page.eval("document.getElementById('theme').textContent") == "Dark") != (theme == "light"):
                self.page.click("document.getElementById('theme')")
            for width in (1280, 390):
                self.page.resize(width)
                wide = self.page.eval(OUTSIDE)
                t.expect(f"{name}: nothing wider than {width} px, not {wide}", not wide)
                self.page.shot(t.file(f"{name}-{width}-{theme}.png"))
        self.page.click("document.getElementById('theme')")
        self.page.resize(1280)

    def choose(self, label, value):
        """Chooses an option of a list with the keyboard's event."""
        self.page.eval(f"""(s => {{ s.value = {value!r}; s.dispatchEvent(new Event('change')); }})(
            [...document.querySelectorAll('label')].find(l => l.textContent.startsWith({label!r})).querySelector('select'))""")

    def judge(self, t, name):
        """Adapters: those of the engine at a time of the last seconds. Requests in flight: between the least and the most that the engine had."""
        compared = steady = 0
        wrong, astray, slots = [], [], []
        for at, shown in self.samples:
            for w in shown["workers"]:
                near = self.engines.during(w["url"], at - LAG, at + 0.5)
                if len(near) < 3 or w["state"]:
                    continue
                compared += 1
                page, every, some = frozenset(w["slots"] + w["host"]), frozenset.intersection(*(n for _, n, _ in near)), frozenset.union(*(n for _, n, _ in near))
                steady += every == some
                if not every <= page | frozenset(w["loading"]) or not page <= some:  # one that is loaded anew may be gone for less than the readings tell
                    wrong.append((w["url"], sorted(page - some), sorted(every - page)))
                flying, least, most = number(w["running"]) + number(w["queue"]), min(x for *_, x in near), max(x for *_, x in near)
                if not least - 3 <= flying <= most + 3:
                    astray.append((w["url"], flying, least, most))
                if w["slotCount"] != f"{len(w['slots'])} of 4 used":
                    slots.append(w["slotCount"])
                if number(w["running"]) < w["dots"][0] or number(w["queue"]) < w["dots"][1]:  # more: requests that others sent, or that moves abort
                    slots.append((w["running"], w["queue"], w["dots"]))
        t.fact(f"{name}: compared", f"{compared}, {steady} of a steady set, {len(wrong)} wrong, {len(astray)} in flight astray")
        t.expect(f"{name}: 10 comparisons with the engines, not {compared}", compared >= 10)
        t.expect(f"{name}: the engine's adapters, not {wrong[:3]} and {max(len(wrong) - 3, 0)} more", not wrong)
        t.expect(f"{name}: requests in flight as the engine's metrics, not {astray[:3]} and {max(len(astray) - 3, 0)} more", len(astray) <= compared // 20)
        t.expect(f"{name}: counts as drawn, not {slots[:3]}", not slots)
        t.expect(f"{name}: no error on the page, not {self.page.errors[:3]}", not self.page.errors)
