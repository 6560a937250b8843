// Latencies of each worker as measured, beside those that the twin predicts for the same requests.
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
  const compared = el('p', { class: 'hint', id: 'compared' }), empty = el('p', { class: 'empty' }, 'No request has ended yet.');
  const head = ['Worker', 'Requests', 'P50 measured', 'P50 predicted', 'P90 measured', 'P90 predicted', 'P99 measured', 'P99 predicted', 'Decode time'];
  const table = el('table', { id: 'latency-table' }, el('thead', {}, el('tr', {}, ...head.map(h => el('th', { scope: 'col' }, h)))), body);
  const box = el('div', { hidden: true },
    el('div', { class: 'tools' }, select('Latency', metrics, v => { metric = v; draw(); fill(); }, metric)),
    el('p', { class: 'hint' }, 'Circles: median; lines: up to the 90th percentile. Filled: measured. Hollow: predicted by a simulation of the same requests on the same worker.'),
    chart, fitted('Latencies by worker', table), note, compared);
  section.append(el('h2', {}, 'Latency: measured and predicted'), empty, box);

  function spec() {
    const list = state.latencies, points = of => list.map((l, i) => {
      const p = l[metric]?.[of];
      return p ? [i, p.p50_s, p.p50_s, p.p90_s, '', of === 'predicted'] : [i, null];
    });
    const line = (name, of, color) => ({ name: `${name} P50 (to P90)`, color, dots: true, points: points(of) });
    return {
      label: `${metrics.find(m => m[0] === metric)[1]} of each worker, measured and predicted`, snap: true, table: false, height: 240,
      x: { label: 'Worker', cats: list.map(l => `${l.worker}`), min: -0.5, max: list.length - 0.5 },
      y: { label: metrics.find(m => m[0] === metric)[1], text: span, zero: true },
      lines: [line('Measured', 'measured', 'var(--c0)'), line('Predicted', 'predicted', 'var(--c1)')].filter(l => l.points.some(p => p[1] != null)),
    };
  }

  function fill() {
    body.replaceChildren(...state.latencies.map(l => {
      const m = l[metric]?.measured || {}, p = l[metric]?.predicted || {};
      const cells = [l.requests.toLocaleString('en'), span(m.p50_s), span(p.p50_s), span(m.p90_s), span(p.p90_s), span(m.p99_s), span(p.p99_s), l.ratio ? `${l.ratio.toFixed(2)} × predicted` : '–'];
      return el('tr', {}, el('th', { scope: 'row', 'data-label': head[0] }, `${l.worker}`), ...cells.map((c, i) => el('td', { 'data-label': head[i + 1] }, c)));
    }));
    table.dispatchEvent(new Event('filled'));
    const oldest = Math.max(0, ...state.latencies.map(l => l.since_s));
    const corrected = state.latencies.filter(l => l.slower).map(l => `${l.slower.toFixed(2)} × on worker ${l.worker}`);
    note.textContent = `The latest requests of the fleet that have ended, 2,048 at most and without the first quarter, back to ${span(oldest)} ago. ` +
      'Decode time: from the first to the last token, measured divided by predicted (median).' +
      (corrected.length ? ` The prediction uses the corrected step times of the policy auto: ${corrected.join(', ')}.` : ' The prediction uses the step times of --profile.') +
      (state.fault ? ` ${state.fault}.` : '');
    const c = state.compared;
    compared.hidden = !c;
    if (c) compared.textContent = `Latest prediction of the policy auto for all workers, mean of ${c.requests.toLocaleString('en')} requests: TTFT ${span(c.predicted_ttft_s)} predicted, ${span(c.ttft_s)} measured; E2E latency ${span(c.predicted_e2e_s)} predicted, ${span(c.e2e_s)} measured.`;
  }

  return {
    show(next) {
      section.hidden = false;
      const text = JSON.stringify([next.latencies, next.compared, next.fault]);
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
