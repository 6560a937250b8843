// The sections of the report, in its order.
import { el, section, redraws, hidden, select, checkbox, legend } from './dom.js';
import { fmt, percent, time } from './numbers.js';
import { color, dash, workerColor } from './theme.js';
import { fitted, fillTable, filled } from './table.js';
import { lineChart, distribution } from './chart.js';
import { D, first, shown, where } from './data.js';

const stateNote = 'OVERLOADED: requests arrive faster than the workers finish them; in parentheses the rate that the workers sustain. Transient: the run is too short, or its load changes too much, to extrapolate. Both get no star and no verdict on latencies, because these measure the length of the run.';

export function overview() {
  if (!D.compared) return;
  const { rows, states } = D.compared, table = el('table', { id: 'overview-table' });
  const head = [{ text: 'Metric', class: 'text' }, ...D.runs.map(r => ({ text: r.name, title: r.what }))];
  const stateRow = { id: 'overview-states', cells: ['State', ...states.map(s => ({ text: s.mark || '–', class: s.state, title: s.text }))] };
  fillTable(table, head, [
    ...(states.some(s => s.mark) ? [stateRow] : []),
    ...rows.map(row => [row.title + [' ↑', '', ' ↓'][row.better + 1], ...row.cells.map((v, i) => ({
      text: fmt(v) + (row.best[i] ? ' ★' : '') + (row.apart[i] ? ' ≠' : ''), class: row.best[i] ? 'best' : null,
    }))]),
  ]);
  const kinds = [...new Set(D.runs.map(r => r.source))].join(', ');
  const marks = [
    `One column per run (${kinds}).${where} Means over the seeds where a sweep has several. ↓ less is better, ↑ more is better.`,
    rows.some(r => r.best.some(Boolean)) ? '★ the best of its row: the 95 % interval of its difference to every other run excludes 0. Differences are taken seed by seed, and runs with the same seed get the same requests. So a star can be certain although the intervals of the means overlap.' : '',
    rows.some(r => r.apart.some(Boolean)) ? '≠ not comparable: other requests completed, or the client measured in another way.' : '',
    states.some(s => s.mark && s.state !== 'steady') ? stateNote : '',
  ];
  const s = section('overview', D.at.length === 1 ? 'Runs at ' + D.at[0].split(' at ').slice(1).join(' at ') : 'Runs', marks.filter(Boolean).join(' '),
    fitted('Metrics of the runs', table));
  if (D.at.length) s.append(el('p', { class: 'hint' }, 'The sections below show the same runs. Another point of the sweep: lorasim report --at KEY=VALUE.'));
  if (D.runs.some(r => r.what)) {
    s.append(el('details', {}, el('summary', {}, 'What the runs are'),
      el('ul', { class: 'note' }, ...D.runs.map(r => el('li', {}, `${r.name}: ${r.source}, ${r.what}`)))));
  }
  if (D.notes.length) s.append(el('ul', { class: 'note' }, ...D.notes.map(n => el('li', {}, n))));
}

export function latencies() {
  const runs = D.runs.map((r, i) => ({ ...r, i })).filter(r => r.quantiles && Object.keys(r.quantiles).length);
  if (!runs.length) return;
  const titles = { e2e: 'End-to-end latency', ttft: 'Time to first token', tpot: 'Time per output token' };
  let which = 'e2e', log = true;
  const chart = el('div', { id: 'cdf-chart' });
  section('cdf', 'Latency distribution', 'Cumulative share of requests by latency (further left is better). Failed requests are not counted.' + where,
    el('div', { class: 'tools' },
      select('Latency', Object.entries(titles), v => { which = v; draw(); }, which),
      checkbox('Log scale (x)', v => { log = v; draw(); }, log)),
    legend(runs.map(r => r.name), k => color(runs[k].i)), chart);
  const draw = lineChart(chart, () => distribution(titles[which], log, D.probabilities, shown(runs).filter(r => r.quantiles[which])
    .map(r => ({ name: r.name, color: color(r.i), dash: dash(r.i), values: r.quantiles[which] })), 340));
}

export function adapters() {
  const runs = D.runs.map((r, i) => ({ ...r, i })).filter(r => r.adapters && r.adapters.length > 1);
  if (!runs.length) return;
  const titles = { e2e: 'Mean E2E latency (ms)', p99: 'P99 E2E latency (ms)', ttft: 'Mean TTFT (ms)', requests: 'Requests' };
  let which = 'e2e', log = false;
  const order = runs[0].adapters.map(a => a.name); // the busiest first
  const place = new Map(order.map((n, i) => [n, i + 1]));
  for (const r of runs) for (const a of r.adapters) if (!place.has(a.name)) place.set(a.name, place.size + 1);
  const names = [...place.keys()];
  const chart = el('div', { id: 'adapters-chart' });
  section('adapters', 'Latency by adapter', 'One dot per adapter and run; adapters with most requests are on the left. Dots at the same height mean that adapters are served equally well.' + where,
    el('div', { class: 'tools' },
      select('Show', Object.entries(titles), v => { which = v; draw(); }, which),
      checkbox('Log scale (y)', v => { log = v; draw(); }, log)),
    legend(runs.map(r => r.name), k => color(runs[k].i)), chart);
  const draw = lineChart(chart, () => ({
    label: titles[which] + ' by adapter', height: 320, snap: true,
    x: { label: 'adapters, by number of requests', text: v => v <= names.length && Number.isInteger(v) ? names[v - 1] : '', min: 0.5, max: names.length + 0.5, at: names.map((_, i) => i + 1) },
    y: { label: titles[which], log, zero: true },
    lines: shown(runs).map(r => ({
      name: r.name, color: color(r.i), dots: true, thin: names.length > 48,
      points: r.adapters.map(a => [place.get(a.name), a[which], null, null, `(${fmt(a.requests)} requests${a.rank ? ', rank ' + a.rank : ''})`]),
    })),
  }));
}

export function workers() {
  const runs = D.runs.map((r, i) => ({ ...r, i })).filter(r => r.series);
  if (!runs.length) return;
  const titles = { queued: 'Waiting requests, mean', queued_max: 'Waiting requests, maximum', running: 'Running requests, mean', loads: 'Adapter loads' };
  if (runs.some(r => r.series.workers[0].on)) titles.on = 'On, costing GPU time';
  const unit = () => ({ loads: 'adapter loads', on: 'share of time on' })[which] || 'requests';
  let which = 'queued', run = first(runs);
  const most = 24; // workers drawn one by one
  const total = el('div', { id: 'workers-total' }), grid = el('div', { class: 'grid', id: 'workers-grid' });
  const note = el('p', { class: 'hint' });
  const values = (w, s) => w[which] || s.workers[0][which] || null;
  section('workers', 'Queues and batches over time', 'Top: all workers together, one line per run. Below: each worker of one run, all on the same scale.' + where,
    el('div', { class: 'tools' },
      select('Show', Object.entries(titles), v => { which = v; drawTotal(); fill(); }, which)),
    legend(runs.map(r => r.name), k => color(runs[k].i)), total,
    el('div', { class: 'tools' }, select('Workers of', runs.map(r => [r.name, r.name]), v => { run = v; fill(); }, run)),
    note, grid);
  const line = (s, ys) => ys ? ys.map((y, k) => [Math.min((k + 0.5) * s.bucket, s.end), y]) : [];
  const sum = s => s.workers[0][which] ? s.workers[0][which].map((_, k) => s.workers.reduce((t, w) => t + (w[which][k] || 0), 0)) : null;
  const drawTotal = lineChart(total, () => ({
    label: titles[which] + ' on all workers over time', height: 240,
    x: { label: 'time (s)', min: 0 }, y: { label: unit() + (which === 'on' ? ', all workers' : ' on all workers') },
    lines: shown(runs).map(r => ({ name: r.name, color: color(r.i), dash: dash(r.i), thin: true, points: line(r.series, sum(r.series)) })),
  }));
  let drawn = [];
  function fill() {
    drawn.forEach(d => redraws.delete(d));
    drawn = [];
    const r = runs.find(x => x.name === run), s = r.series;
    let list = s.workers.map((w, k) => ({ w, k }));
    note.textContent = '';
    if (list.length > most) {
      const load = w => w.running.reduce((a, b) => a + b, 0);
      list = list.sort((a, b) => load(b.w) - load(a.w)).slice(0, most);
      note.textContent = `The ${most} busiest of ${s.workers.length} workers.`;
    }
    let top = 0;
    for (const { w } of list) for (const v of values(w, s) || []) top = Math.max(top, v);
    grid.replaceChildren();
    for (const { w, k } of list) {
      const c = el('div');
      grid.append(el('div', {}, el('h3', {}, `Worker ${k}`), c));
      drawn.push(lineChart(c, () => ({
        label: `Worker ${k}: ${titles[which]} over time`, height: 130, table: false,
        x: { min: 0, max: s.end, text: time }, y: { label: unit(), min: 0, max: top || 1 },
        lines: [{ name: titles[which], color: workerColor(k), area: true, thin: true, points: line(s, values(w, s)) }],
      })));
    }
  }
  fill();
}

export function plans() {
  const runs = D.runs.filter(r => r.plans);
  if (!runs.length) return;
  let run = first(runs), changes = true, most = 50;
  const table = el('table', { id: 'plans-table' });
  const count = el('p', { class: 'hint', 'aria-live': 'polite' });
  const more = el('button', { type: 'button', onclick: () => { most += 200; fill(); } }, 'Show more');
  section('plans', 'Plans', 'What the planner decided, when and why. Gain: the time that the planner expects to save. Gap: how far the plan may be from the optimum.' + where,
    el('div', { class: 'tools' },
      select('Run', runs.map(r => [r.name, r.name]), v => { run = v; fill(); }, run),
      checkbox('Only plans that change something', v => { changes = v; fill(); }, changes)),
    count, fitted('Plans', table), more);
  const list = names => names.length > 4 ? `${names.slice(0, 4).join(', ')} and ${names.length - 4} more` : names.join(', ');
  function fill() {
    const p = runs.find(r => r.name === run).plans;
    const rows = p.rows.filter(x => !changes || x.dropped || x.loads.length || x.unloads.length || x.moves);
    count.textContent = `${rows.length} of ${p.rows.length} plans` + (p.left ? `, ${p.left} more were not kept` : '');
    const words = text => ({ text, class: 'text' }), few = names => ({ text: list(names), title: names.join(', ') });
    fillTable(table, ['Time (s)', words('Reason'), words('Loaded (adapter@worker)'), words('Unloaded (adapter@worker)'), 'Requests moved', 'Gain (s)', 'Gap (%)', 'Solved in (s)'],
      rows.slice(0, most).map(x => [fmt(x.applied), x.dropped ? `dropped: ${x.dropped}` : x.reason, few(x.loads), few(x.unloads),
        fmt(x.moves), x.gain == null ? '' : fmt(x.gain), x.gap == null ? '' : fmt(100 * x.gap), fmt(x.solve)]));
    more.hidden = rows.length <= most;
  }
  fill();
}

export function sweeps() {
  D.sweeps.forEach((s, n) => {
    if (s.points.length) sweepSection(s, 'sweep' + (n || ''));
    if (s.maps) mapSection(s, 'map' + (n || ''));
  });
}

// mapSection shows the best policy of each cell of a sweep, and its gain.
function mapSection(s, id) {
  let which = 0;
  const box = el('div', { class: 'grid', id: id + '-blocks' });
  section(id, `Map: ${s.name}`, `Each cell shows the policy (for a planner: its interval) with the largest significant gain over ${s.baseline}, by paired t-tests with Holm's correction; darker is larger. Empty: no gain is significant, or a run is not in a steady state.`,
    el('div', { class: 'tools' }, select('Metric', s.maps.map((m, i) => [String(i), m.title]), v => { which = +v; draw(); }, '0')), box);
  function draw() {
    const m = s.maps[which], top = Math.max(...m.blocks.flatMap(b => b.cells.flat().map(c => c.gain)), 1e-9);
    const share = c => `${Math.round(10 + 45 * c.gain / top)}%`, short = policy => (/interval=([^,]*)/.exec(policy) || [0, policy])[1];
    const cell = c => c.policy ? {
      text: `${short(c.policy)}: ${percent(c.gain)}`, title: `${c.policy}: ${percent(c.gain)} ± ${percent(c.half)}`, class: 'gain', 'data-share': share(c),
    } : '–';
    box.replaceChildren(...m.blocks.map(b => {
      const table = filled(b.title || m.title, [{ text: `${m.y.label} \u2193 ${m.x.label} \u2192`, class: 'text' }, ...m.x.values],
        b.cells.map((row, k) => [m.y.values[k], ...row.map(cell)]).reverse());
      for (const td of table.querySelectorAll('.gain')) td.style.setProperty('--gain', td.dataset.share);
      return el('div', {}, el('h3', {}, b.title), table);
    }));
  }
  draw();
}

// dimensions of a sweep: its axes, and the policies where there are several.
function dimensions(s) {
  const d = s.axes.map((a, i) => ({ name: a.label, values: a.values, numeric: a.numeric, of: p => p.at[i] }));
  if (s.policies.length > 1 || !d.length) d.push({ name: 'policy', values: s.policies, numeric: false, of: p => p.p });
  return d;
}

// geometric says whether an axis is best drawn logarithmically.
const geometric = d => d.numeric && d.values.length > 2 && d.values.every(v => +v > 0) && Math.max(...d.values) / Math.min(...d.values) >= 16;

function sweepSection(s, id) {
  const dims = dimensions(s), last = dims.length - 1;
  const st = {
    across: 0, lines: last > 0 ? last : -1, // -1: a single line
    metric: Math.max(0, s.metrics.findIndex(m => m.name === 'mean_e2e_latency_ms')),
    fixed: dims.map(d => Math.floor(d.values.length / 2)), logX: geometric(dims[0]), logY: false, zero: false,
  };
  const chart = el('div', { id: id + '-chart' }), tools = el('div', { class: 'tools' }), names = el('div');
  let drop = null, draw = () => {};
  function fill() {
    const choose = dims.map((d, i) => [String(i), d.name]);
    const set = (k, v) => { st[k] = v; fill(); draw(); };
    tools.replaceChildren(...[
      select('Metric', s.metrics.map((m, i) => [String(i), m.title]), v => { st.metric = +v; draw(); }, String(st.metric)),
      dims.length > 2 ? select('Across', choose, v => {
        if (+v === st.lines) st.lines = st.across;
        st.logX = geometric(dims[+v]);
        set('across', +v);
      }, String(st.across)) : null,
      dims.length > 2 ? select('Lines', choose.filter(c => +c[0] !== st.across), v => set('lines', +v), String(st.lines)) : null,
      ...dims.map((d, i) => i === st.across || i === st.lines ? null :
        select(d.name, d.values.map((v, k) => [String(k), v]), v => { st.fixed[i] = +v; draw(); }, String(st.fixed[i]))),
      checkbox('From zero', v => { st.zero = v; draw(); }, st.zero),
      checkbox('Log scale (y)', v => { st.logY = v; draw(); }, st.logY),
      dims[st.across].numeric ? checkbox('Log scale (x)', v => { st.logX = v; draw(); }, st.logX) : null,
    ].filter(Boolean));
    if (drop) redraws.delete(drop);
    names.replaceChildren();
    if (st.lines >= 0) {
      const box = legend(dims[st.lines].values);
      drop = box.draw;
      names.append(box);
    }
  }
  fill();
  section(id, `Sweep: ${s.name}`, [
    s.about && s.about !== D.about ? s.about : '',
    `Bands: ${s.intervals}.`,
    s.seeds > 1 && s.policies.length > 1 ? 'Bands may overlap although two policies differ significantly: policies are compared seed by seed, with the same requests.' : '',
    s.points.some(p => p.left > 0) ? 'Hollow points: some requests did not complete; ≠: not the same requests as elsewhere completed, so latencies do not compare.' : '',
    s.points.some(p => p.reached && p.reached.state !== 'steady') ? '✕ overloaded, ◇ transient. ' + stateNote : '',
  ].filter(Boolean).join(' '),
    tools, names, chart);
  draw = lineChart(chart, () => curves(s, dims, st));
}

// undone says how many requests of a point did not complete.
const undone = (p, m) => !(p.left > 0) ? '' :
  `(${p.left < 0.001 ? '<0.1' : fmt(100 * p.left)} % of the requests did not complete${p.apart && !m.all ? ' ≠' : ''})`;

// unsteady says that a point is not in a steady state.
const unsteady = p => p.reached && p.reached.state !== 'steady' ? ` (${p.reached.text})` : '';

// curves are the lines of a sweep across one dimension, one for each value of
// another.
function curves(s, dims, st) {
  const m = s.metrics[st.metric], d = dims[st.across], by = dims[st.lines];
  const x = k => d.numeric ? +d.values[k] : k;
  const lines = (by ? by.values.map((name, i) => ({ name, i })) : [{ name: m.title, i: 0 }]).filter(l => !by || !hidden.has(l.name));
  const fits = (p, l) => dims.every((e, i) => i === st.across || e.of(p) === (i === st.lines ? l.i : st.fixed[i]));
  return {
    label: `${m.title} across ${d.name}`, height: 340, snap: true,
    y: { label: m.title, log: st.logY, zero: st.zero, pad: 0.04 },
    x: {
      label: d.name, log: st.logX && d.numeric, cats: d.numeric ? null : d.values, at: d.numeric && d.values.length <= 12 ? d.values.map(Number) : null,
      min: d.numeric ? null : -0.3, max: d.numeric ? null : d.values.length - 0.7,
    },
    lines: lines.map(l => ({
      name: l.name, color: color(l.i), dash: dash(l.i), dots: d.name === 'policy',
      points: s.points.filter(p => fits(p, l)).map(p => [x(d.of(p)), ...p.m[st.metric], undone(p, m) + unsteady(p), p.left > 0, p.reached && p.reached.state]).sort((u, v) => u[0] - v[0]),
    })),
  };
}

export function blocks() {
  const runs = D.runs.filter(r => r.block);
  if (!runs.length) return;
  section('blocks', 'Result blocks', 'What ran, and the result as the serving benchmarks print it.',
    ...runs.map(r => el('details', {}, el('summary', {}, r.name), el('pre', { tabindex: 0 }, r.block))));
}

// studies are the sections that a study makes of its own figures.
export function studies() {
  for (const s of D.sections || []) {
    const parts = [];
    if (s.text) parts.push(el('pre', { tabindex: 0 }, s.text));
    const chart = s.chart && el('div', { id: s.id + '-chart' });
    if (chart && s.chart.lines.length > 1) parts.push(legend(s.chart.lines.map(l => l.name)));
    if (chart) parts.push(chart);
    if (s.table) parts.push(filled(s.title, [{ text: s.table[0][0], class: 'text' }, ...s.table[0].slice(1)], s.table.slice(1)));
    section(s.id, s.title, s.note, ...parts);
    if (chart) studyChart(chart, s.chart);
  }
}

function studyChart(host, c) {
  return lineChart(host, () => ({
    label: c.label, height: 320, snap: true,
    x: { label: c.x, cats: c.names || null, min: c.names ? -0.3 : null, max: c.names ? c.names.length - 0.7 : null },
    y: { label: c.y, zero: true, pad: 0.04 },
    lines: c.lines.map((l, i) => ({ ...l, color: color(i), dash: dash(i) })).filter(l => !hidden.has(l.name)),
  }));
}
