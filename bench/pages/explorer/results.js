// What the runs show: states, distributions, attainment over the rate, waits, and the comparison.
import { el, section, swatch, colorKey, hidden, redraws, redraw, legend, select, checkbox } from './dom.js';
import { fmt, percent, plusMinus } from './numbers.js';
import { color, dash } from './theme.js';
import { fitted, fillTable } from './table.js';
import { lineChart, distribution } from './chart.js';
import { barChart } from './bars.js';

// results adds sections that show view to the page, and returns functions that draw them again. view is {runs, compared,
// points, breaks, states, note, target, slo}; it is changed from outside.
export function results(start, view) {
  const names = () => view.runs.map(r => r.policy);
  const shown = () => view.runs.map((r, i) => ({ ...r, i })).filter(r => !hidden.has(r.policy));
  const legends = [];

  // names of policies that show and hide them, made anew when the policies change
  function policyKeys() {
    const box = el('div');
    legends.push(box);
    return box;
  }
  let keyed = '';
  function drawKeys() {
    const now = JSON.stringify(names());
    if (now === keyed) return;
    keyed = now;
    for (const box of legends) {
      if (box.of) redraws.delete(box.of);
      const l = legend(names());
      box.of = l.draw;
      box.replaceChildren(l);
    }
  }

  // in short
  const cards = el('div', { class: 'cards', id: 'cards' });
  section('short', 'In short', '', cards);
  function drawCards() {
    cards.replaceChildren(...view.runs.map((r, i) => {
      const st = (view.states || []).find(s => s.policy === r.policy) || r.state;
      const b = (view.breaks || []).find(x => x.policy === r.policy);
      const figure = (name, value) => el('div', {}, el('dt', {}, name), el('dd', {}, value));
      const median = q => q ? fmt(q[Math.round((q.length - 1) / 2)]) + ' ms' : 'none';
      const p99 = q => q ? fmt(q[Math.round((q.length - 1) * 0.99)]) + ' ms' : 'none';
      return el('article', { class: 'card' }, el('h3', {}, swatch(color(i)), r.policy),
        el('p', { class: 'state ' + st.state }, el('b', {}, st.state || 'unknown')),
        ...st.words.map(w => el('p', { class: 'hint' }, w.replace(/^(steady|transient|overloaded): /, ''))),
        el('dl', {},
          r.attained == null ? null : figure(`Requests within the SLO (${view.slo})`, percent(r.attained)),
          figure('TTFT, median / P99', `${median(r.ttft)} / ${p99(r.ttft)}`),
          figure('E2E latency, median / P99', `${median(r.e2e)} / ${p99(r.e2e)}`),
          b ? figure('SLO holds up to', holds(b)) : null,
          r.cost ? figure('Cost, unit of the price', `${fmt(r.cost.hour)} per hour` + (r.cost.million == null ? '' : `, ${fmt(r.cost.million)} per million output tokens`)) : null),
        ...(r.notes || []).map(n => el('p', { class: 'fault' }, n)));
    }));
  }

  // holds is the rate up to which a policy keeps the SLO: the mean over the seeds, until then that of the first one.
  function holds(b) {
    if (b.mean) return `${plusMinus(b.mean.mean, (b.mean.ci95_high - b.mean.ci95_low) / 2)} requests/s, mean of ${b.mean.seeds} seeds`;
    const rate = b.fails && b.holds ? `${fmt(b.holds)} to ${fmt(b.fails)}` : b.holds ? `at least ${fmt(b.holds)}` : `less than ${fmt(b.fails)}`;
    return rate + ' requests/s, one seed';
  }

  // distributions
  let log = true;
  const tools = el('div', { class: 'tools' }, checkbox('Log scale (x)', v => { log = v; redraw(); }, log));
  const cdfs = {};
  for (const [which, title] of [['ttft', 'Time to first token (TTFT)'], ['e2e', 'End-to-end latency (E2E)']]) {
    const chart = el('div', { id: which + '-chart' });
    section(which, title, 'Cumulative share of requests by latency (further left is better).', which === 'ttft' ? tools : null, policyKeys(), chart);
    cdfs[which] = lineChart(chart, () => distribution(title, log, start.probabilities, shown().filter(r => r[which])
      .map(r => ({ name: r.policy, color: color(r.i), dash: dash(r.i), values: r[which] })), 300));
  }

  // attainment over the rate
  const metrics = {
    attained: ['Requests within the SLO (%)', percent], p99_ttft: ['P99 TTFT (ms)', fmt], mean_e2e: ['Mean E2E latency (ms)', fmt],
  };
  let metric = 'attained';
  const rate = el('div', { id: 'rate-chart' }), words = el('ul', { class: 'note', id: 'breaks' }), breakTable = el('table', { id: 'breaks-table' });
  const breakBox = fitted('Rate up to which the SLO holds', breakTable), objective = el('p', { class: 'hint' });
  section('rate', 'Attainment over the rate', 'The same workload at other rates; one run per point. ✕ overloaded, ◇ transient. Dashed: the share that the SLO asks for. Dotted: the rate up to which each policy holds the SLO, with its 95 % interval.',
    el('div', { class: 'tools' }, select('Show', Object.entries(metrics).map(([k, m]) => [k, m[0]]), v => { metric = v; drawRate(); }, metric)),
    objective, policyKeys(), rate, words, breakBox);
  const drawRate = lineChart(rate, () => ({
    label: (metric === 'attained' ? `Requests within the SLO (${view.slo})` : metrics[metric][0]) + ' over the request rate', height: 300, snap: true,
    x: { label: 'request rate (requests/s)', log: true },
    y: { label: metrics[metric][0], text: metrics[metric][1], log: metric !== 'attained', min: metric === 'attained' ? 0 : null, max: metric === 'attained' ? 1 : null },
    rules: metric === 'attained' && view.target ? [{ y: view.target, text: `SLO: ${percent(view.target)}` }] : [],
    marks: (view.breaks || []).filter(b => b.holds && b.fails && !hidden.has(b.policy)).map(b => ({
      x: b.mean ? b.mean.mean : Math.sqrt(b.holds * b.fails), low: b.mean?.ci95_low, high: b.mean?.ci95_high, color: color(names().indexOf(b.policy)),
    })),
    lines: shown().map(r => ({
      name: r.policy, color: color(r.i), dash: dash(r.i),
      points: view.points.filter(p => p.policy === r.policy && (metric === 'attained' || p[metric] > 0)).sort((a, b) => a.rate - b.rate)
        .map(p => [p.rate, p[metric], null, null, p.state === 'steady' ? '' : `(${p.state || 'unknown state'})`, false, p.state]),
    })),
  }));
  const range = i => i ? `${fmt(i.mean)} (${fmt(i.ci95_low)} to ${fmt(i.ci95_high)})` : '–';
  function drawBreaks() {
    const breaks = view.breaks || [], notes = [...new Set(breaks.map(b => b.note).filter(Boolean))];
    objective.textContent = view.slo ? `SLO: ${view.slo} for ${percent(view.target)} of the requests.` : '';
    words.replaceChildren(...[view.note, ...breaks.filter(b => !b.mean).map(b => `${b.policy}: ${b.words}.`), ...notes.map(n => `Rate up to which the SLO holds: ${n}.`)]
      .filter(Boolean).map(text => el('li', {}, text)));
    breakBox.hidden = !breaks.some(b => b.mean);
    fillTable(breakTable, [{ text: 'Policy', class: 'text' }, 'SLO holds up to, mean over the seeds (requests/s, 95 % interval)', `Difference to ${names()[0]} (requests/s, 95 % interval)`],
      breaks.map((b, i) => [b.policy, range(b.mean), i ? range(b.versus) : 'baseline']));
  }

  // what requests wait for
  const bars = el('div', { id: 'waits-chart' });
  const parts = start.parts.map((name, i) => ({ name, color: i === start.parts.length - 1 ? 'var(--line)' : color(i) }));
  section('waits', 'What requests wait for', 'Parts of the mean time to the first token.', colorKey(parts.map(p => [p.name, p.color])), bars);
  const drawBars = barChart(bars, () => ({
    label: 'What requests wait for until their first token', x: { label: 'mean time per request (ms)' }, parts,
    bars: shown().map(r => ({ name: r.policy, values: r.parts, text: `${fmt(r.parts.reduce((a, v) => a + v, 0))} ms` })),
  }));

  // comparison
  const usual = ['completed', 'failed', 'rejected', 'unfinished', 'request_throughput', 'output_throughput', 'mean_e2e_latency_ms', 'p99_e2e_latency_ms', 'mean_ttft_ms', 'p99_ttft_ms', 'mean_tpot_ms', 'goodput.share', 'goodput.worst_adapter.share', 'cold_loads', 'migrated_requests'];
  let everything = false;
  const table = el('table', { id: 'compare-table' }), about = el('p', { class: 'hint', id: 'verdict' }), notes = el('ul', { class: 'note' });
  section('compare', 'Comparison', '', about, el('div', { class: 'tools' }, checkbox('All metrics', v => { everything = v; drawCompared(); }, everything)), fitted('Metrics of the policies', table), notes).classList.add('wide');
  function drawCompared() {
    const c = view.compared;
    if (!c) return;
    const t = c.table, base = t.baseline, runs = t.runs.map(r => r.name);
    about.textContent = [
      t.verdict ? t.verdict.text + '.' : '',
      c.seeds > 1 ? `Means of ${c.seeds} seeds with 95 % intervals; below them the differences to ${base}, paired by seed.` : c.of > 1 ? `One seed; ${c.of} are running …` : 'One seed: no statement about chance.',
      '↓ less is better, ↑ more is better; ★ best.',
    ].filter(Boolean).join(' ');

    const around = (mean, low, high, by) => low == null || high == null || high - low === 0 ? fmt(by * mean) : plusMinus(by * mean, by * (high - low) / 2);
    const cell = (x, r, by) => {
      const diff = r === base || x.diff_mean == null ? null : el('small', {}, (x.diff_mean > 0 ? '+' : '') + around(x.diff_mean, x.diff_ci95_low, x.diff_ci95_high, by));
      const mean = x.mean == null ? '–' : around(x.mean, x.ci95_low, x.ci95_high, by) + (x.best ? ' ★' : '') + (x.not_comparable ? ' ≠' : '');
      return { text: [el('span', {}, mean), diff], class: x.best ? 'best' : null };
    };
    const body = t.metrics.filter(m => everything || usual.includes(m.metric)).map(m => {
      const by = /share$/.test(m.metric) ? 100 : 1, title = m.title + (by === 100 ? ' (%)' : '') + ({ less: ' ↓', more: ' ↑' }[m.better] || '');
      return [title, ...runs.map(r => cell(m.runs[r], r, by))];
    });
    fillTable(table, [{ text: 'Metric', class: 'text' }, ...runs.map(r => ({ text: [r, r === base ? null : el('small', {}, ` − ${base}`)], label: r }))], body);
    notes.replaceChildren(...(t.notes || []).map(n => el('li', {}, n)));
  }

  const charts = { 'ttft-chart': 'TTFT', 'e2e-chart': 'E2E latency', 'rate-chart': 'Attainment over the rate', 'waits-chart': 'What requests wait for' };
  return {
    charts,
    runs() { drawKeys(); drawCards(); cdfs.ttft(); cdfs.e2e(); drawBars(); drawRate(); drawBreaks(); },
    rate() { drawRate(); drawBreaks(); },
    cards: drawCards,
    compared: drawCompared,
  };
}
