// The page: the query, its runs, and what they show.
import { byId, el, section, setupTheme } from './dom.js';
import { fmt } from './numbers.js';
import * as api from './api.js';
import { linkOf, ofLink, copy } from './query.js';
import { form } from './knobs.js';
import { results } from './results.js';
import { saver } from './save.js';

const debounce = 40; // ms between a change and the run that it starts
const status = byId('status');

async function main() {
  setupTheme();
  byId('skip').addEventListener('click', e => {
    e.preventDefault(); // the address holds the query
    byId('main').focus();
  });
  const start = await api.start();
  let query = copy(ofLink(location.hash) || start.query);
  const view = { runs: [], points: [], breaks: null, states: null, compared: null, note: '', target: null, slo: '', commands: [], yaml: '' };
  const faults = el('div', { id: 'faults', role: 'alert', hidden: true });
  byId('main').append(faults);
  const shows = results(start, view);
  const replay = replaySection(start, view);
  const save = saver(shows.charts, () => ({ query, commands: view.commands, yaml: view.yaml, runs: view.runs, compared: view.compared, points: view.points, breaks: view.breaks, states: view.states || view.runs.map(r => r.state) }));

  let running = null, timer = 0, turned = 0;
  const knobs = form(byId('knobs'), start, () => query, () => {
    turned ||= performance.now();
    clearTimeout(timer);
    timer = setTimeout(go, debounce);
  });
  function load(q) {
    query = copy(q);
    knobs.show();
    turned ||= performance.now();
    go();
  }
  byId('knobs').addEventListener('preset', e => load(e.detail));
  window.addEventListener('hashchange', () => {
    const q = ofLink(location.hash);
    if (q && linkOf(q) !== linkOf(query)) load(q);
  });

  // go runs the query, and gives up the run before.
  async function go() {
    if (running) running.abort();
    const mine = running = new AbortController(), since = turned || performance.now();
    turned = 0;
    history.replaceState(null, '', '#' + linkOf(query));
    status.textContent = 'running …';
    document.body.dataset.busy = 'true';
    try {
      await api.run(query, mine.signal, e => part(e, since));
      if (mine !== running) return;
      if (!status.textContent.startsWith('not')) status.textContent = `first results after ${fmt(view.picture)} ms, all after ${fmt(Math.round(performance.now() - since))} ms`;
    } catch (err) {
      if (mine !== running || mine.signal.aborted) return;
      status.textContent = 'not run';
      other([err.message]);
    }
    delete document.body.dataset.busy;
    document.body.dataset.answers = Number(document.body.dataset.answers || 0) + 1;
  }

  // part shows a part of the answer.
  function part({ kind, data }, since) {
    switch (kind) {
      case 'checked':
        other([...knobs.faults(data.faults || []), ...(data.notes || [])]);
        if (data.faults.length) {
          status.textContent = 'not run: a setting is wrong';
          return;
        }
        knobs.effective(data.effective);
        Object.assign(view, { commands: data.commands, yaml: data.yaml, target: data.target || null, slo: data.slo || '' });
        return save();
      case 'runs':
        Object.assign(view, { runs: data, points: [], breaks: null, states: null, note: '' });
        shows.runs();
        replay();
        // the frame after the one that draws
        return requestAnimationFrame(() => requestAnimationFrame(() => {
          view.picture = Math.round(performance.now() - since);
          document.body.dataset.picture = view.picture;
        }));
      case 'compared':
        view.compared = data;
        return shows.compared();
      case 'points':
        view.points.push(...data);
        return shows.rate();
      case 'breaks':
        view.breaks = data;
        shows.rate();
        return shows.cards();
      case 'states':
        view.states = data;
        return shows.cards();
      case 'note':
        view.note = data;
        return shows.rate();
      case 'error':
        throw new Error(data);
    }
  }

  // other shows messages that are about no single field.
  function other(list) {
    faults.hidden = !list.length;
    faults.replaceChildren(...list.map(t => el('p', {}, t)));
  }

  knobs.show();
  go();
}

// replaySection is where the replay of a run goes: the module replay.js has mountReplay(element, data).
function replaySection(start, view) {
  const box = el('div'), tools = el('div', { class: 'tools' });
  if (!start.replay) return () => {};
  section('replay', 'Replay', '', tools, box).classList.add('wide');
  let shown = '', unmount = null;
  async function play(run) {
    shown = run.id;
    try {
      const [module, data] = await Promise.all([import('./replay.js'), api.replay(run.id)]);
      if (shown !== run.id) return;
      if (unmount) unmount();
      box.replaceChildren();
      unmount = module.mountReplay(box, data) || null;
    } catch (err) {
      box.replaceChildren(el('p', { class: 'fault' }, err.message));
    }
  }
  return () => {
    if (unmount) unmount();
    unmount = null;
    shown = '';
    box.replaceChildren();
    tools.replaceChildren(...view.runs.map(r => el('button', { type: 'button', onclick: () => play(r) }, 'Replay ' + r.policy)));
  };
}

main().catch(err => { status.textContent = 'not run: ' + err.message; });
