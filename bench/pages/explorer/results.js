// What the runs show: states, distributions, attainment over the rate, waits, and the comparison.
import { el, fmt, color, dash, hidden, redraws, redraw, legend, fitted, select, checkbox } from './dom.js';
import { lineChart, barChart } from './chart.js';

// results fills the element with sections that show view, and returns functions that draw them again. view is
// {runs, compared, points, breaks, states, note, slo}; it is changed from outside.
function results(host, start, view) {
  const names = () => view.runs.map(r => r.policy);
  const shown = () => view.runs.map((r, i) => ({ ...r, i })).filter(r => !hidden.has(r.policy));
  const legends = [];

  function section(id, title, hint, ...children) {
    const s = el('section', { id, 'aria-labelledby': id + '-title' }, el('h2', { id: id + '-title' }, title),
      hint ? el('p', { class: 'hint' }, hint) : null, ...children);
    host.append(s);
    return s;
  }
  // names of policies that show and hide them, made anew when the policies change
  function key() {
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
      const mark = el('i', { class: 'swatch' });
      mark.style.background = color(i);
      const figure = (name, value) => el('div', {}, el('dt', {}, name), el('dd', {}, value));
      const median = q => q ? fmt(q[Math.round((q.length - 1) / 2)]) + ' ms' : 'none';
      const p99 = q => q ? fmt(q[Math.round((q.length - 1) * 0.99)]) + ' ms' : 'none';
      return el('article', { class: 'card' }, el('h3', {}, mark, r.policy),
        el('p', { class: 'state ' + st.state }, el('b', {}, st.state || 'unknown')),
        ...st.words.map(w => el('p', { class: 'hint' }, w.replace(/^(steady|transient|overloaded): /, ''))),
        el('dl', {},
          r.attained == null ? '' : figure('Requests within the SLO', fmt(100 * r.attained) + ' %'),
          figure('TTFT, median / P99', `${median(r.ttft)} / ${p99(r.ttft)}`),
          figure('E2E latency, median / P99', `${median(r.e2e)} / ${p99(r.e2e)}`),
          b?.mean ? figure(`SLO holds up to, mean of ${b.mean.seeds} seeds`, `${fmt(b.mean.mean)} ± ${fmt((b.mean.ci95_high - b.mean.ci95_low) / 2)} requests/s`) : '',
          r.cost ? figure('Cost, unit of the price', `${fmt(r.cost.hour)} per hour` + (r.cost.million == null ? '' : `, ${fmt(r.cost.million)} per million output tokens`)) : ''),
        b ? el('p', { class: 'hint' }, b.words) : '',
        ...(r.notes || []).map(n => el('p', { class: 'fault' }, n)));
    }));
  }

  // distributions
  let log = true;
  const tools = el('div', { class: 'tools' }, checkbox('Log scale (x)', v => { log = v; redraw(); }, log));
  const cdfs = {};
  for (const [which, title] of [['ttft', 'Time to first token (TTFT)'], ['e2e', 'End-to-end latency (E2E)']]) {
    const chart = el('div', { id: which + '-chart' });
    section(which, title, 'Cumulative share of requests by latency (further left is better).', which === 'ttft' ? tools : null, key(), chart);
    cdfs[which] = lineChart(chart, () => ({
      label: title + ': share of requests by latency', height: 300,
      x: { label: title.replace(/ \(.*/, '') + ' (ms)', log },
      y: { label: 'share of requests (%)', min: 0, max: 1, text: v => fmt(100 * v) + ' %' },
      lines: shown().filter(r => r[which]).map(r => ({
        name: r.policy, color: color(r.i), dash: dash(r.i), below: 0, above: 1,
        points: r[which].map((q, k) => [q, start.probabilities[k]]).filter(p => !log || p[0] > 0),
      })),
    }));
  }

  // attainment over the rate
  const metrics = {
    attained: ['Requests within the SLO (%)', v => fmt(100 * v) + ' %'], p99_ttft: ['P99 TTFT (ms)', fmt], mean_e2e: ['Mean E2E latency (ms)', fmt],
  };
  let metric = 'attained';
  const rate = el('div', { id: 'rate-chart' }), words = el('ul', { class: 'note', id: 'breaks' }), breakTable = el('table', { id: 'breaks-table' });
  section('rate', 'Attainment over the rate', 'The same workload at other rates; one run per point. ✕ overloaded, ◇ transient. Dashed: the share that the SLO asks for, and the break of each policy with its 95 % interval.',
    el('div', { class: 'tools' }, select('Show', Object.entries(metrics).map(([k, m]) => [k, m[0]]), v => { metric = v; drawRate(); }, metric)),
    key(), rate, words, fitted('Rate at which the attainment breaks', breakTable));
  const drawRate = lineChart(rate, () => ({
    label: metrics[metric][0] + ' over the request rate', height: 300, snap: true,
    x: { label: 'request rate (requests/s)', log: true },
    y: { label: metrics[metric][0], text: metrics[metric][1], log: metric !== 'attained', min: metric === 'attained' ? 0 : null, max: metric === 'attained' ? 1 : null },
    rules: metric === 'attained' && view.target ? [{ y: view.target, text: `SLO: ${fmt(100 * view.target)} %` }] : [],
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
    words.replaceChildren(...(view.note ? [el('li', {}, view.note)] : []),
      ...breaks.map(b => el('li', {}, `${b.policy}: ${b.words}.`)), ...notes.map(n => el('li', {}, `The break: ${n}.`)));
    const head = ['Policy', 'Break, mean over the seeds (requests/s, 95 % interval)', `Difference to ${names()[0]} (requests/s, 95 % interval)`];
    breakTable.replaceChildren(...(breaks.some(b => b.mean) ? [
      el('thead', {}, el('tr', {}, ...head.map((h, i) => el('th', { scope: 'col', class: i ? null : 'text' }, h)))),
      el('tbody', {}, ...breaks.map((b, i) => el('tr', {}, el('th', { scope: 'row' }, b.policy),
        el('td', { 'data-label': head[1] }, range(b.mean)), el('td', { 'data-label': head[2] }, i ? range(b.versus) : 'baseline'))))] : []));
    breakTable.dispatchEvent(new Event('filled'));
  }

  // what requests wait for
  const bars = el('div', { id: 'waits-chart' });
  const parts = start.parts.map((name, i) => ({ name, color: i === start.parts.length - 1 ? 'var(--line)' : color(i) }));
  const partKey = el('div', { class: 'key' });
  section('waits', 'What requests wait for', 'Parts of the mean time to the first token.', partKey, bars);
  partKey.append(...parts.map(p => {
    const sw = el('i');
    sw.style.background = p.color;
    return el('span', {}, sw, p.name);
  }));
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

    const half = (low, high, by) => low == null || high == null || high - low === 0 ? '' : ` ± ${fmt(by * (high - low) / 2)}`;
    const head = el('tr', {}, el('th', { class: 'text', scope: 'col' }, 'Metric'), ...runs.map(r => el('th', { scope: 'col' }, r, r === base ? '' : el('small', {}, ` − ${base}`))));
    const body = t.metrics.filter(m => everything || usual.includes(m.metric)).map(m => [m, /share$/.test(m.metric) ? 100 : 1]).map(([m, by]) => el('tr', {}, el('th', { scope: 'row' }, m.title + (by === 100 ? ' (%)' : '') + ({ less: ' ↓', more: ' ↑' }[m.better] || '')),
      ...runs.map(r => {
        const x = m.runs[r];
        const diff = r === base || x.diff_mean == null ? '' : el('small', {}, (x.diff_mean > 0 ? '+' : '') + fmt(by * x.diff_mean) + half(x.diff_ci95_low, x.diff_ci95_high, by));
        return el('td', { class: x.best ? 'best' : null, 'data-label': r },
          el('span', {}, x.mean == null ? '–' : fmt(by * x.mean) + half(x.ci95_low, x.ci95_high, by) + (x.best ? ' ★' : '') + (x.not_comparable ? ' ≠' : '')), diff);
      })));
    table.replaceChildren(el('thead', {}, head), el('tbody', {}, ...body));
    notes.replaceChildren(...(t.notes || []).map(n => el('li', {}, n)));
    table.dispatchEvent(new Event('filled'));
  }

  const charts = { 'ttft-chart': 'TTFT', 'e2e-chart': 'E2E latency', 'rate-chart': 'Attainment over the rate', 'waits-chart': 'What requests wait for' };
  return {
    section, charts,
    runs() { drawKeys(); drawCards(); cdfs.ttft(); cdfs.e2e(); drawBars(); drawRate(); drawBreaks(); },
    rate() { drawRate(); drawBreaks(); },
    cards: drawCards,
    compared: drawCompared,
  };
}

export { results };
