// A recorded run, as bench/replay wrote it (json.go). Times in here are microseconds.

const version = 1;
const [queued, running, moving, held, gone, tier, load, power, outage, plan] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
const arity = [2, 2, 3, 1, 1, 3, 5, 2, 2, 1];

// Film is a recording that can be asked for the state at any time.
export class Film {
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
    this.starts = data.workers.map(w => ({ ...w, tiers: new Map(pairs(w.tiers)) }));
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
    this.frames = this.data.keyframes.map(k => ({ ...k, next: upper(this.pos, k.event - 1) }));
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
        to.loads.push({ adapter: l[j], slot: l[j + 1] === 1, from: l[j + 2], to: l[j + 3] });
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
        to.loads.push({ adapter: a, slot: c === 1, from: e[i + 5], to: e[i + 6] });
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

  name(adapter) { return adapter < 0 ? 'base model' : this.names[adapter]; }
}

// upper is the number of elements of a sorted list that are at most x.
export function upper(list, x) {
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
  const out = { ...r, arrival: [], sent: [], first: [], finish: [], errors: new Map() };
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
