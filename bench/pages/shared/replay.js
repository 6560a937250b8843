// The replay of a recorded run: the workers as columns, a time line, and plans with their reasons. mountReplay(element,
// data) shows what bench/replay wrote (json.go).
import { el, svg } from './dom.js';
import { Film, upper } from './film.js';
import { Columns, hostTier, gpuTier, powers, workerHead, listed } from './columns.js';
import { asTable } from './table.js';

const speeds = [0.1, 0.25, 0.5, 1, 2, 5, 10, 25, 50, 100, 250, 1000];

// seconds writes a time, which is in microseconds.
const seconds = t => `${(t / 1e6).toFixed(t < 1e8 ? 2 : 1)} s`;

// words tell a state to those who do not see it.
function words(film, w) {
  const list = w.workers.map((s, i) => {
    const state = s.down ? ', down' : s.power ? `, ${powers[s.power]}` : '';
    const slots = film.holds(w, i, gpuTier).map(a => film.name(a)).join(', ') || 'none';
    return `Worker ${i}${state}: ${s.running.size} running, ${s.queue.size} waiting, adapters in GPU slots: ${slots}.`;
  });
  return `At ${seconds(w.t)}. ${list.join(' ')} ${w.moving.size} requests between workers.`;
}

// planWords tell a plan.
function planWords(film, p) {
  const at = l => l.map(([w, a]) => `${film.name(a)} on worker ${w}`).join(', ');
  const parts = [];
  if (p.load.length) parts.push(`loads ${at(p.load)}`);
  if (p.unload.length) parts.push(`unloads ${at(p.unload)}`);
  if (p.moved) parts.push(`moves ${p.moved} request${p.moved > 1 ? 's' : ''}`);
  if (p.dropped) parts.push(`dropped: ${p.dropped}`);
  return parts.join('; ');
}

class Player {
  constructor(root, data) {
    this.root = root;
    this.film = new Film(data);
    this.motion = matchMedia('(prefers-reduced-motion: reduce)');
    this.playing = false;
    this.build();
    this.speed.value = String(speeds.find(s => this.film.end / 1e6 / s <= 60) || speeds.at(-1));
    this.seek(0);
  }

  build() {
    const button = (text, label, onclick, key) => el('button', { type: 'button', 'aria-label': label, title: `${label} (${key})`, onclick }, text);
    this.play = button('Play', 'Play', () => this.toggle(), 'space');
    this.play.className = 'play';
    this.speed = el('select', { 'aria-label': 'Speed, simulated seconds in a second' },
      ...speeds.map(s => el('option', { value: s }, `${s} ×`)));
    this.now = el('output', { class: 'now' });
    this.range = el('input', {
      type: 'range', min: 0, max: this.film.end, step: 1, 'aria-label': 'Time of the run', oninput: () => this.seek(+this.range.value),
    });
    this.plan = el('div', { class: 'plan', hidden: this.film.plans.length === 0 });
    this.live = el('p', { class: 'sr', 'aria-live': 'polite' });
    this.table = asTable(() => this.content());
    const back = button('◀ plan', 'Previous plan', () => this.step(-1), 'p');
    const next = button('plan ▶', 'Next plan', () => this.step(1), 'n');
    this.box = el('div', { class: 'replay', tabindex: 0, role: 'group', 'aria-label': 'Replay of the run', onkeydown: e => this.key(e) },
      el('div', { class: 'bar-row' }, this.play, back, next, el('label', {}, 'Speed ', this.speed), this.now),
      el('div', { class: 'line' }, this.overview(), this.range), this.legend(), this.plan);
    const still = () => this.motion.matches || !this.playing && !this.stepping;
    this.columns = new Columns(this.box, this.film, { still });
    this.box.append(this.table, this.live);
    this.root.replaceChildren(this.box);
  }

  // overview draws the queues over time, and the plans.
  overview() {
    const n = 400, curve = this.film.curve(n), most = Math.max(1, ...curve);
    this.mostWaiting = most;
    const area = curve.map((y, i) => `L${i} ${44 - 40 * y / most}L${i + 1} ${44 - 40 * y / most}`);
    const plans = this.film.plans.map(p => `M${n * p.applied / (this.film.end || 1)} 0v8`);
    const g = svg('svg', { viewBox: `0 0 ${n} 44`, preserveAspectRatio: 'none', 'aria-hidden': 'true' });
    g.append(svg('path', { class: 'area', d: `M0 44${area.join('')}L${n} 44Z` }), svg('path', { class: 'tick', d: plans.join('') }));
    return g;
  }

  legend() {
    const t = this.film.data.thinned, list = [`Area: waiting requests, at most ${this.mostWaiting}.`,
      this.film.plans.length ? 'Marks: plans.' : 'The run has no plans.',
      'Square: a request, in the color of its adapter.'];
    if (t.every > 1) list.push(`Shown: one of ${t.every} of ${t.requests} requests.`);
    if (t.plan_every > 1) list.push(`One of ${t.plan_every} of ${t.plans} plans is kept.`);
    if (t.until >= 0) list.push(`The recording ends at ${seconds(t.until)}: the run is too large.`);
    return el('p', { class: 'small' }, list.join(' '));
  }

  toggle() { if (this.playing) this.pause(); else this.start(); }

  start() {
    if (this.t >= this.film.end) this.seek(0);
    this.playing = true;
    this.name('Pause');
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
    this.name('Play');
    this.tell();
  }

  // name names the button that plays.
  name(text) {
    this.play.textContent = text;
    this.play.setAttribute('aria-label', text);
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
      this.live.textContent = this.film.plans.length ? 'There is no further plan.' : 'The run has no plans.';
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
    this.range.setAttribute('aria-valuetext', seconds(t));
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
      this.plan.replaceChildren(el('p', { class: 'small' }, 'No plan yet.'));
      return;
    }
    this.plan.dataset.plan = k;
    this.plan.replaceChildren(
      el('p', {}, el('strong', {}, `Plan ${k + 1} of ${this.film.plans.length}`), ` at ${seconds(p.applied)}: `,
        el('span', { class: 'reason' }, p.reason || 'no reason given')),
      el('p', { class: 'small' }, planWords(this.film, p)));
  }

  // tell writes what is shown for those who do not see it.
  tell() {
    this.table.renew();
    clearTimeout(this.later);
    this.later = setTimeout(() => { this.live.textContent = words(this.film, this.w); }, 300);
  }

  // content is what is shown as a table.
  content() {
    const names = (i, tier) => listed(this.film.holds(this.w, i, tier), a => this.film.name(a));
    return {
      label: `Workers at ${seconds(this.t)}`, head: workerHead,
      rows: this.w.workers.map((s, i) => [i, s.down ? 'down' : powers[s.power], s.running.size, s.queue.size, names(i, gpuTier), names(i, hostTier)]),
    };
  }

  key(e) {
    if (e.target !== this.box && e.target !== this.range || e.altKey || e.ctrlKey || e.metaKey) return;
    const by = this.film.end / (e.shiftKey ? 20 : 200), all = speeds.indexOf(Number(this.speed.value));
    const act = {
      ' ': () => this.toggle(), n: () => this.step(1), p: () => this.step(-1), ArrowLeft: () => this.seek(this.t - by),
      ArrowRight: () => this.seek(this.t + by), Home: () => this.seek(0), End: () => this.seek(this.film.end),
      '+': () => { this.speed.value = speeds[Math.min(all + 1, speeds.length - 1)]; },
      '-': () => { this.speed.value = speeds[Math.max(all - 1, 0)]; },
    }[e.key];
    if (act) { e.preventDefault(); act(); }
  }
}

// mountReplay shows a recording in an element. It returns a function that takes the view away again, with what drives
// the view; times are in seconds.
export function mountReplay(element, data) {
  const p = new Player(element, data);
  const unmount = () => { p.pause(); element.replaceChildren(); };
  return Object.assign(unmount, {
    play: () => p.start(), pause: () => p.pause(), seek: s => p.seek(s * 1e6), step: by => p.step(by),
    time: () => p.t / 1e6, end: p.film.end / 1e6,
  });
}
