// The view of a recorded run: workers as columns, with the adapters in their GPU slots and host memory, the requests
// that run and wait there, moves and loads as they happen, and a time line. mountReplay(element, data) shows what
// Replay.JSON (json.go) wrote; it returns an object to drive the view with. Times in here are microseconds.
//
// Colors are those of the charts (style.css). A page may set --replay-bg, --replay-fg, --replay-muted,
// --replay-line, --replay-accent and --replay-warn instead.

const version = 1;
const [queued, running, moving, held, gone, tier, load, power, outage, plan] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
const arity = [2, 2, 3, 1, 1, 3, 5, 2, 2, 1];
const hostTier = 2;
export const gpuTier = 3;
const powers = ["on", "draining", "off", "starting"];
const speeds = [0.1, 0.25, 0.5, 1, 2, 5, 10, 25, 50, 100, 250, 1000];

// seconds writes a time with its unit.
const seconds = t => `${(t / 1e6).toFixed(t < 1e8 ? 2 : 1)} s`;

// Film is a recording that can be asked for the state at any time.
class Film {
  constructor(data) {
    if (data.version !== version) {
      throw new Error(`replay: version ${data.version}, expected ${version}: reload the page`);
    }
    this.data = data;
    this.end = data.end;
    this.plans = data.plans;
    this.planTimes = data.plans.map(p => p.applied);
    this.names = data.adapters.names;
    this.requests = absolute(data.requests);
    this.starts = data.workers.map(w => ({...w, tiers: new Map(pairs(w.tiers))}));
    this.index();
  }

  // index finds the places and times of the events.
  index() {
    const e = this.data.events, at = [], pos = [];
    for (let i = 0, t = 0; i < e.length; i += 2 + arity[e[i + 1]]) {
      at.push(t += e[i]);
      pos.push(i);
    }
    this.at = Float64Array.from(at);
    this.pos = Int32Array.from(pos);
    this.frames = this.data.keyframes.map(k => ({...k, next: upper(this.pos, k.event - 1)}));
    this.frameStarts = this.frames.map(f => f.next);
  }

  // world is the state at time t; from, where it is not later, is moved on to it.
  world(t, from) {
    const last = upper(this.at, t);
    const k = upper(this.frameStarts, last) - 1;
    const start = k >= 0 ? this.frames[k].next : 0;
    let w = from;
    if (!w || w.next > last || w.next < start) {
      w = k >= 0 ? this.fromFrame(this.frames[k]) : this.begin();
    }
    for (; w.next < last; w.next++) {
      this.apply(w, this.pos[w.next]);
    }
    w.t = t;
    return w;
  }

  begin() {
    return {
      t: 0, next: 0, plans: 0, moving: new Map(), held: new Set(), spot: new Map(), dirty: null,
      workers: this.starts.map(s => ({
        power: s.power, down: false, tiers: new Map(s.tiers), loads: [], queue: new Set(), running: new Set(),
      })),
    };
  }

  fromFrame(f) {
    const w = this.begin();
    w.next = f.next;
    w.plans = f.plans;
    f.workers.forEach((fw, i) => {
      const to = w.workers[i];
      to.power = fw.p || 0;
      to.down = !!fw.d;
      to.tiers = new Map(pairs(fw.a || []));
      for (let j = 0, l = fw.l || []; j < l.length; j += 4) {
        to.loads.push({adapter: l[j], slot: l[j + 1] === 1, from: l[j + 2], to: l[j + 3]});
      }
      for (const n of fw.q || []) { to.queue.add(n); w.spot.set(n, [queued, i]); }
      for (const n of fw.r || []) { to.running.add(n); w.spot.set(n, [running, i]); }
    });
    for (let j = 0, m = f.moving || []; j < m.length; j += 3) {
      w.moving.set(m[j], [m[j + 1], m[j + 2]]);
      w.spot.set(m[j], [moving, m[j + 1]]);
    }
    for (const n of f.held || []) { w.held.add(n); w.spot.set(n, [held, -1]); }
    return w;
  }

  apply(w, i) {
    const e = this.data.events, kind = e[i + 1], a = e[i + 2], b = e[i + 3], c = e[i + 4];
    switch (kind) {
      case queued: case running: case moving: case held: case gone:
        this.place(w, kind, a, b, c);
        return;
      case tier:
        if (c === this.starts[b].tier) w.workers[b].tiers.delete(a); else w.workers[b].tiers.set(a, c);
        w.dirty?.add(b);
        return;
      case load: {
        const to = w.workers[b];
        to.loads = to.loads.filter(l => l.to > this.at[w.next]);
        to.loads.push({adapter: a, slot: c === 1, from: e[i + 5], to: e[i + 6]});
        w.dirty?.add(b);
        return;
      }
      case power:
        if ((w.workers[a].power = b) === 2) w.workers[a].loads = [];
        w.dirty?.add(a);
        return;
      case outage:
        w.workers[a].down = b === 1;
        w.workers[a].loads = [];
        w.dirty?.add(a);
        return;
      case plan:
        w.plans++;
    }
  }

  place(w, kind, n, at, to) {
    const [was, on] = w.spot.get(n) || [gone, -1];
    if (was === queued) w.workers[on].queue.delete(n);
    else if (was === running) w.workers[on].running.delete(n);
    else if (was === moving) w.moving.delete(n);
    else if (was === held) w.held.delete(n);
    if (on >= 0) w.dirty?.add(on);
    if (kind === gone) {
      w.spot.delete(n);
      return;
    }
    w.spot.set(n, [kind, kind === held ? -1 : at]);
    if (kind === queued) w.workers[at].queue.add(n);
    else if (kind === running) w.workers[at].running.add(n);
    else if (kind === moving) w.moving.set(n, [at, to]);
    else w.held.add(n);
    if (kind !== held) w.dirty?.add(at);
  }

  // holds lists the adapters in a tier of a worker, in order.
  holds(w, worker, t) {
    const tiers = w.workers[worker].tiers, rest = this.starts[worker].tier;
    if (rest !== t) return [...tiers].filter(([, x]) => x === t).map(([a]) => a).sort((a, b) => a - b);
    const all = [];
    for (let a = 0; a < this.names.length; a++) if ((tiers.get(a) ?? rest) === t) all.push(a);
    return all;
  }

  // curve is the largest number of waiting requests in each of n parts of the run.
  curve(n) {
    const e = this.data.events, most = new Array(n).fill(0), waits = new Set();
    let from = 0;
    for (let i = 0; i < this.pos.length; i++) {
      const p = this.pos[i], kind = e[p + 1];
      if (kind > gone) continue;
      const to = Math.min(n - 1, Math.floor(this.at[i] / (this.end || 1) * n));
      for (let k = from; k <= to; k++) most[k] = Math.max(most[k], waits.size);
      from = to;
      if (kind === queued || kind === held) waits.add(e[p + 2]); else waits.delete(e[p + 2]);
      most[to] = Math.max(most[to], waits.size);
    }
    return most;
  }

  name(adapter) { return adapter < 0 ? "base model" : this.names[adapter]; }
}

// upper is the number of elements of a sorted list that are at most x.
function upper(list, x) {
  let low = 0, high = list.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (list[mid] <= x) low = mid + 1; else high = mid;
  }
  return low;
}

function pairs(flat) {
  const list = [];
  for (let i = 0; i < flat.length; i += 2) list.push([flat[i], flat[i + 1]]);
  return list;
}

// absolute turns the differences of the columns of requests into times.
function absolute(r) {
  let arrival = 0;
  const out = {...r, arrival: [], sent: [], first: [], finish: [], errors: new Map()};
  for (let i = 0; i < r.id.length; i++) {
    arrival += r.arrival[i];
    const sent = arrival + r.sent[i], first = r.first[i] < 0 ? -1 : sent + r.first[i];
    out.arrival.push(arrival);
    out.sent.push(sent);
    out.first.push(first);
    out.finish.push(r.finish[i] < 0 ? -1 : (first < 0 ? sent : first) + r.finish[i]);
  }
  for (const e of r.errors) out.errors.set(e.request, e.error);
  return out;
}

const make = (tag, props = {}, ...children) => {
  const {dataset, ...rest} = props;
  const el = Object.assign(document.createElement(tag), rest);
  Object.assign(el.dataset, dataset || {});
  el.append(...children);
  return el;
};

const hue = adapter => adapter < 0 ? 0 : Math.round(adapter * 137.508) % 360;

// fill makes a list hold the elements of the keys, in this order; element(key) makes or finds one.
function fill(list, keys, element) {
  let at = list.firstElementChild;
  for (const k of keys) {
    const el = element(k);
    if (el === at) {
      at = at.nextElementSibling;
    } else {
      list.insertBefore(el, at);
    }
  }
  while (at) {
    const next = at.nextElementSibling;
    at.remove();
    at = next;
  }
}

// Columns draws states of workers. about tells of a cluster: names of adapters and workers, slots, tiers, requests.
export class Columns {
  constructor(root, about, options = {}) {
    this.about = about;
    this.most = options.most || 60;
    this.mostHost = options.mostHost || this.most;
    this.still = options.still || (() => false);
    this.dots = new Map();
    this.seats = new Map();
    this.held = make("ol", {className: "dots", dataset: {place: "held"}});
    this.heldBox = make("div", {className: "held", hidden: true}, "Waiting for a worker: ", this.held);
    this.ways = make("ol", {className: "dots", dataset: {place: "moving"}});
    this.waysBox = make("div", {className: "held"}, make("span", {className: "label", textContent: "Between workers"}),
      this.ways);
    this.parts = about.starts.map((s, i) => this.column(s, i));
    const many = about.starts.length > 16 ? " many" : ""; // what is out of sight is not laid out
    root.append(make("div", {className: `columns${many}`}, ...this.parts.map(p => p.box)), this.waysBox, this.heldBox);
  }

  column(start, i) {
    const title = `replay-worker-${i}-${Math.random().toString(36).slice(2)}`;
    const part = {shown: new Map()};
    const list = (place, label, kind) => {
      const count = make("span", {className: "count"});
      const ol = make("ol", {className: kind, dataset: {place}, ariaLabel: `${label} of worker ${i}`});
      if (kind === "dots") ol.ariaHidden = "true"; // their number says it
      part[place] = {ol, count, more: make("span", {className: "more"})};
      const head = make("div", {className: "label"}, label, " ", count);
      return make("div", {className: "part"}, head, ol, part[place].more);
    };
    part.state = make("span", {className: "state"});
    part.box = make("section", {className: "worker", dataset: {worker: i}},
      make("h4", {id: title}, start.name || `Worker ${i}`, " ", part.state),
      list("slots", "GPU slots", "chips"), list("running", "Running", "dots"), list("queue", "Queue", "dots"),
      list("host", "Host memory", "chips"));
    part.box.setAttribute("aria-labelledby", title);
    return part;
  }

  // draw shows a state: of the workers given, or of all.
  draw(w, workers = null, hot = null) {
    const before = this.whereabouts(w, workers);
    for (const i of workers || w.workers.keys()) this.drawWorker(w, i);
    this.fillDots(this.ways, [...w.moving.keys()]);
    this.waysBox.classList.toggle("empty", w.moving.size === 0);
    for (const [n, [from, to]] of w.moving) {
      this.dots.get(n)?.setAttribute("title", `${this.describe(n)}, from worker ${from} to worker ${to}`);
    }
    this.fillDots(this.held, [...w.held].slice(0, this.most));
    this.heldBox.hidden = w.held.size === 0;
    this.drawLoads(w);
    this.fly(before);
    if (hot) this.mark(hot);
    if (this.dots.size > 4000) this.forget(w);
  }

  drawWorker(w, i) {
    const part = this.parts[i], here = w.workers[i], start = this.about.starts[i];
    const state = here.down ? "down" : powers[here.power];
    part.state.textContent = state === "on" ? "" : state;
    part.box.dataset.state = state;
    const slots = this.about.holds(w, i, gpuTier), inSlots = new Set(slots);
    for (const l of here.loads) {
      if (l.slot && l.to > w.t && !inSlots.has(l.adapter)) { inSlots.add(l.adapter); slots.push(l.adapter); }
    }
    this.chips(part, "slots", i, slots, `${slots.length} of ${start.slots}`);
    const host = this.about.holds(w, i, hostTier).filter(a => !inSlots.has(a));
    const most = start.host_slots ? ` of ${start.host_slots - Math.min(inSlots.size, start.host_slots)}` : "";
    for (const l of here.loads) {
      if (!l.slot && l.to > w.t && !inSlots.has(l.adapter) && !host.includes(l.adapter)) host.push(l.adapter);
    }
    this.chips(part, "host", i, host, `${host.length}${most}`);
    for (const [place, set] of [["running", here.running], ["queue", here.queue]]) {
      this.fillDots(part[place].ol, [...set].slice(0, this.most));
      this.counts(part[place], set.size, this.most);
    }
    part.loads = here.loads;
  }

  counts(p, n, most, text = `${n}`) {
    p.count.textContent = text;
    p.more.textContent = n > most ? `and ${n - most} more` : "";
  }

  chips(part, place, worker, adapters, text) {
    const most = place === "host" ? this.mostHost : this.most;
    fill(part[place].ol, adapters.slice(0, most), a => {
      const key = `${place} ${a}`;
      let chip = part.shown.get(key);
      if (!chip) {
        chip = make("li", {className: "chip", title: `adapter ${this.about.name(a)}`, dataset: {adapter: a}},
          make("span", {className: "name", textContent: this.about.name(a)}), make("span", {className: "done"}));
        chip.style.setProperty("--hue", hue(a));
        part.shown.set(key, chip);
      }
      return chip;
    });
    this.counts(part[place], adapters.length, most, text);
  }

  fillDots(list, requests) { fill(list, requests, n => this.dot(n)); }

  dot(n) {
    let el = this.dots.get(n);
    if (!el) {
      el = make("li", {className: "dot", title: this.describe(n), dataset: {request: this.about.requests.id[n]}});
      el.style.setProperty("--hue", hue(this.about.requests.adapter[n]));
      if (this.about.requests.adapter[n] < 0) el.classList.add("base");
      this.dots.set(n, el);
    }
    return el;
  }

  describe(n) {
    const r = this.about.requests;
    return `request ${r.id[n]}, adapter ${this.about.name(r.adapter[n])}, ${r.prompt[n]} prompt tokens`;
  }

  // drawLoads shows how far the loads are.
  drawLoads(w) {
    this.parts.forEach((part, i) => {
      if (!part.busy && w.workers[i].loads.length === 0) return;
      const share = new Map();
      for (const l of w.workers[i].loads) {
        if (l.to <= w.t) continue;
        share.set(`${l.slot ? "slots" : "host"} ${l.adapter}`, Math.max(0, (w.t - l.from) / (l.to - l.from)));
      }
      for (const [key, chip] of part.shown) {
        const x = share.get(key);
        chip.classList.toggle("loading", x !== undefined);
        if (x !== undefined) chip.style.setProperty("--done", x.toFixed(3));
      }
      part.busy = share.size > 0;
    });
  }

  // whereabouts are the places on the page of the requests that a redrawing takes to another worker.
  whereabouts(w, workers) {
    const places = new Map();
    for (const i of workers || w.workers.keys()) {
      for (const n of [...w.workers[i].queue, ...w.workers[i].running]) {
        const from = this.seats.get(n);
        if (from !== undefined && from !== i && !this.still() && places.size < 200) {
          const el = this.dots.get(n);
          if (el?.isConnected) places.set(el, el.getBoundingClientRect());
        }
        this.seats.set(n, i);
      }
    }
    return places;
  }

  // fly animates what has gone to another worker, from where it was.
  fly(before) {
    for (const [el, was] of before) {
      if (!el.isConnected) continue;
      const is = el.getBoundingClientRect();
      const start = `translate(${was.x - is.x}px, ${was.y - is.y}px) scale(1.6)`;
      const steps = [{transform: start, zIndex: 5}, {transform: "none", zIndex: 5}];
      el.animate(steps, {duration: 600, easing: "ease-in-out"});
    }
  }

  // mark sets off what a plan has changed.
  mark(p) {
    for (const el of this.hot || []) el.classList.remove("hot");
    this.hot = [];
    const add = el => { if (el) { el.classList.add("hot"); this.hot.push(el); } };
    for (const [w, a] of p?.load || []) {
      add(this.parts[w].shown.get(`slots ${a}`));
      add(this.parts[w].shown.get(`host ${a}`));
    }
    for (const [n] of p?.moves || []) add(this.dots.get(n));
  }

  // forget drops the elements of requests that are not shown.
  forget(w) {
    for (const [n, el] of this.dots) if (!el.isConnected) this.dots.delete(n);
    for (const n of this.seats.keys()) if (!w.spot.has(n)) this.seats.delete(n);
  }
}

// words tell a state to those who do not see it.
function words(film, w) {
  const list = w.workers.map((s, i) => {
    const state = s.down ? ", down" : s.power ? `, ${powers[s.power]}` : "";
    const slots = film.holds(w, i, gpuTier).map(a => film.name(a)).join(", ") || "none";
    return `Worker ${i}${state}: ${s.running.size} running, ${s.queue.size} waiting, adapters in GPU slots: ${slots}.`;
  });
  return `At ${seconds(w.t)}. ${list.join(" ")} ${w.moving.size} requests between workers.`;
}

// planWords tell a plan.
function planWords(film, p) {
  const at = l => l.map(([w, a]) => `${film.name(a)} on worker ${w}`).join(", ");
  const parts = [];
  if (p.load.length) parts.push(`loads ${at(p.load)}`);
  if (p.unload.length) parts.push(`unloads ${at(p.unload)}`);
  if (p.moved) parts.push(`moves ${p.moved} request${p.moved > 1 ? "s" : ""}`);
  if (p.dropped) parts.push(`dropped: ${p.dropped}`);
  return parts.join("; ");
}

const dark = `--r-bg: var(--replay-bg, var(--card, #15171a)); --r-fg: var(--replay-fg, var(--text, #e8eaed));
  --r-muted: var(--replay-muted, var(--soft, #a5abb3)); --r-line: var(--replay-line, var(--line, #3a3f45));
  --r-accent: var(--replay-accent, var(--accent, #7db7ff)); --r-warn: var(--replay-warn, #ffb084);
  --light: 66%; --tint: 26%;`;

const style = `
.replay { --r-bg: var(--replay-bg, var(--card, #fff)); --r-fg: var(--replay-fg, var(--text, #1c1d1f));
  --r-muted: var(--replay-muted, var(--soft, #5a5f66)); --r-line: var(--replay-line, var(--line, #d4d7db));
  --r-accent: var(--replay-accent, var(--accent, #0b62c4)); --r-warn: var(--replay-warn, #a33c00);
  --light: 42%; --tint: 88%; color: var(--r-fg); background: var(--r-bg); font: 14px/1.4 system-ui, sans-serif;
  container-type: inline-size; }
@media (prefers-color-scheme: dark) { :root:not([data-theme=light]) .replay { ${dark} } }
:root[data-theme=dark] .replay { ${dark} }
.replay .bar-row { display: flex; flex-wrap: wrap; gap: 6px; align-items: center; }
.replay button, .replay select { font: inherit; color: var(--r-fg); background: var(--r-bg);
  border: 1px solid var(--r-line);
  border-radius: 6px; padding: 5px 10px; min-height: 34px; cursor: pointer; }
.replay button:hover { border-color: var(--r-accent); }
.replay :focus-visible { outline: 2px solid var(--r-accent); outline-offset: 2px; }
.replay button.play { min-width: 76px; background: var(--r-accent); border-color: var(--r-accent); color: var(--r-bg); }
.replay .now { font-variant-numeric: tabular-nums; margin-left: auto; }
.replay .line { position: relative; margin: 8px 0 2px; }
.replay .line svg { display: block; width: 100%; height: 44px; }
.replay .line .area { fill: var(--r-accent); opacity: .25; }
.replay .line .tick { stroke: var(--r-warn); stroke-width: 1; vector-effect: non-scaling-stroke; }
.replay .line input { width: 100%; margin: 0; accent-color: var(--r-accent); display: block; min-height: 24px; }
.replay .small { color: var(--r-muted); font-size: 12px; }
.replay .plan { border-left: 3px solid var(--r-warn); padding: 2px 10px; margin: 8px 0; min-height: 42px; }
.replay .plan p { margin: 0; }
.replay .columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(190px, 46cqw), 1fr)); gap: 10px; }
.replay .worker { margin: 0; background: none; border: 1px solid var(--r-line); border-radius: 8px; padding: 8px 10px;
  min-width: 0; }
.replay .many .worker { content-visibility: auto; contain-intrinsic-size: auto 300px; }
.replay .worker[data-state=down], .replay .worker[data-state=off] { border-style: dashed; opacity: .75; }
.replay .worker h4 { margin: 0 0 4px; font-size: 14px; }
.replay .state { color: var(--r-warn); font-weight: 600; }
.replay .label { color: var(--r-muted); font-size: 12px; margin-top: 6px; }
.replay .count { color: var(--r-fg); font-variant-numeric: tabular-nums; }
.replay ol { list-style: none; margin: 2px 0 0; padding: 0; display: flex; flex-wrap: wrap; gap: 3px; }
.replay ol.dots { min-height: 14px; } .replay ol.chips { min-height: 22px; }
.replay .chip { position: relative; overflow: hidden; border-radius: 4px; padding: 1px 6px; font-size: 12px;
  background: hsl(var(--hue) 55% var(--tint)); border-left: 4px solid hsl(var(--hue) 65% var(--light));
  max-width: 100%; }
.replay .chip .name { display: block; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.replay .part:last-child .chip { background: none; border: 1px solid var(--r-line);
  border-left: 4px solid hsl(var(--hue) 65% var(--light)); }
.replay .chip .done { position: absolute; left: 0; bottom: 0; height: 3px; width: 100%; transform-origin: left;
  transform: scaleX(var(--done, 0)); background: var(--r-accent); visibility: hidden; }
.replay .chip.loading { outline: 1px dashed var(--r-accent); outline-offset: -1px; }
.replay .chip.loading .done { visibility: visible; }
.replay .dot { width: 12px; height: 12px; border-radius: 3px; background: hsl(var(--hue) 65% var(--light));
  position: relative; }
.replay .dot.base { background: var(--r-muted); }
.replay .hot { outline: 2px solid var(--r-warn); outline-offset: 1px; }
.replay .more { color: var(--r-muted); font-size: 12px; }
.replay .held { display: flex; gap: 8px; align-items: baseline; margin-top: 8px; }
.replay .held.empty { visibility: hidden; }
.replay [hidden] { display: none; }
.replay .unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.replay table { border-collapse: collapse; font-variant-numeric: tabular-nums; display: block; overflow-x: auto; }
.replay th, .replay td { border-bottom: 1px solid var(--r-line); padding: 2px 8px; text-align: left; }
.replay summary { cursor: pointer; color: var(--r-muted); margin-top: 8px; }
@media (prefers-reduced-motion: no-preference) {
  .replay .chip { animation: replay-in .25s ease-out; }
  @keyframes replay-in { from { opacity: 0; transform: translateY(-4px); } } }
`;

// useStyle adds the style sheet to the document once.
export function useStyle() {
  if (document.adoptedStyleSheets.some(s => s.replay)) return;
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(style);
  sheet.replay = true;
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
}

class Player {
  constructor(root, data) {
    this.root = root;
    this.film = new Film(data);
    this.motion = matchMedia("(prefers-reduced-motion: reduce)");
    this.playing = false;
    this.build();
    this.speed.value = String(speeds.find(s => this.film.end / 1e6 / s <= 60) || speeds.at(-1));
    this.seek(0);
  }

  build() {
    const button = (text, label, click, key) => make("button", {type: "button", textContent: text, ariaLabel: label,
      title: `${label} (${key})`, onclick: click});
    this.play = button("Play", "Play", () => this.toggle(), "space");
    this.play.className = "play";
    this.speed = make("select", {ariaLabel: "Speed, simulated seconds in a second"},
      ...speeds.map(s => make("option", {value: s, textContent: `${s} ×`})));
    this.now = make("output", {className: "now"});
    this.range = make("input", {type: "range", min: 0, max: this.film.end, step: 1, ariaLabel: "Time of the run",
      oninput: () => this.seek(+this.range.value)});
    this.plan = make("div", {className: "plan", hidden: this.film.plans.length === 0});
    this.live = make("p", {className: "unseen"});
    this.live.setAttribute("aria-live", "polite");
    this.table = make("table");
    this.details = make("details", {ontoggle: () => this.tell()}, make("summary", {textContent: "As a table"}),
      this.table);
    const back = button("◀ plan", "Previous plan", () => this.step(-1), "p");
    const next = button("plan ▶", "Next plan", () => this.step(1), "n");
    this.box = make("div", {className: "replay", tabIndex: 0, ariaLabel: "Replay of the run"},
      make("div", {className: "bar-row"}, this.play, back, next, make("label", {}, "Speed ", this.speed), this.now),
      make("div", {className: "line"}, this.overview(), this.range), this.legend(), this.plan);
    this.box.setAttribute("role", "group");
    this.box.onkeydown = e => this.key(e);
    const still = () => this.motion.matches || !this.playing && !this.stepping;
    this.columns = new Columns(this.box, this.film, {still});
    this.box.append(this.details, this.live);
    this.root.replaceChildren(this.box);
  }

  // overview draws the queues over time, and the plans.
  overview() {
    const n = 400, ns = "http://www.w3.org/2000/svg", svg = document.createElementNS(ns, "svg");
    svg.setAttribute("viewBox", `0 0 ${n} 44`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    const curve = this.film.curve(n), most = Math.max(1, ...curve);
    this.mostWaiting = most;
    const area = document.createElementNS(ns, "path");
    area.setAttribute("class", "area");
    const up = curve.map((y, i) => `L${i} ${44 - 40 * y / most}L${i + 1} ${44 - 40 * y / most}`);
    area.setAttribute("d", `M0 44${up.join("")}L${n} 44Z`);
    const ticks = document.createElementNS(ns, "path");
    ticks.setAttribute("class", "tick");
    ticks.setAttribute("d", this.film.plans.map(p => `M${n * p.applied / (this.film.end || 1)} 0v8`).join(""));
    svg.append(area, ticks);
    return svg;
  }

  legend() {
    const t = this.film.data.thinned, list = [`Area: waiting requests, at most ${this.mostWaiting}.`,
      this.film.plans.length ? "Marks: plans." : "The run has no plans.",
      "Square: a request, in the color of its adapter."];
    if (t.every > 1) list.push(`Shown: one of ${t.every} of ${t.requests} requests.`);
    if (t.plan_every > 1) list.push(`One of ${t.plan_every} of ${t.plans} plans is kept.`);
    if (t.until >= 0) list.push(`The recording ends at ${seconds(t.until)}: the run is too large.`);
    return make("p", {className: "small", textContent: list.join(" ")});
  }

  toggle() { if (this.playing) this.pause(); else this.start(); }

  start() {
    if (this.t >= this.film.end) this.seek(0);
    this.playing = true;
    this.play.textContent = "Pause";
    this.play.ariaLabel = "Pause";
    this.last = performance.now();
    const frame = now => {
      if (!this.playing) return;
      if (!this.box.isConnected) { this.pause(); return; }
      if (!this.motion.matches || now - this.last >= 250) {
        const t = this.t + (now - this.last) * 1000 * Number(this.speed.value);
        this.last = now;
        this.show(Math.min(t, this.film.end));
        if (this.t >= this.film.end) { this.pause(); return; }
      }
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  pause() {
    this.playing = false;
    this.play.textContent = "Play";
    this.play.ariaLabel = "Play";
    this.tell();
  }

  // seek goes to a time, in microseconds.
  seek(t) {
    this.show(Math.max(0, Math.min(t, this.film.end)));
    if (!this.playing) this.tell();
  }

  // step goes to the plan before or after the time shown.
  step(by) {
    const n = upper(this.film.planTimes, this.t);
    let k = by > 0 ? n : n - 1;
    if (by < 0 && k >= 0 && this.film.plans[k].applied === this.t) k--;
    const p = this.film.plans[k];
    if (!p) {
      this.live.textContent = this.film.plans.length ? "There is no further plan." : "The run has no plans.";
      return;
    }
    this.pause();
    this.stepping = true;
    this.seek(p.applied);
    this.stepping = false;
    this.columns.mark(p);
  }

  show(t) {
    const small = this.w && t >= this.w.t && t - this.w.t < 5e6;
    if (small) this.w.dirty = new Set(this.loadsOf(this.w));
    const before = this.w;
    this.w = this.film.world(t, this.w);
    this.t = t;
    this.columns.mark(null);
    this.columns.draw(this.w, small && before === this.w ? this.w.dirty : null);
    this.w.dirty = null;
    this.now.textContent = `${seconds(t)} of ${seconds(this.film.end)}`;
    this.range.value = t;
    this.range.setAttribute("aria-valuetext", seconds(t));
    this.drawPlan();
  }

  // loadsOf are the workers that load something: it may end without a change.
  loadsOf(w) { return [...w.workers.keys()].filter(i => w.workers[i].loads.length > 0); }

  drawPlan() {
    const k = upper(this.film.planTimes, this.t) - 1;
    if (this.shownPlan === k) return;
    this.shownPlan = k;
    const p = this.film.plans[k];
    if (!p) {
      delete this.plan.dataset.plan;
      this.plan.replaceChildren(make("p", {className: "small", textContent: "No plan yet."}));
      return;
    }
    this.plan.dataset.plan = k;
    this.plan.replaceChildren(
      make("p", {}, make("strong", {textContent: `Plan ${k + 1} of ${this.film.plans.length}`}),
        ` at ${seconds(p.applied)}: `,
        make("span", {className: "reason", textContent: p.reason || "no reason given"})),
      make("p", {className: "small", textContent: planWords(this.film, p)}));
  }

  // tell writes what is shown for those who do not see it.
  tell() {
    if (this.details.open) this.fillTable();
    clearTimeout(this.later);
    this.later = setTimeout(() => { this.live.textContent = words(this.film, this.w); }, 300);
  }

  fillTable() {
    const row = (tag, cells) => make("tr", {}, ...cells.map(c => make(tag, {textContent: c})));
    const names = list => list.slice(0, 100).map(a => this.film.name(a)).join(", ") || "none";
    this.table.replaceChildren(
      make("caption", {className: "unseen", textContent: `Workers at ${seconds(this.t)}`}),
      row("th", ["Worker", "State", "Running", "Waiting", "In GPU slots", "In host memory"]),
      ...this.w.workers.map((s, i) => row("td", [i, s.down ? "down" : powers[s.power], s.running.size, s.queue.size,
        names(this.film.holds(this.w, i, gpuTier)), names(this.film.holds(this.w, i, hostTier))])));
  }

  key(e) {
    if (e.target !== this.box && e.target !== this.range || e.altKey || e.ctrlKey || e.metaKey) return;
    const by = this.film.end / (e.shiftKey ? 20 : 200), all = speeds.indexOf(Number(this.speed.value));
    const act = {
      " ": () => this.toggle(), n: () => this.step(1), p: () => this.step(-1), ArrowLeft: () => this.seek(this.t - by),
      ArrowRight: () => this.seek(this.t + by), Home: () => this.seek(0), End: () => this.seek(this.film.end),
      "+": () => { this.speed.value = speeds[Math.min(all + 1, speeds.length - 1)]; },
      "-": () => { this.speed.value = speeds[Math.max(all - 1, 0)]; },
    }[e.key];
    if (act) { e.preventDefault(); act(); }
  }
}

// mountReplay shows a recording in an element. It returns a function that takes the view away again, with what drives
// the view; times are in seconds.
export function mountReplay(element, data) {
  useStyle();
  const p = new Player(element, data);
  const unmount = () => { p.pause(); element.replaceChildren(); };
  return Object.assign(unmount, {
    play: () => p.start(), pause: () => p.pause(), seek: s => p.seek(s * 1e6), step: by => p.step(by),
    time: () => p.t / 1e6, end: p.film.end / 1e6,
  });
}
