// The events of a fleet: a time line by worker, and a table; both can be filtered by worker and kind.
import { el, section, select, checkbox, colorKey } from './dom.js';
import { clock } from './numbers.js';
import { color } from './theme.js';
import { fitted, fillTable } from './table.js';
import { clockTicks } from './scale.js';
import { lineChart } from './chart.js';

const kept = 512; // events that the page remembers, as the fleet does
const least = 10_000; // ms that the time line shows at least
const most = 40; // rows of the table, unless all are asked for

const kinds = {
  plan: ['Plan', 0], dropped: ['Plan dropped', 0],
  load: ['Load', 2], failed: ['Load failed', 2], unload: ['Unload', 2], move: ['Move', 3],
  ejected: ['Ejection', 1], trial: ['Trial', 1], returned: ['Return', 1], down: ['Down', 1], up: ['Up', 1],
  drain: ['Drain', 4], member: ['Membership', 4],
};
const groups = [['Plans', 'plans'], ['Ejections and health', 'health'], ['Loads and unloads', 'adapters'], ['Moves', 'moves'], ['Drains and membership', 'operators']];
const group = e => kinds[e.kind]?.[1] ?? 4;
const where = e => e.workers?.length ? e.workers.map(w => `${w}`).join(', ') : 'all';

export function events() {
  let list = [], worker = '', kind = '', all = false, draw = null, known = '', count = 0;
  const chart = el('div', { id: 'event-chart' }), empty = el('p', { class: 'empty' });
  const whose = select('Worker', [['', 'All workers']], v => { worker = v; fill(); });
  const what = select('Kind', [['', 'All events'], ...groups.map((g, i) => [String(i), g[0]])], v => { kind = v; fill(); });
  const rest = el('button', { type: 'button', hidden: true, onclick: () => { all = true; fill(); } });
  const table = el('table', { id: 'event-table' });
  const box = el('div', { hidden: true }, chart, colorKey(groups.map((g, i) => [g[0], color(i)])), el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'List of events' }, fitted('Events as a table', table)), rest);
  let hold = false;
  const pause = checkbox('Hold', v => { hold = v; if (!v) fill(); }, false);
  pause.title = 'New events wait until you end the hold';
  const host = section('events', 'Events', '', el('div', { class: 'tools' }, whose, what, pause), empty, box);
  host.hidden = true;

  const chosen = () => list.filter(e => (worker === '' || !e.workers?.length || e.workers.includes(Number(worker))) && (kind === '' || group(e) === Number(kind)));

  function spec() {
    const shown = chosen();
    const points = i => shown.filter(e => group(e) === i).flatMap(e => {
      const on = !e.workers?.length ? [-1] : worker === '' ? e.workers : [Number(worker)];
      return on.map(w => [Date.parse(e.at), w, null, null, e.text.length > 44 ? `${e.text.slice(0, 43)}…` : e.text]);
    });
    const lines = groups.map((g, i) => ({ name: g[0], color: color(i), dots: true, points: points(i) })).filter(l => l.points.length);
    const ys = lines.flatMap(l => l.points.map(p => p[1])), low = Math.min(...ys), high = Math.max(...ys);
    const times = shown.map(e => Date.parse(e.at)), from = Math.min(...times), to = Math.max(...times, from + least);
    return {
      label: 'Events by worker over time', snap: true, table: false, height: Math.min(420, 130 + 14 * (high - low)),
      x: { label: 'Time of day', text: clock, min: from, max: to, at: clockTicks(from, to, 12) },
      y: { label: 'Worker', min: low - 0.5, max: high + 0.5, text: v => Number.isInteger(v) ? v < 0 ? 'all' : `${v}` : '', tip: v => v < 0 ? 'all workers,' : `worker ${v},` },
      lines,
    };
  }

  function fill() {
    const shown = chosen();
    box.hidden = !shown.length;
    empty.hidden = shown.length > 0;
    empty.textContent = list.length ? 'No event of this kind on this worker.' : 'No event yet: no plan, load, move, ejection or drain.';
    if (!shown.length) return;
    if (draw) draw(); else draw = lineChart(chart, spec);
    const rows = shown.toReversed().slice(0, all ? kept : most);
    fillTable(table, ['Time', 'Worker', 'Event', { text: 'Details', class: 'text' }],
      rows.map(e => ({ 'data-kind': e.kind, cells: [clock(e.at), where(e), kinds[e.kind]?.[0] || e.kind, e.text] })));
    rest.hidden = rows.length === shown.length;
    rest.textContent = `Show all ${shown.length} events`;
  }

  // offer lists the workers to choose from.
  function offer(state) {
    const ids = state.workers.map(w => w.worker);
    if (known === ids.join()) return;
    known = ids.join();
    const box = whose.querySelector('select');
    box.replaceChildren(el('option', { value: '' }, 'All workers'), ...ids.map(w => el('option', { value: w, selected: worker === String(w) }, `Worker ${w}`)));
    worker = box.value;
  }

  return {
    reset() { list = []; },
    show(state) {
      const first = host.hidden;
      host.hidden = false;
      offer(state);
      list = [...list, ...state.events.filter(e => e.id > (list.at(-1)?.id || 0))].slice(-kept);
      if (first || !hold && (list.at(-1)?.id || 0) !== count) fill();
      if (!hold) count = list.at(-1)?.id || 0;
    },
  };
}
