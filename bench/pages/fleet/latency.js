// Latencies of each worker.
import { el, fmt, select, fitted } from './dom.js';
import { lineChart } from './chart.js';

const metrics = [['ttft', 'TTFT'], ['tpot', 'TPOT'], ['e2e', 'E2E latency']];

// span writes a time with its unit.
function span(s) {
  if (s == null || Number.isNaN(s)) return '–';
  if (s !== 0 && Math.abs(s) < 1) return `${fmt(Number((1000 * s).toPrecision(3)))} ms`;
  return s < 7200 ? `${fmt(Number(s.toPrecision(3)))} s` : `${fmt(Number((s / 3600).toPrecision(3)))} h`;
}

export function latency() {
  const section = document.getElementById('latency');
  let state = null, shown = '', metric = 'ttft', draw = null;
  const chart = el('div', { id: 'latency-chart' }), body = el('tbody'), note = el('p', { class: 'hint', id: 'latency-note' });
  const empty = el('p', { class: 'empty' }, 'No request has ended yet.');
  const head = ['Worker', 'Requests', 'P50', 'P90', 'P99'];
  const table = el('table', { id: 'latency-table' }, el('thead', {}, el('tr', {}, ...head.map(h => el('th', { scope: 'col' }, h)))), body);
  const box = el('div', { hidden: true },
    el('div', { class: 'tools' }, select('Latency', metrics, v => { metric = v; draw(); fill(); }, metric)),
    el('p', { class: 'hint' }, 'Circles: median; lines: up to the 90th percentile.'),
    chart, fitted('Latencies by worker', table), note);
  section.append(el('h2', {}, 'Latency'), empty, box);

  function spec() {
    const list = state.latencies, name = metrics.find(m => m[0] === metric)[1];
    const points = list.map((l, i) => {
      const p = l[metric];
      return p ? [i, p.p50_s, p.p50_s, p.p90_s, ''] : [i, null];
    });
    return {
      label: `${name} of each worker`, snap: true, table: false, height: 240,
      x: { label: 'Worker', cats: list.map(l => `${l.worker}`), min: -0.5, max: list.length - 0.5 },
      y: { label: name, text: span, zero: true },
      lines: [{ name: 'P50 (to P90)', color: 'var(--c0)', dots: true, points }],
    };
  }

  function fill() {
    body.replaceChildren(...state.latencies.map(l => {
      const p = l[metric] || {}, cells = [l.requests.toLocaleString('en'), span(p.p50_s), span(p.p90_s), span(p.p99_s)];
      return el('tr', {}, el('th', { scope: 'row', 'data-label': head[0] }, `${l.worker}`), ...cells.map((c, i) => el('td', { 'data-label': head[i + 1] }, c)));
    }));
    table.dispatchEvent(new Event('filled'));
    const oldest = Math.max(0, ...state.latencies.map(l => l.since_s));
    note.textContent = `The latest requests of the fleet that have ended, 2,048 at most, back to ${span(oldest)} ago.`;
  }

  return {
    show(next) {
      section.hidden = false;
      const text = JSON.stringify(next.latencies);
      if (text === shown) return;
      [state, shown] = [next, text];
      const any = (next.latencies || []).some(l => l.requests > 0);
      box.hidden = !any;
      empty.hidden = any;
      if (!any) return;
      if (draw) draw(); else draw = lineChart(chart, spec);
      fill();
    },
  };
}
