// Which adapter lies on which worker over time.
import { el, section, select, colorKey } from './dom.js';
import { fmt, time } from './numbers.js';
import { workerColor, cssColor } from './theme.js';
import { ticks } from './scale.js';
import { figure } from './figure.js';
import { D, first, where } from './data.js';

export function placement() {
  const runs = D.runs.filter(r => r.placement);
  if (!runs.length) return;
  // begin with a picture that tells something: a run that plans, if one of those does
  const telling = runs.filter(r => r.placement.show);
  let run = first(telling.length ? telling : runs);
  let tier = runs.find(r => r.name === run).placement.show || 'host', rows = '32', worker = 'all';
  const host = el('div', { id: 'placement-chart' }), canvas = el('canvas'), keys = el('div');
  const note = el('p', { class: 'hint', id: 'placement-note' });
  const workersOf = () => runs.find(r => r.name === run).placement.workers;
  const workerBox = el('span');
  section('placement', 'Where adapters lie', 'One row per adapter, adapters with most requests on top. The colour is the worker that holds the weights; stripes are several workers. Triangle: a plan loaded adapters. Dot: a plan moved requests. Dark edges in the view of GPU slots: loads.' + where,
    el('div', { class: 'tools' },
      select('Run', runs.map(r => [r.name, r.name]), v => { run = v; fillWorkers(); draw(); }, run),
      select('In', [['host', 'host memory'], ['gpu', 'GPU slots']], v => { tier = v; draw(); }, tier),
      select('Adapters', [['16', 'the 16 most used'], ['32', 'the 32 most used'], ['64', 'the 64 most used'], ['256', 'all (up to 256)']], v => { rows = v; draw(); }, rows),
      workerBox),
    note, keys, host);

  function fillWorkers() {
    const n = workersOf();
    if (worker !== 'all' && +worker >= n) worker = 'all';
    workerBox.replaceChildren(select('Worker', [['all', 'all']].concat([...Array(n).keys()].map(i => [String(i), 'worker ' + i])), v => { worker = v; draw(); }, worker));
  }

  let geo = null;
  function paint(width) {
    const r = runs.find(x => x.name === run), p = r.placement, list = p.rows.slice(0, +rows);
    const left = width < 480 ? 58 : 84, top = 22, bottom = 24;
    const rh = Math.max(7, Math.min(18, Math.floor(620 / list.length)));
    const height = top + rh * list.length + bottom, plot = width - left - 8;
    const scale = window.devicePixelRatio || 1;
    canvas.width = width * scale;
    canvas.height = height * scale;
    canvas.style.height = height + 'px';
    const c = canvas.getContext('2d');
    c.scale(scale, scale);
    const soft = cssColor('--soft'), grid = cssColor('--grid'), text = cssColor('--text');
    const colors = [...Array(p.workers).keys()].map(workerColor);
    c.font = '11px system-ui, sans-serif';
    c.textBaseline = 'middle';
    list.forEach((row, i) => {
      const y = top + i * rh;
      c.fillStyle = soft;
      c.textAlign = 'right';
      if (rh >= 11 || i % 2 === 0) c.fillText(fit(c, row.name, left - 8), left - 6, y + rh / 2);
      c.fillStyle = grid;
      c.fillRect(left, y + rh - 1, plot, 0.5);
      drawRow(c, row[tier], p, { x: left, y: y + 1, w: plot, h: rh - 2 }, colors, text);
    });
    drawMarks(c, p, r.series, left, plot, top, text);
    c.fillStyle = soft;
    c.textBaseline = 'top';
    const end = r.series.end;
    for (const t of ticks(0, end, Math.max(2, Math.floor(plot / 80)))) {
      const x = left + t / end * plot;
      c.fillRect(x, height - bottom, 1, 4);
      c.textAlign = x > width - 24 ? 'right' : 'center';
      c.fillText(time(t), x, height - bottom + 7);
    }
    note.textContent = tier === 'host' && p.show !== 'host' ? 'Host memory holds every adapter on every worker during the whole run.' : '';
    geo = { p, list, left, plot, top, rh, end };
    keys.replaceChildren(colorKey(colors.slice(0, 32).map((c, i) => ['worker ' + i, c])), p.others ? el('p', { class: 'hint' }, `${p.others} little used adapters are left out`) : '');
    return {
      element: canvas, points: list.reduce((n, row) => n + row[tier].length / 3, 0),
      label: `Placement of ${list.length} adapters on ${p.workers} workers over ${fmt(end)} s under ${run}. Arrow keys move the cursor.`,
    };
  }

  // drawRow fills the row of one adapter; where several workers hold it they
  // share its height.
  function drawRow(c, flat, p, box, colors, edge) {
    const stays = [];
    for (let i = 0; i < flat.length; i += 3) if (worker === 'all' || flat[i] === +worker) stays.push([flat[i], flat[i + 1], flat[i + 2]]);
    const cuts = [...new Set(stays.flatMap(s => [s[1], s[2]]))].sort((a, b) => a - b);
    const by = stays.slice().sort((a, b) => a[1] - b[1]);
    let next = 0, active = [];
    for (let k = 0; k + 1 < cuts.length; k++) {
      const a = cuts[k], b = cuts[k + 1];
      active = active.filter(s => s[2] > a);
      while (next < by.length && by[next][1] <= a) active.push(by[next++]);
      if (!active.length) continue;
      const ws = active.map(s => s[0]).sort((x, y) => x - y);
      const x = box.x + a / p.columns * box.w, w = Math.max((b - a) / p.columns * box.w, 0.6);
      ws.forEach((id, j) => {
        c.fillStyle = colors[id];
        c.fillRect(x, box.y + j * box.h / ws.length, w + 0.3, box.h / ws.length);
      });
    }
    if (tier !== 'gpu' || stays.length > 120) return;
    c.fillStyle = edge;
    for (const st of stays) if (st[1] > 0) c.fillRect(box.x + st[1] / p.columns * box.w, box.y, 0.8, box.h);
  }

  function drawMarks(c, p, series, left, plot, top, text) {
    c.fillStyle = text;
    for (const m of p.marks) {
      const x = left + m.at / series.end * plot;
      c.globalAlpha = p.marks.length > 200 ? 0.35 : 0.8;
      if (m.loads) {
        c.beginPath();
        c.moveTo(x - 4, top - 12);
        c.lineTo(x + 4, top - 12);
        c.lineTo(x, top - 5);
        c.fill();
      }
      if (m.moves) {
        c.beginPath();
        c.arc(x, top - 17, 2.2, 0, 7);
        c.fill();
      }
    }
    c.globalAlpha = 1;
  }

  function show([i, column]) {
    const { p, list, left, plot, top, rh, end } = geo;
    i = Math.min(Math.max(i, 0), list.length - 1);
    column = Math.min(Math.max(column, 0), p.columns - 1);
    const row = list[i], on = [];
    for (let k = 0; k < row[tier].length; k += 3) if (row[tier][k + 1] <= column && column < row[tier][k + 2]) on.push(row[tier][k]);
    const nowhere = 'nowhere in ' + (tier === 'gpu' ? 'a GPU slot' : 'host memory');
    const workers = on.length === p.workers && on.length > 1 ? 'on all workers' : (on.length > 1 ? 'on workers ' : 'on worker ') + on.sort((a, b) => a - b).join(', ');
    return {
      place: [i, column], x: left + column / p.columns * plot, y: top + i * rh - 14,
      content: [el('b', {}, `${row.name} at ${time(column / p.columns * end)}`), on.length ? workers : nowhere],
    };
  }

  fillWorkers();
  const draw = figure(host, {
    draw: paint, show,
    point: e => {
      const box = host.getBoundingClientRect(), i = Math.floor((e.clientY - box.top - geo.top) / geo.rh);
      if (i < 0 || i >= geo.list.length || e.clientX - box.left < geo.left) return null;
      return [i, Math.floor((e.clientX - box.left - geo.left) / geo.plot * geo.p.columns)];
    },
    step: (key, place) => {
      const d = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -20], ArrowRight: [0, 20] }[key];
      return d ? place ? [place[0] + d[0], place[1] + d[1]] : [0, 0] : null;
    },
  });
}

// fit shortens text to a width.
function fit(c, text, width) {
  if (c.measureText(text).width <= width) return text;
  while (text.length > 1 && c.measureText(text + '…').width > width) text = text.slice(0, -1);
  return text + '…';
}
