// The workers as columns, drawn as the replay of a run draws them, and as a table.
import { Columns, gpuTier, workerHead, listed } from './columns.js';
import { byId, el } from './dom.js';
import { fmt, counted } from './numbers.js';
import { asTable } from './table.js';

const still = matchMedia('(prefers-reduced-motion: reduce)');

// condition is the state of a worker in words; empty: it takes requests.
function condition(w) {
  const words = [];
  if (!w.up) words.push('down');
  if (w.leaving) words.push('leaving');
  else if (w.draining) words.push('draining');
  if (w.ejected) words.push(`ejected for ${Math.ceil(w.ejected_for_s)} s more`);
  if (w.on_trial) words.push('on trial');
  return words.join(', ');
}

// About is what the columns ask of a cluster.
class About {
  constructor(state) {
    this.update(state);
    this.starts = state.workers.map(w => ({ name: `Worker ${w.worker}`, slots: w.adapter_slots, host_slots: 0 }));
  }

  update(state) {
    this.state = state;
    const r = this.requests = { id: {}, adapter: {}, prompt: {} };
    for (const q of state.requests) [r.id[q.id], r.adapter[q.id], r.prompt[q.id]] = [q.id, q.adapter, q.prompt];
  }

  holds(_, i, tier) {
    const w = this.state.workers[i];
    return tier === gpuTier ? [...w.in_slots] : [...w.in_host_memory];
  }

  name(a) { return a < 0 ? 'base model' : this.state.adapters[a]; }
}

// world is a state in the form that the columns draw.
function world(state) {
  const spot = new Map(), at = new Map(state.workers.map((w, i) => [w.worker, i]));
  const list = state.workers.map(w => ({
    power: 0, down: !w.up, queue: new Set(), running: new Set(),
    loads: w.loading.map(adapter => ({ adapter, slot: false, from: 0, to: Infinity })),
  }));
  for (const q of state.requests) {
    list[at.get(q.worker)][q.running ? 'running' : 'queue'].add(q.id);
    spot.set(q.id, q.worker);
  }
  return { t: 0, workers: list, moving: new Map(), held: new Set(), spot };
}

export function workers(change) {
  let shown = '', about = null, columns = null, extras = [];

  // build makes the columns of a new set of workers.
  function build(state) {
    about = new About(state);
    const root = el('div', { class: 'replay' });
    root.style.setProperty('--workers', Math.max(state.workers.length, 1));
    byId('columns').replaceChildren(root);
    if (!state.workers.length) {
      root.append(el('p', { class: 'empty' }, 'The fleet has no workers. They join by POST /admin/workers or --workers-file.'));
      columns = null;
      extras = [];
      return;
    }
    columns = new Columns(root, about, { still: () => still.matches, mostHost: state.workers.length > 4 ? 12 : 30 });
    extras = state.workers.map((w, i) => extra(columns.parts[i].box, w.worker, state.changes));
  }

  // extra adds to a column what a replay has not: the address, memory, ejections, and changes.
  function extra(box, worker, changes) {
    const line = cls => {
      const p = el('p', { class: `small ${cls}`, hidden: true });
      box.append(p);
      return text => { p.hidden = !text; p.textContent = text; };
    };
    const url = el('p', { class: 'small url' });
    box.firstElementChild.after(url);
    const out = { url, kv: line('kv'), deferred: line('deferred'), why: line('ejected'), drain: null };
    if (!changes) return out;
    const button = (text, click) => el('button', { type: 'button', 'aria-label': `${text} worker ${worker}`, onclick: click }, text);
    const drains = () => out.drain.dataset.drains !== undefined;
    out.drain = button('Drain', () => change('drain', worker, { drain: !drains() },
      drains() ? `Send requests to worker ${worker} again?` : `Drain worker ${worker}? It takes no new requests.`));
    box.append(el('div', { class: 'bar-row' }, out.drain,
      button('Load', () => change('load', worker, null, `Load an adapter on worker ${worker}?`)),
      button('Unload', () => change('unload', worker, null, `Unload an adapter from worker ${worker}?`))));
    return out;
  }

  function fill(w, i) {
    const part = columns.parts[i], x = extras[i], says = condition(w);
    part.state.textContent = says;
    part.box.dataset.state = !w.up ? 'down' : w.ejected ? 'ejected' : w.draining ? 'draining' : 'on';
    const most = w.max_running_requests > 0 ? ` of at most ${w.max_running_requests}` : '';
    part.running.count.textContent = `${counted(w.running, 'request')}${most}`;
    part.queue.count.textContent = counted(w.queued, 'request');
    part.slots.count.textContent = w.adapter_slots > 0 ? `${w.in_slots.length} of ${w.adapter_slots} used` : counted(w.in_slots.length, 'adapter');
    part.host.count.textContent = counted(w.in_host_memory.length, 'adapter');
    x.url.textContent = w.url;
    x.kv(kv(w));
    x.deferred(waits(w));
    x.why(ejections(w));
    if (!x.drain) return;
    const label = w.draining ? 'Resume' : 'Drain';
    if (x.drain.textContent === label) return;
    x.drain.textContent = label;
    x.drain.setAttribute('aria-label', `${label} worker ${w.worker}`);
    if (w.draining) x.drain.dataset.drains = ''; else delete x.drain.dataset.drains;
  }

  const table = asTable(() => about && {
    label: 'Workers', head: [...workerHead, 'KV cache', { text: 'Ejections', class: 'text' }],
    rows: about.state.workers.map(w => [`${w.worker}: ${w.url}`, condition(w) || 'up', w.running, w.queued,
      ...[w.in_slots, w.in_host_memory].map(list => listed(list, a => about.name(a))), kv(w).replace('KV cache ', ''), ejections(w) || 'none']),
  });
  byId('workers').append(table);

  return {
    show(state) {
      byId('workers').hidden = byId('nav').hidden = false;
      const set = JSON.stringify([state.changes, ...state.workers.map(w => [w.worker, w.url])]);
      if (set !== shown) build(state);
      shown = set;
      about.update(state);
      if (columns) {
        columns.draw(world(state));
        state.workers.forEach(fill);
      }
      byId('summary').textContent = summary(state);
      const list = byId('adapters');
      if (list.children.length !== state.adapters.length) list.replaceChildren(...state.adapters.map(value => el('option', { value })));
      table.renew();
    },
  };
}

const kv = w => w.kv_tokens > 0
  ? `KV cache ${w.kv_used.toLocaleString('en')} of ${w.kv_tokens.toLocaleString('en')} tokens (${fmt(Math.round(100 * w.kv_used / w.kv_tokens))} %)`
  : `KV cache ${w.kv_used.toLocaleString('en')} tokens`;

// waits tells for what requests of the queue wait.
function waits(w) {
  const list = [];
  if (w.deferred) list.push(`${counted(w.deferred, 'request')} for an adapter slot`);
  if (w.pending) list.push(`${counted(w.pending, 'request')} until an adapter has a place`);
  return list.length ? `Waiting: ${list.join(', ')}` : '';
}

// ejections tells why a worker is or was ejected, and which adapters are.
function ejections(w) {
  const list = [];
  if (w.ejected || w.on_trial) list.push(`${w.ejected ? 'Ejected' : 'On trial'}: ${w.ejection_reason.replaceAll('_', ' ')}`);
  const counts = Object.entries(w.ejections || {}).map(([why, n]) => `${n} for ${why.replaceAll('_', ' ')}`);
  if (counts.length) list.push(`Ejections so far: ${counts.join(', ')}`);
  if (w.ejected_adapters?.length) list.push(`Ejected adapters: ${w.ejected_adapters.join(', ')}`);
  return list.join('. ');
}

function summary(state) {
  const sum = f => state.workers.reduce((n, w) => n + f(w), 0);
  const usable = sum(w => w.up && !w.draining && !w.ejected);
  const list = [`${usable} of ${counted(state.workers.length, 'worker')} take requests`];
  for (const [word, n] of [['down', sum(w => !w.up)], ['ejected', sum(w => w.ejected)], ['draining', sum(w => w.draining)]]) if (n) list.push(`${n} ${word}`);
  list.push(`${counted(sum(w => w.running), 'request')} running`, `${sum(w => w.queued)} queued`, `${counted(state.adapters.length, 'adapter')} known`);
  return `${list.join(', ')}. Policy: ${state.policy || 'unknown'}.`;
}
