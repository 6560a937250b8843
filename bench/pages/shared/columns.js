// The workers of a cluster as columns: the adapters in their GPU slots and host memory, the requests that run and wait
// there, and adapter loads as they happen. A replay draws a recorded run with it, and the page of a fleet what is now.
import { el } from './dom.js';
import { hue } from './theme.js';

// Tiers of an adapter, and power states of a worker, by the numbers that Go writes.
export const hostTier = 2;
export const gpuTier = 3;
export const powers = ['on', 'draining', 'off', 'starting'];

// keep makes a list hold the elements of the keys, in this order; element(key) makes or finds one.
function keep(list, keys, element) {
  let at = list.firstElementChild;
  for (const k of keys) {
    const e = element(k);
    if (e === at) at = at.nextElementSibling; else list.insertBefore(e, at);
  }
  while (at) {
    const next = at.nextElementSibling;
    at.remove();
    at = next;
  }
}

// Columns draws states of workers. about tells of a cluster: starts (of each worker: name, slots, host_slots), requests
// (id, adapter and prompt by the number of a request), name(adapter), and holds(state, worker, tier). A state has a time,
// t, workers ({power, down, loads, queue, running}), and the requests that are moving between them or held.
export class Columns {
  constructor(root, about, options = {}) {
    this.about = about;
    this.most = options.most || 60;
    this.mostHost = options.mostHost || this.most;
    this.still = options.still || (() => false);
    this.dots = new Map();
    this.seats = new Map();
    this.held = el('ol', { class: 'dots', 'data-place': 'held' });
    this.heldBox = el('div', { class: 'held', hidden: true }, 'Waiting for a worker: ', this.held);
    this.ways = el('ol', { class: 'dots', 'data-place': 'moving' });
    this.waysBox = el('div', { class: 'held' }, el('span', { class: 'label' }, 'Between workers'), this.ways);
    this.parts = about.starts.map((s, i) => this.column(s, i));
    const many = about.starts.length > 16 ? ' many' : ''; // what is out of sight is not laid out
    root.append(el('div', { class: `columns${many}` }, ...this.parts.map(p => p.box)), this.waysBox, this.heldBox);
  }

  column(start, i) {
    const title = `replay-worker-${i}-${Math.random().toString(36).slice(2)}`;
    const part = { shown: new Map() };
    const list = (place, label, kind) => {
      const count = el('span', { class: 'count' });
      const hides = kind === 'dots' ? 'true' : null; // their number says it
      const ol = el('ol', { class: kind, 'data-place': place, 'aria-label': `${label} of worker ${i}`, 'aria-hidden': hides });
      part[place] = { ol, count, more: el('span', { class: 'more' }) };
      return el('div', { class: 'part' }, el('div', { class: 'label' }, label, ' ', count), ol, part[place].more);
    };
    part.state = el('span', { class: 'state' });
    part.box = el('section', { class: 'worker', 'data-worker': i, 'aria-labelledby': title },
      el('h4', { id: title }, start.name || `Worker ${i}`, ' ', part.state),
      list('slots', 'GPU slots', 'chips'), list('running', 'Running', 'dots'), list('queue', 'Queue', 'dots'),
      list('host', 'Host memory', 'chips'));
    return part;
  }

  // draw shows a state: of the workers given, or of all.
  draw(w, workers = null) {
    const before = this.whereabouts(w, workers);
    for (const i of workers || w.workers.keys()) this.drawWorker(w, i);
    this.fillDots(this.ways, [...w.moving.keys()]);
    this.waysBox.classList.toggle('empty', w.moving.size === 0);
    for (const [n, [from, to]] of w.moving) {
      this.dots.get(n)?.setAttribute('title', `${this.describe(n)}, from worker ${from} to worker ${to}`);
    }
    this.fillDots(this.held, [...w.held].slice(0, this.most));
    this.heldBox.hidden = w.held.size === 0;
    this.drawLoads(w);
    this.fly(before);
    if (this.dots.size > 4000) this.forget(w);
  }

  drawWorker(w, i) {
    const part = this.parts[i], here = w.workers[i], start = this.about.starts[i];
    const state = here.down ? 'down' : powers[here.power];
    part.state.textContent = state === 'on' ? '' : state;
    part.box.dataset.state = state;
    const slots = this.about.holds(w, i, gpuTier), inSlots = new Set(slots);
    for (const l of here.loads) {
      if (l.slot && l.to > w.t && !inSlots.has(l.adapter)) { inSlots.add(l.adapter); slots.push(l.adapter); }
    }
    this.chips(part, 'slots', slots, `${slots.length} of ${start.slots}`);
    const host = this.about.holds(w, i, hostTier).filter(a => !inSlots.has(a));
    const most = start.host_slots ? ` of ${start.host_slots - Math.min(inSlots.size, start.host_slots)}` : '';
    for (const l of here.loads) {
      if (!l.slot && l.to > w.t && !inSlots.has(l.adapter) && !host.includes(l.adapter)) host.push(l.adapter);
    }
    this.chips(part, 'host', host, `${host.length}${most}`);
    for (const [place, set] of [['running', here.running], ['queue', here.queue]]) {
      this.fillDots(part[place].ol, [...set].slice(0, this.most));
      this.counts(part[place], set.size, this.most);
    }
    part.loads = here.loads;
  }

  counts(p, n, most, text = `${n}`) {
    p.count.textContent = text;
    p.more.textContent = n > most ? `and ${n - most} more` : '';
  }

  chips(part, place, adapters, text) {
    const most = place === 'host' ? this.mostHost : this.most;
    keep(part[place].ol, adapters.slice(0, most), a => {
      const key = `${place} ${a}`;
      let chip = part.shown.get(key);
      if (!chip) {
        chip = el('li', { class: 'chip', title: `adapter ${this.about.name(a)}`, 'data-adapter': a },
          el('span', { class: 'name' }, this.about.name(a)), el('span', { class: 'done' }));
        chip.style.setProperty('--hue', hue(a));
        part.shown.set(key, chip);
      }
      return chip;
    });
    this.counts(part[place], adapters.length, most, text);
  }

  fillDots(list, requests) { keep(list, requests, n => this.dot(n)); }

  dot(n) {
    let e = this.dots.get(n);
    if (!e) {
      const { id, adapter } = this.about.requests;
      e = el('li', { class: adapter[n] < 0 ? 'dot base' : 'dot', title: this.describe(n), 'data-request': id[n] });
      e.style.setProperty('--hue', hue(adapter[n]));
      this.dots.set(n, e);
    }
    return e;
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
        share.set(`${l.slot ? 'slots' : 'host'} ${l.adapter}`, Math.max(0, (w.t - l.from) / (l.to - l.from)));
      }
      for (const [key, chip] of part.shown) {
        const x = share.get(key);
        chip.classList.toggle('loading', x !== undefined);
        if (x !== undefined) chip.style.setProperty('--done', x.toFixed(3));
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
          const e = this.dots.get(n);
          if (e?.isConnected) places.set(e, e.getBoundingClientRect());
        }
        this.seats.set(n, i);
      }
    }
    return places;
  }

  // fly animates what has gone to another worker, from where it was.
  fly(before) {
    for (const [e, was] of before) {
      if (!e.isConnected) continue;
      const is = e.getBoundingClientRect();
      const start = `translate(${was.x - is.x}px, ${was.y - is.y}px) scale(1.6)`;
      const steps = [{ transform: start, zIndex: 5 }, { transform: 'none', zIndex: 5 }];
      e.animate(steps, { duration: 600, easing: 'ease-in-out' });
    }
  }

  // mark sets off what a plan has changed.
  mark(p) {
    for (const e of this.hot || []) e.classList.remove('hot');
    this.hot = [];
    const add = e => { if (e) { e.classList.add('hot'); this.hot.push(e); } };
    for (const [w, a] of p?.load || []) {
      add(this.parts[w].shown.get(`slots ${a}`));
      add(this.parts[w].shown.get(`host ${a}`));
    }
    for (const [n] of p?.moves || []) add(this.dots.get(n));
  }

  // forget drops the elements of requests that are not shown.
  forget(w) {
    for (const [n, e] of this.dots) if (!e.isConnected) this.dots.delete(n);
    for (const n of this.seats.keys()) if (!w.spot.has(n)) this.seats.delete(n);
  }
}

// workerHead is the head of a table of workers.
export const workerHead = ['Worker', 'State', 'Running (requests)', 'Waiting (requests)', { text: 'In GPU slots', class: 'text' }, { text: 'In host memory', class: 'text' }];

// listed names adapters in a table.
export const listed = (adapters, name) => adapters.slice(0, 100).map(name).join(', ') || 'none';
