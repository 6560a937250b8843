// The page of a fleet: workers, what they hold, queues, ejections, plans, and changes after a confirmation. It asks for
// the state every two seconds, and looks as the replay of a run does.
import { useStyle } from './replay.js';

const byId = id => document.getElementById(id);
const make = (tag, props = {}, ...children) => {
  const el = Object.assign(document.createElement(tag), props);
  el.append(...children);
  return el;
};
const every = 2000; // ms
let key = '';

// ask sends a request with the operator's key.
async function ask(path, body) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const options = { headers, cache: 'no-store' };
  if (body) Object.assign(options, { method: 'POST', body: JSON.stringify(body) });
  if (body) headers['Content-Type'] = 'application/json';
  const response = await fetch(path, options);
  if (response.status === 401) {
    byId('login').hidden = false;
    throw new Error('a key is needed');
  }
  const value = await response.json();
  if (!response.ok) throw new Error(value.error?.message || `${response.status} ${response.statusText}`);
  return value;
}

async function refresh() {
  try {
    show(await ask('state'));
    byId('login').hidden = true;
    byId('status').textContent = `as of ${new Date().toLocaleTimeString()}`;
  } catch (err) {
    byId('status').textContent = err.message;
  }
}

function show(state) {
  byId('workers').hidden = false;
  const list = state.workers.map(column);
  byId('columns').replaceChildren(make('div', { className: 'replay' }, make('div', { className: 'columns' }, ...list)));
  byId('adapters').replaceChildren(...state.adapters.map(value => make('option', { value })));
  byId('plans').hidden = state.plans.length === 0;
  byId('plan-list').replaceChildren(...state.plans.map(plan));
  latency(state);
}

// condition is the state of a worker in words.
function condition(w) {
  const words = [];
  if (!w.up) words.push('down');
  if (w.leaving) words.push('leaving');
  else if (w.draining) words.push('draining');
  if (w.ejected) words.push('ejected');
  if (w.on_trial) words.push('on trial');
  return words.join(', ') || 'up';
}

function column(w) {
  const part = (label, value) => make('div', { className: 'label' }, `${label} `,
    make('span', { className: 'count', textContent: value }));
  const button = (textContent, onclick) => make('button', { type: 'button', textContent, onclick,
    ariaLabel: `${textContent} worker ${w.worker}` });
  const drain = !w.draining, more = w.adapters.length - 60;
  const box = make('section', { className: 'worker', ariaLabel: `Worker ${w.worker}` },
    make('h4', {}, `Worker ${w.worker} `, make('span', { className: 'state',
      textContent: condition(w) === 'up' ? '' : condition(w) })),
    make('p', { className: 'small', textContent: w.url }),
    part('Running', `${w.running} requests`), part('Queue', `${w.queued} requests, ${w.pending} for a place`),
    part('KV cache', `${w.kv_used} tokens`), part('Adapters', `${w.adapters_loaded} loaded`),
    make('ol', { className: 'chips' }, ...w.adapters.slice(0, 60).map(chip)),
    make('span', { className: 'more', textContent: more > 0 ? `and ${more} more` : '' }));
  const counts = Object.entries(w.ejections || {}).map(([why, n]) => `${n} for ${why}`).join(', ');
  if (counts) box.append(part('Ejections', counts));
  box.append(make('div', { className: 'bar-row' },
    button(drain ? 'Drain' : 'Resume', () => change('drain', w, { drain },
      drain ? `Drain worker ${w.worker}? It takes no new requests.` : `Send requests to worker ${w.worker} again?`)),
    button('Load', () => change('load', w, null, `Load an adapter on worker ${w.worker}?`)),
    button('Unload', () => change('unload', w, null, `Unload an adapter from worker ${w.worker}?`))));
  return box;
}

// chip is an adapter, in a color of its name.
function chip(name) {
  const li = make('li', { className: 'chip' }, make('span', { className: 'name', textContent: name }));
  li.style.setProperty('--hue', [...name].reduce((h, c) => (h * 31 + c.codePointAt(0)) % 360, 7));
  return li;
}

function plan(p) {
  const parts = [p.reason || 'no reason given'];
  if (p.load.length) parts.push(`loads ${p.load.join(', ')}`);
  if (p.unload.length) parts.push(`unloads ${p.unload.join(', ')}`);
  if (p.moves) parts.push(`moves ${p.moves} requests`);
  if (p.error) parts.push(p.error);
  return make('li', {}, make('strong', { textContent: `${new Date(p.at).toLocaleTimeString()} ${p.result}: ` }),
    parts.join('; '));
}

// latency shows the predictions of the policy auto beside what was measured.
function latency({ compared: c, policy }) {
  byId('latency').hidden = !c;
  if (!c) return;
  const row = (tag, cells) => make('tr', {}, ...cells.map(textContent => make(tag, { textContent })));
  const ms = s => `${(1000 * s).toFixed(1)} ms`;
  byId('compared').replaceChildren(make('p', { textContent: `Policy: ${policy}` }), make('table', {},
    row('th', ['Mean', 'Predicted', 'Measured']), row('td', ['TTFT', ms(c.predicted_ttft_s), ms(c.ttft_s)]),
    row('td', ['E2E latency', ms(c.predicted_e2e_s), ms(c.e2e_s)])));
}

// change asks for a confirmation, and then for the change. Without values the adapter is asked for, too.
function change(what, w, values, question) {
  byId('question').textContent = question;
  byId('adapter-field').hidden = !!values;
  byId('adapter').value = '';
  byId('yes').onclick = async () => {
    byId('ask').close();
    try {
      await ask(what, { worker: w.worker, ...(values || { adapter: byId('adapter').value }) });
      await refresh();
      byId('status').textContent = `${what} on worker ${w.worker}: done`;
    } catch (err) {
      byId('status').textContent = `${what} on worker ${w.worker}: ${err.message}`;
    }
  };
  byId('no').onclick = () => byId('ask').close();
  byId('ask').showModal();
}

useStyle();
byId('enter').onclick = () => { key = byId('key').value.trim(); refresh(); };
byId('key').onkeydown = e => { if (e.key === 'Enter') byId('enter').click(); };
refresh();
setInterval(() => { if (!document.hidden && !byId('ask').open && byId('login').hidden) refresh(); }, every);
