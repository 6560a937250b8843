import { el, svg, fmt, cssValue, redraws, fitted } from './dom.js';
// Line charts: axes, lines with bands, marks, and a cursor for mouse, touch and
// keyboard. Stacked bars. Each chart can be shown as a table, and kept as SVG or PNG.

// ticks returns round numbers from lo to hi.
function ticks(lo, hi, n) {
  if (!(hi > lo)) return [lo];
  const raw = (hi - lo) / n, mag = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find(m => m * mag >= raw) * mag;
  const out = [];
  for (let v = Math.ceil(lo / step) * step; v <= hi + step * 1e-9; v += step) out.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return out;
}

// logTicks returns powers of ten, and 2 and 5 times them where there is room.
function logTicks(lo, hi, n) {
  const out = [];
  const from = Math.floor(Math.log10(lo)), to = Math.ceil(Math.log10(hi));
  const muls = (to - from) * 3 <= n * 1.5 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil((to - from) / n));
  for (let p = from; p <= to; p++) {
    if ((p - from) % every) continue;
    for (const m of muls) {
      const v = m * 10 ** p;
      if (v >= lo * (1 - 1e-9) && v <= hi * (1 + 1e-9)) out.push(v);
    }
  }
  return out.length > 1 ? out : [lo, hi];
}

// scale maps values to pixels.
function scale(axis, a, b) {
  const f = axis.log ? Math.log10 : x => x;
  const lo = f(axis.lo), span = f(axis.hi) - lo || 1;
  const s = v => a + (f(v) - lo) / span * (b - a);
  s.inverse = px => {
    const t = lo + (px - a) / (b - a) * span;
    return axis.log ? 10 ** t : t;
  };
  return s;
}

// range sets lo and hi of an axis from its values.
function range(axis, values) {
  let lo = Infinity, hi = -Infinity;
  for (const v of values) {
    if (v == null || Number.isNaN(v) || (axis.log && v <= 0)) continue;
    lo = Math.min(lo, v);
    hi = Math.max(hi, v);
  }
  if (lo > hi) { lo = axis.log ? 1 : 0; hi = axis.log ? 10 : 1; }
  if (axis.min != null) lo = axis.min;
  if (axis.max != null) hi = axis.max;
  if (axis.zero && !axis.log) lo = Math.min(0, lo);
  if (hi === lo) hi = axis.log ? lo * 2 : lo + (Math.abs(lo) || 1);
  if (axis.pad && !axis.log) { const p = (hi - lo) * axis.pad; if (lo !== 0) lo -= p; hi += p; }
  return Object.assign(axis, { lo, hi });
}

// lineChart draws into host what spec() returns, each time it is called:
// {label, x: {label, log, cats, min, max, text}, y: {..., tip: text at the cursor}, lines: [{name, color, dash,
// points: [[x, y, low, high, text, hollow, state]], dots, step}], marks: [{x, low, high, text, color}],
// rules: [{y, text}], height, table: false for none}
function lineChart(host, spec) {
  host.classList.add('chart');
  host.tabIndex = 0;
  host.setAttribute('role', 'img');
  const live = el('span', { class: 'sr', 'aria-live': 'polite' });
  const tip = el('div', { class: 'tip', hidden: true });
  const table = tableBelow(host, lineTable);
  let state = null, cursor = null, width = 0;

  function draw() {
    const s = spec();
    width = host.clientWidth || 600;
    const height = s.height || 300, small = width < 420;
    const pad = { l: s.y.label ? 72 : 48, r: 14, t: 10, b: s.x.label ? 44 : 26 };
    range(s.x, s.lines.flatMap(l => l.points.map(p => p[0])));
    range(s.y, s.lines.flatMap(l => l.points.flatMap(p => [p[1], p[2], p[3]])));
    const X = scale(s.x, pad.l, width - pad.r), Y = scale(s.y, height - pad.b, pad.t);
    const g = svg('svg', { viewBox: `0 0 ${width} ${height}`, height, 'aria-hidden': 'true' });
    drawAxes(g, s, X, Y, { width, height, pad, small });
    for (const m of s.marks || []) {
      const x = X(m.x), inside = v => Math.min(Math.max(X(v), pad.l), width - pad.r);
      if (m.high > m.low) g.append(svg('rect', { class: 'band', x: inside(m.low), y: pad.t, width: Math.max(inside(m.high) - inside(m.low), 1), height: height - pad.b - pad.t, fill: m.color || 'var(--soft)', opacity: 0.14 }));
      g.append(svg('path', { d: `M${x} ${height - pad.b}V${pad.t}`, stroke: m.color || 'var(--soft)', 'stroke-width': m.color ? 1.5 : 1, 'stroke-dasharray': '2 3', opacity: m.color ? 1 : 0.6 }));
    }
    for (const r of s.rules || []) {
      g.append(svg('path', { d: `M${pad.l} ${Y(r.y)}H${width - pad.r}`, stroke: 'var(--text)', 'stroke-width': 1, 'stroke-dasharray': '5 4', opacity: 0.6 }),
        svg('text', { x: width - pad.r, y: Y(r.y) + (Y(r.y) < pad.t + 16 ? 14 : -5), 'text-anchor': 'end', class: 'label' }, r.text));
    }
    for (const l of s.lines) drawLine(g, l, X, Y);
    const rule = svg('path', { stroke: 'var(--text)', 'stroke-width': 1, opacity: 0.5, visibility: 'hidden' });
    g.append(rule);
    host.replaceChildren(g, tip, live);
    host.setAttribute('aria-label', s.label + '. ' + (s.lines.length ? s.lines.map(l => l.name).join(', ') : 'Nothing to show') + '. Arrow keys move the cursor.');
    host.dataset.points = s.lines.reduce((n, l) => n + l.points.length, 0);
    state = { s, X, Y, rule, pad, height };
    pictures.set(host, { svg: g, entries: s.lines.map(l => [l.name, l.color]), label: s.label });
    table(s);
    if (cursor != null) point(cursor, true);
  }

  // point shows the cursor at the value x.
  function point(x, quiet) {
    const { s, X, rule, pad, height } = state;
    x = Math.min(Math.max(x, s.x.lo), s.x.hi);
    if (s.snap && !snaps(s).length) return;
    const snapped = s.snap ? nearest(s, x) : x;
    cursor = snapped;
    const px = X(snapped);
    rule.setAttribute('d', `M${px} ${pad.t}V${height - pad.b}`);
    rule.setAttribute('visibility', 'visible');
    const rows = s.lines.map(l => [l, at(l, snapped, s.snap)]).filter(r => r[1]);
    tip.replaceChildren(el('b', {}, (s.x.text || fmt)(s.x.cats ? s.x.cats[snapped] : snapped)));
    for (const [l, p] of rows) {
      const sw = el('i');
      sw.style.background = l.color;
      const interval = p[2] != null && p[3] != null && p[3] > p[2] ? ` (${(s.y.text || fmt)(p[2])} to ${(s.y.text || fmt)(p[3])})` : '';
      tip.append(el('div', {}, sw, `${l.name}: ${(s.y.tip || s.y.text || fmt)(p[1])}${interval}${p[4] ? ' ' + p[4] : ''}`));
    }
    tip.hidden = false;
    const w = tip.offsetWidth;
    tip.style.left = Math.max(0, Math.min(px + 12 + w > width ? px - 12 - w : px + 12, width - w)) + 'px';
    tip.style.top = pad.t + 'px';
    if (!quiet) live.textContent = tip.innerText;
  }

  function hide() {
    cursor = null;
    tip.hidden = true;
    if (state) state.rule.setAttribute('visibility', 'hidden');
  }

  host.addEventListener('pointermove', e => {
    const box = host.getBoundingClientRect();
    point(state.X.inverse(e.clientX - box.left), true);
  });
  host.addEventListener('pointerleave', hide);
  host.addEventListener('blur', hide);
  host.addEventListener('keydown', e => {
    const { s } = state;
    const to = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[e.key];
    if (e.key === 'Escape') return hide();
    if (to == null) return;
    e.preventDefault();
    if (to === -Infinity) return point(s.x.lo);
    if (to === Infinity) return point(s.x.hi);
    if (cursor == null) return point(to > 0 ? s.x.lo : s.x.hi);
    if (s.snap) {
      const xs = snaps(s), i = xs.indexOf(cursor);
      return point(xs[Math.min(Math.max(i + to, 0), xs.length - 1)]);
    }
    const { X, pad } = state;
    return point(X.inverse(X(cursor) + to * (width - pad.l - pad.r) / 50));
  });
  redraws.add(draw);
  new ResizeObserver(() => { if (host.clientWidth !== width) draw(); }).observe(host);
  draw();
  return draw;
}

const snaps = s => [...new Set(s.lines.flatMap(l => l.points.map(p => p[0])))].sort((a, b) => a - b);
const nearest = (s, x) => snaps(s).reduce((a, b) => Math.abs(b - x) < Math.abs(a - x) ? b : a);

// at returns the point of a line at x: one of its own if exact, else between two.
function at(line, x, exact) {
  const ps = line.points;
  if (exact) return ps.find(p => p[0] === x && p[1] != null);
  if (!ps.length || x < ps[0][0]) return line.below != null ? [x, line.below] : null;
  let lo = 0, hi = ps.length - 1;
  if (x >= ps[hi][0]) return line.above != null ? [x, line.above] : ps[hi];
  while (hi - lo > 1) {
    const mid = (lo + hi) >> 1;
    if (ps[mid][0] <= x) lo = mid; else hi = mid;
  }
  const a = ps[lo], b = ps[hi];
  if (line.step || b[0] === a[0]) return a;
  return [x, a[1] + (b[1] - a[1]) * (x - a[0]) / (b[0] - a[0])];
}

function drawAxes(g, s, X, Y, { width, height, pad, small }) {
  const yt = s.y.log ? logTicks(s.y.lo, s.y.hi, 5) : ticks(s.y.lo, s.y.hi, height < 200 ? 3 : 5);
  for (const v of yt) {
    const y = Y(v);
    g.append(svg('path', { d: `M${pad.l} ${y}H${width - pad.r}`, stroke: 'var(--grid)' }));
    g.append(svg('text', { x: pad.l - 7, y: y + 4, 'text-anchor': 'end' }, (s.y.text || fmt)(v)));
  }
  const room = Math.max(2, Math.floor((width - pad.l - pad.r) / (small ? 62 : 76)));
  let xt = s.x.log ? logTicks(s.x.lo, s.x.hi, room) : ticks(s.x.lo, s.x.hi, room);
  if (s.x.at) xt = s.x.at;
  if (s.x.cats) xt = s.x.cats.map((_, i) => i);
  let last = -Infinity;
  for (const v of xt) {
    const x = X(v), text = s.x.cats ? String(s.x.cats[v]) : (s.x.text || fmt)(v);
    const half = text.length * 3.4;
    g.append(svg('path', { d: `M${x} ${height - pad.b}v4`, stroke: 'var(--soft)' }));
    if (x - half < last + 6) continue; // no room for this one
    const anchor = x + half > width ? 'end' : 'middle';
    g.append(svg('text', { x: anchor === 'end' ? width - 2 : x, y: height - pad.b + 17, 'text-anchor': anchor }, text));
    last = x + half;
  }
  g.append(svg('path', { d: `M${pad.l} ${pad.t}V${height - pad.b}H${width - pad.r}`, fill: 'none', stroke: 'var(--soft)' }));
  if (s.x.label) g.append(svg('text', { x: (pad.l + width - pad.r) / 2, y: height - 8, 'text-anchor': 'middle', class: 'label' }, s.x.label));
  if (s.y.label) g.append(svg('text', { transform: `translate(13 ${(pad.t + height - pad.b) / 2}) rotate(-90)`, 'text-anchor': 'middle', class: 'label' }, s.y.label));
}

function drawLine(g, l, X, Y) {
  const ok = p => p[1] != null && !Number.isNaN(X(p[0])) && Number.isFinite(Y(p[1]));
  const ps = l.points.filter(ok);
  const banded = ps.filter(p => p[2] != null && p[3] != null && Number.isFinite(Y(p[2])) && Number.isFinite(Y(p[3])));
  const f = n => n.toFixed(1);
  if (banded.length > 1 && !l.dots) {
    const up = banded.map(p => `${f(X(p[0]))} ${f(Y(p[3]))}`), down = banded.map(p => `${f(X(p[0]))} ${f(Y(p[2]))}`).reverse();
    g.append(svg('path', { d: 'M' + up.concat(down).join('L') + 'Z', fill: l.color, opacity: 0.18 }));
  } else {
    for (const p of banded) g.append(svg('path', { d: `M${f(X(p[0]))} ${f(Y(p[2]))}V${f(Y(p[3]))}`, stroke: l.color, 'stroke-width': 2, opacity: 0.6 }));
  }
  if (!l.dots && ps.length > 1) {
    let d = '';
    ps.forEach((p, i) => { d += i === 0 ? `M${f(X(p[0]))} ${f(Y(p[1]))}` : l.step ? `H${f(X(p[0]))}V${f(Y(p[1]))}` : `L${f(X(p[0]))} ${f(Y(p[1]))}`; });
    if (l.area) g.append(svg('path', { d: `${d}V${f(Y(0))}H${f(X(ps[0][0]))}Z`, fill: l.color, opacity: 0.2 }));
    g.append(svg('path', { d, fill: 'none', stroke: l.color, 'stroke-width': l.thin ? 1.3 : 2, 'stroke-dasharray': l.dash || null, 'stroke-linejoin': 'round' }));
  }
  for (const p of ps) {
    if (!l.dots && l.points.length > 24 && !p[5] && (!p[6] || p[6] === 'steady')) continue;
    const x = X(p[0]), y = Y(p[1]);
    if (p[6] === 'overloaded') g.append(svg('path', { class: 'overloaded', d: `M${f(x - 5)} ${f(y - 5)}L${f(x + 5)} ${f(y + 5)}M${f(x - 5)} ${f(y + 5)}L${f(x + 5)} ${f(y - 5)}`, stroke: l.color, 'stroke-width': 2.6 }));
    else if (p[6] === 'transient') g.append(svg('path', { class: 'transient', d: `M${f(x)} ${f(y - 6)}L${f(x + 6)} ${f(y)}L${f(x)} ${f(y + 6)}L${f(x - 6)} ${f(y)}Z`, fill: 'var(--card)', stroke: l.color, 'stroke-width': 2 }));
    else g.append(svg('circle', { cx: f(x), cy: f(y), r: l.thin ? 2 : p[5] ? 4 : 3.2, fill: p[5] ? 'var(--card)' : l.color, stroke: p[5] ? l.color : null, 'stroke-width': 2 }));
  }
}

// barChart draws into host what spec() returns, each time it is called, as horizontal bars of stacked parts:
// {label, x: {label, text}, parts: [{name, color}], bars: [{name, color, values: [one for each part], text}]}.
// Values are >= 0 and have the unit of x.label.
function barChart(host, spec) {
  host.classList.add('chart');
  host.tabIndex = 0;
  host.setAttribute('role', 'img');
  const live = el('span', { class: 'sr', 'aria-live': 'polite' });
  const tip = el('div', { class: 'tip', hidden: true });
  const table = tableBelow(host, barTable);
  let state = null, cursor = null, width = 0;

  function draw() {
    const s = spec(), row = 44, top = 6;
    width = host.clientWidth || 600;
    const height = top + row * s.bars.length + 44, pad = { l: 14, r: 14, t: top, b: 44 };
    range(Object.assign(s.x, { zero: true }), [0, ...s.bars.map(b => b.values.reduce((a, v) => a + v, 0))]);
    const X = scale(s.x, pad.l, width - pad.r);
    const g = svg('svg', { viewBox: `0 0 ${width} ${height}`, height, 'aria-hidden': 'true' });
    for (const v of ticks(s.x.lo, s.x.hi, Math.max(2, Math.floor(width / 90)))) {
      const x = X(v), text = (s.x.text || fmt)(v);
      g.append(svg('path', { d: `M${x} ${top}V${height - pad.b}`, stroke: 'var(--grid)' }),
        svg('text', { x, y: height - pad.b + 17, 'text-anchor': x + text.length * 3.4 > width ? 'end' : 'middle' }, text));
    }
    s.bars.forEach((b, i) => {
      const y = top + row * i;
      g.append(svg('text', { x: pad.l, y: y + 13, class: 'label' }, b.name + (b.text ? ': ' + b.text : '')));
      let at = 0;
      b.values.forEach((v, k) => {
        if (!(v > 0)) return;
        const x = X(at), w = X(at += v) - x;
        g.append(svg('rect', { x: x.toFixed(1), y: y + 18, width: Math.max(w - 0.5, 0.5).toFixed(1), height: 18, fill: s.parts[k].color }));
      });
    });
    g.append(svg('text', { x: width / 2, y: height - 8, 'text-anchor': 'middle', class: 'label' }, s.x.label));
    host.replaceChildren(g, tip, live);
    host.setAttribute('aria-label', `${s.label}. ${s.bars.map(b => b.name).join(', ') || 'Nothing to show'}. Arrow keys move from bar to bar.`);
    host.dataset.points = s.bars.length * s.parts.length;
    state = { s, row, top };
    pictures.set(host, { svg: g, entries: s.parts.map(p => [p.name, p.color]), label: s.label });
    table(s);
    if (cursor != null) show(cursor, true);
  }

  function show(i, quiet) {
    const { s, row, top } = state;
    if (!s.bars.length) return;
    cursor = Math.min(Math.max(i, 0), s.bars.length - 1);
    const b = s.bars[cursor], sum = b.values.reduce((a, v) => a + v, 0);
    tip.replaceChildren(el('b', {}, b.name), ...s.parts.map((p, k) => [p, b.values[k]]).filter(e => e[1] > 0).map(([p, v]) => {
      const sw = el('i');
      sw.style.background = p.color;
      return el('div', {}, sw, `${p.name}: ${(s.x.text || fmt)(v)} (${fmt(100 * v / sum)} %)`);
    }));
    tip.hidden = false;
    tip.style.left = Math.max(0, Math.min(width - tip.offsetWidth, width / 3)) + 'px';
    tip.style.top = top + row * (cursor + 1) - 4 + 'px';
    if (!quiet) live.textContent = tip.innerText;
  }
  const hide = () => { cursor = null; tip.hidden = true; };
  host.addEventListener('pointermove', e => {
    const i = Math.floor((e.clientY - host.getBoundingClientRect().top - state.top) / state.row);
    if (i < 0 || i >= state.s.bars.length) hide(); else show(i, true);
  });
  host.addEventListener('pointerleave', hide);
  host.addEventListener('blur', hide);
  host.addEventListener('keydown', e => {
    const to = { ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1 }[e.key];
    if (e.key === 'Escape') return hide();
    if (!to) return;
    e.preventDefault();
    show(cursor == null ? 0 : cursor + to);
  });
  redraws.add(draw);
  new ResizeObserver(() => { if (host.clientWidth !== width) draw(); }).observe(host);
  draw();
  return draw;
}

// tableBelow puts a table of the chart's numbers under it, folded; rows(spec) makes head and body. It returns a
// function that is told what the chart shows. The table is made when it is opened.
function tableBelow(host, rows) {
  let shown = null;
  const box = el('div'), more = el('details', { class: 'as-table', ontoggle: () => fill() }, el('summary', {}, 'As a table'), box);
  function fill() {
    if (!more.open || !shown) return;
    const [head, ...body] = rows(shown);
    box.replaceChildren(fitted(shown.label, el('table', {},
      el('thead', {}, el('tr', {}, ...head.map(h => el('th', { scope: 'col' }, h)))),
      el('tbody', {}, ...body.map(r => el('tr', {}, ...r.map((v, i) => i ? el('td', { 'data-label': head[i] }, v) : el('th', { scope: 'row', 'data-label': head[0] }, v))))))));
  }
  return s => {
    shown = s;
    if (s.table !== false && !more.parentNode && host.parentNode) host.after(more);
    fill();
  };
}

const tableRows = 40; // of a table at most

// lineTable has a row for each x of the lines, thinned where there are more than tableRows.
function lineTable(s) {
  let xs = s.snap ? snaps(s) : [];
  if (!s.snap) {
    const X = scale(s.x, 0, tableRows - 1);
    xs = [...Array(tableRows).keys()].map(i => X.inverse(i));
  }
  const every = Math.ceil(xs.length / tableRows) || 1;
  const cell = (l, x) => {
    const p = at(l, x, s.snap);
    if (!p || p[1] == null) return '–';
    return (s.y.text || fmt)(p[1]) + (p[2] != null && p[3] != null && p[3] > p[2] ? ` (${(s.y.text || fmt)(p[2])} to ${(s.y.text || fmt)(p[3])})` : '') + (p[4] ? ' ' + p[4] : '');
  };
  const unit = s.y.label ? `: ${s.y.label}` : '';
  return [[s.x.label || 'x', ...s.lines.map(l => l.name + unit)],
    ...xs.filter((_, i) => i % every === 0).map(x => [s.x.cats ? s.x.cats[x] : (s.x.text || fmt)(x), ...s.lines.map(l => cell(l, x))])];
}

function barTable(s) {
  return [[s.x.label, ...s.parts.map(p => p.name)],
    ...s.bars.map(b => [b.name, ...b.values.map(v => (s.x.text || fmt)(v))])];
}

// pictures are what the charts show now, by their elements.
const pictures = new WeakMap();

// svgOf returns a chart as an SVG file that needs no style sheet: with colours, a title, and a legend below.
function svgOf(host) {
  const { svg: shown, entries, label } = pictures.get(host);
  const [, , width, height] = shown.getAttribute('viewBox').split(' ').map(Number);
  const copy = shown.cloneNode(true), title = 28, step = 20, tall = title + height + step * entries.length + 10;
  const inner = svg('g', { transform: `translate(0 ${title})` });
  inner.append(...copy.childNodes);
  copy.replaceChildren(svg('title', {}, label), svg('rect', { width, height: tall, fill: 'var(--card)' }),
    svg('text', { x: width / 2, y: 19, 'text-anchor': 'middle', 'font-size': 14, fill: 'var(--text)' }, label), inner);
  entries.forEach(([name, col], i) => copy.append(
    svg('rect', { x: 14, y: title + height + step * i, width: 14, height: 14, fill: col }),
    svg('text', { x: 34, y: title + height + step * i + 12, 'font-size': 12.5, fill: 'var(--text)' }, name)));
  for (const e of [copy, ...copy.querySelectorAll('*')]) {
    if (e.tagName === 'text' && !e.getAttribute('fill')) {
      e.setAttribute('fill', e.getAttribute('class') === 'label' ? 'var(--text)' : 'var(--soft)');
      e.setAttribute('font-size', 12);
    }
    for (const a of [...e.attributes]) {
      a.value = a.value.replace(/var\((--[\w-]+)\)/g, (_, name) => cssValue(name));
    }
  }
  for (const [k, v] of Object.entries({ xmlns: 'http://www.w3.org/2000/svg', width, height: tall, viewBox: `0 0 ${width} ${tall}`, 'font-family': 'system-ui, sans-serif' })) copy.setAttribute(k, v);
  copy.removeAttribute('aria-hidden');
  return new XMLSerializer().serializeToString(copy);
}

// pngOf returns a chart as a PNG of twice the size, as a Blob.
async function pngOf(host) {
  const text = svgOf(host), image = new Image();
  image.src = 'data:image/svg+xml,' + encodeURIComponent(text);
  await image.decode();
  const canvas = el('canvas', { width: image.width * 2, height: image.height * 2 });
  const c = canvas.getContext('2d');
  c.scale(2, 2);
  c.drawImage(image, 0, 0);
  return new Promise(done => { canvas.toBlob(done, 'image/png'); });
}

export { lineChart, barChart, ticks, svgOf, pngOf };
