// The page of a fleet. It asks for the state every second, and shows changes alone, so that what a reader looks at,
// selects or has focused stays.
import { byId, setupTheme } from './dom.js';
import { clock } from './numbers.js';
import { workers } from './workers.js';
import { latency } from './latency.js';
import { events } from './events.js';

const every = 1000; // ms
let key = '', instance = '', last = 0, ended = false, waits = false;

// ask sends a request with the operator's key.
async function ask(path, body) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const options = { headers, cache: 'no-store' };
  if (body) Object.assign(options, { method: 'POST', body: JSON.stringify(body) });
  if (body) headers['Content-Type'] = 'application/json';
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error('the server does not answer');
  }
  if (response.status === 401) {
    byId('login').hidden = false;
    throw new Error('a key is needed');
  }
  const value = await response.json();
  if (!response.ok) throw new Error(value.error?.message || `${response.status} ${response.statusText}`);
  return value;
}

const shows = [workers(change), latency(), events()];

async function refresh() {
  try {
    const state = await ask(`state?after=${last}`);
    if (state.instance !== instance) { // the first answer, or that of a restarted server
      instance = state.instance;
      if (last > 0) {
        last = 0;
        for (const s of shows) s.reset?.();
        return await refresh();
      }
    }
    if (!ended) show(state);
  } catch (err) {
    byId('status').textContent = ended ? '' : `${err.message}; ${last || shows.at ? 'what is shown is older' : 'nothing to show yet'}`;
  }
}

function show(state) {
  byId('login').hidden = true;
  shows.at = state.at;
  last = state.events.reduce((n, e) => Math.max(n, e.id), last);
  if (state.started) for (const s of shows) s.show(state);
  run(state.run);
  if (state.run?.ended) ended = true; else if (state.run && !waits) result();
  const scale = state.speed > 1 ? `; times are the workers', ${state.speed} × the wall clock's` : '';
  byId('status').textContent = ended ? '' : state.started ? `as of ${clock(state.at)}${scale}` : 'the run has not begun';
}

// result waits for the end of a benchmark.
async function result() {
  waits = true;
  while (!ended) {
    try {
      show(await ask(`result?after=${last}`));
    } catch {
      await new Promise(done => { setTimeout(done, every); });
    }
  }
}

// run shows how far a benchmark is, and its result.
function run(r) {
  byId('run').hidden = !r;
  if (!r) return;
  document.title = r.ended ? 'lorasim bench: ended' : 'lorasim bench';
  byId('title').textContent = 'Benchmark';
  const of = r.requests > 0 ? ` of ${r.requests}` : '';
  const words = `${r.done}${of} requests done, ${r.failed} failed, ${r.in_flight} in flight after ${r.now_s.toFixed(1)} s`;
  const bar = byId('run-bar');
  bar.hidden = r.ended || !(r.requests > 0);
  bar.max = Math.max(r.requests, 1);
  bar.value = r.done;
  byId('run-title').textContent = r.ended ? 'Result' : 'Run';
  byId('run').setAttribute('aria-live', r.ended ? 'polite' : 'off');
  byId('run-words').textContent = r.ended ? `${r.outcome}: ${words}. The page shows the last state; nothing serves it any more.` : `${words}.`;
  if (!r.ended) return;
  byId('run').dataset.ended = 'true';
  byId('result').hidden = !r.result;
  byId('result').textContent = r.result || '';
}

// outcome tells how the latest change ended; it stays until the next one.
function outcome(text) {
  byId('outcome').hidden = !text;
  byId('outcome').textContent = text && `${clock(Date.now())} ${text}`;
}

// change asks for a confirmation, and then for the change. Without values the adapter is asked for, too.
function change(what, worker, values, question) {
  byId('question').textContent = question;
  byId('adapter-field').hidden = !!values;
  byId('adapter').value = '';
  byId('yes').onclick = async () => {
    byId('ask').close();
    outcome('');
    try {
      await ask(what, { worker, ...(values || { adapter: byId('adapter').value }) });
      await refresh();
      outcome(`${what} on worker ${worker}: done`);
    } catch (err) {
      outcome(`${what} on worker ${worker}: ${err.message}`);
    }
  };
  byId('no').onclick = () => byId('ask').close();
  byId('ask').showModal();
}

setupTheme();
byId('enter').onclick = () => { key = byId('key').value.trim(); refresh(); };
byId('key').onkeydown = e => { if (e.key === 'Enter') byId('enter').click(); };
refresh();
setInterval(() => { if (!ended && !document.hidden && !byId('ask').open && byId('login').hidden) refresh(); }, every);
