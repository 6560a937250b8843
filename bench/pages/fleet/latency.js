// Latencies of each worker.
import { el, section, select } from './dom.js';
import { time } from './numbers.js';
import { color } from './theme.js';
import { fitted, fillTable } from './table.js';
import { lineChart } from './chart.js';

const metrics = { ttft: 'TTFT', tpot: 'TPOT', e2e: 'E2E latency' };
const span = s => time(s, 3);

export function latency() {
  let state = null, shown = '', metric = 'ttft', draw = null;
  const chart = el('div', { id: 'latency-chart' }), note = el('p', { class: 'hint', id: 'latency-note' });
  const empty = el('p', { class: 'empty' }, 'No request has ended yet.'), table = el('table', { id: 'latency-table' });
  const box = el('div', { hidden: true },
    el('div', { class: 'tools' }, select('Latency', Object.entries(metrics), v => { metric = v; draw(); fill(); }, metric)),
    el('p', { class: 'hint' }, 'Circles: median; lines: up to the 90th percentile.'),
    chart, fitted('Latencies by worker', table), note);
  const host = section('latency', 'Latency', '', empty, box);
  host.hidden = true;

  function spec() {
    const list = state.latencies, points = list.map((l, i) => {
      const p = l[metric];
      return p ? [i, p.p50_s, p.p50_s, p.p90_s, ''] : [i, null];
    });
    return {
      label: `${metrics[metric]} of each worker`, snap: true, table: false, height: 240,
      x: { label: 'Worker', cats: list.map(l => `${l.worker}`), min: -0.5, max: list.length - 0.5 },
      y: { label: metrics[metric], text: span, zero: true, pad: 0.04 },
      lines: [{ name: 'P50 (to P90)', color: color(0), dots: true, points }],
    };
  }

  function fill() {
    fillTable(table, ['Worker', 'Requests', 'P50', 'P90', 'P99'], state.latencies.map(l => {
      const p = l[metric] || {};
      return [`${l.worker}`, l.requests.toLocaleString('en'), span(p.p50_s), span(p.p90_s), span(p.p99_s)];
    }));
    const oldest = Math.max(0, ...state.latencies.map(l => l.since_s));
    note.textContent = `The latest requests of the fleet that have ended, 2,048 at most, back to ${span(oldest)} ago.`;
  }

  return {
    show(next) {
      host.hidden = false;
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
