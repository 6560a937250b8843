// Line charts: axes, lines with bands, single points, marks and a cursor. The same numbers are a table below.
import { el, svg, swatch } from './dom.js';
import { fmt, percent } from './numbers.js';
import { ticks, logTicks, scale, range } from './scale.js';
import { figure } from './figure.js';
import { asTable } from './table.js';
import { pictures } from './picture.js';

// lineChart draws into host what spec() returns, each time it is called:
// {label, x: {label, log, cats, min, max, text}, y: {..., tip: text at the cursor}, lines: [{name, color, dash,
// points: [[x, y, low, high, text, hollow, state]], dots, step}], marks: [{x, low, high, color}], rules: [{y, text}],
// snap: the cursor goes from point to point, height, table: false for none}
export function lineChart(host, spec) {
  let drawn = null;
  const table = spec().table === false ? null : asTable(() => lineTable(drawn.s));
  if (table) host.after(table);

  function draw(width) {
    const s = spec(), height = s.height || 300;
    const pad = { l: s.y.label ? 72 : 48, r: 14, t: s.rules?.length ? 26 : 10, b: s.x.label ? 44 : 26 };
    range(s.x, s.lines.flatMap(l => l.points.map(p => p[0])));
    range(s.y, s.lines.flatMap(l => l.points.flatMap(p => [p[1], p[2], p[3]])));
    const X = scale(s.x, pad.l, width - pad.r), Y = scale(s.y, height - pad.b, pad.t);
    const g = svg('svg', { viewBox: `0 0 ${width} ${height}`, height, 'aria-hidden': 'true' });
    const rule = svg('path', { stroke: 'var(--text)', 'stroke-width': 1, opacity: 0.5, visibility: 'hidden' });
    drawn = { s, X, Y, rule, pad, width, height };
    drawAxes(g, drawn);
    drawMarks(g, drawn);
    for (const l of s.lines) drawLine(g, l, X, Y, height - pad.b);
    g.append(rule);
    pictures.set(host, { svg: g, entries: s.lines.map(l => [l.name, l.color]), label: s.label });
    table?.renew();
    return {
      element: g, points: s.lines.reduce((n, l) => n + l.points.length, 0),
      label: s.label + '. ' + (s.lines.map(l => l.name).join(', ') || 'Nothing to show') + '. Arrow keys move the cursor.',
    };
  }

  function show(to) {
    const { s, X, rule, pad, height } = drawn;
    if (s.snap && !snaps(s).length) return null;
    const within = Math.min(Math.max(to, s.x.lo), s.x.hi), x = s.snap ? nearest(s, within) : within;
    rule.setAttribute('d', `M${X(x)} ${pad.t}V${height - pad.b}`);
    rule.setAttribute('visibility', 'visible');
    const rows = s.lines.map(l => [l, at(l, x, s.snap)]).filter(r => r[1]);
    return {
      place: x, x: X(x), y: pad.t, content: [
        el('b', {}, (s.x.text || fmt)(s.x.cats ? s.x.cats[x] : x)),
        ...rows.map(([l, p]) => el('div', {}, swatch(l.color), `${l.name}: ${pointText(s, p, s.y.tip)}`))],
    };
  }

  function step(key, place) {
    const { s, X, pad, width } = drawn, to = { ArrowLeft: -1, ArrowRight: 1 }[key];
    if (key === 'Home' || to > 0 && place == null) return s.x.lo;
    if (key === 'End' || to < 0 && place == null) return s.x.hi;
    if (!to) return null;
    if (!s.snap) return X.inverse(X(place) + to * (width - pad.l - pad.r) / 50);
    const xs = snaps(s);
    return xs[Math.min(Math.max(xs.indexOf(place) + to, 0), xs.length - 1)];
  }

  return figure(host, {
    draw, show, step,
    point: e => drawn.X.inverse(e.clientX - host.getBoundingClientRect().left),
    hide: () => drawn.rule.setAttribute('visibility', 'hidden'),
  });
}

// distribution is what lineChart draws of latencies: the share of requests up to each. runs are {name, color, dash,
// values: quantiles in ms, at the probabilities}.
export function distribution(title, log, probabilities, runs, height) {
  return {
    label: title + ': share of requests by latency', height,
    x: { label: title.replace(/ \(.*/, '') + ' (ms)', log },
    y: { label: 'share of requests (%)', min: 0, max: 1, text: percent },
    lines: runs.map(({ values, ...run }) => ({
      ...run, below: 0, above: 1, points: values.map((q, k) => [q, probabilities[k]]).filter(p => !log || p[0] > 0),
    })),
  };
}

// pointText writes a point with its interval and its text.
function pointText(s, [, y, low, high, text], format) {
  const write = s.y.text || fmt;
  return (format || write)(y) + (low != null && high != null && high > low ? ` (${write(low)} to ${write(high)})` : '') + (text ? ' ' + text : '');
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

// drawMarks draws marks across the plot, and rules with their texts above it, where no line crosses them. An interval
// that leaves the plot is cut at its edge; a mark outside is not drawn.
function drawMarks(g, { s, X, Y, pad, width, height }) {
  const inside = v => Math.min(Math.max(X(v), pad.l), width - pad.r);
  for (const m of s.marks || []) {
    if (m.high > m.low) g.append(svg('rect', { class: 'band', x: inside(m.low), y: pad.t, width: Math.max(inside(m.high) - inside(m.low), 1), height: height - pad.b - pad.t, fill: m.color, opacity: 0.14 }));
    if (X(m.x) === inside(m.x)) g.append(svg('path', { d: `M${X(m.x)} ${height - pad.b}V${pad.t}`, stroke: m.color, 'stroke-width': 1.5, 'stroke-dasharray': '2 3' }));
  }
  for (const r of s.rules || []) {
    if (!Number.isFinite(Y(r.y))) continue;
    g.append(svg('path', { d: `M${pad.l} ${Y(r.y)}H${width - pad.r}`, stroke: 'var(--text)', 'stroke-width': 1, 'stroke-dasharray': '5 4', opacity: 0.6 }));
  }
  if (s.rules?.length) g.append(svg('text', { x: width - pad.r, y: 13, 'text-anchor': 'end', class: 'label' }, s.rules.map(r => r.text).join(', ')));
}

// drawAxes draws the axes, with ticks where their texts have room.
function drawAxes(g, { s, X, Y, width, height, pad }) {
  const yt = s.y.log ? logTicks(s.y.lo, s.y.hi, 5) : ticks(s.y.lo, s.y.hi, height < 200 ? 3 : 5);
  for (const v of yt) {
    const y = Y(v);
    g.append(svg('path', { d: `M${pad.l} ${y}H${width - pad.r}`, stroke: 'var(--grid)' }));
    g.append(svg('text', { x: pad.l - 7, y: y + 4, 'text-anchor': 'end' }, (s.y.text || fmt)(v)));
  }
  const room = Math.max(2, Math.floor((width - pad.l - pad.r) / (width < 420 ? 62 : 76)));
  let xt = s.x.log ? logTicks(s.x.lo, s.x.hi, room) : ticks(s.x.lo, s.x.hi, room);
  if (s.x.at) xt = s.x.at;
  if (s.x.cats) xt = s.x.cats.map((_, i) => i);
  let last = -Infinity;
  for (const v of xt) {
    const x = X(v), text = s.x.cats ? String(s.x.cats[v]) : (s.x.text || fmt)(v);
    if (!Number.isFinite(x)) continue; // 0 on a log axis
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

// drawLine draws a line with its band, or points with their intervals. Intervals that a log axis cannot show end at the
// plot's bottom.
function drawLine(g, l, X, Y, bottom) {
  const ok = p => p[1] != null && Number.isFinite(X(p[0])) && Number.isFinite(Y(p[1]));
  const ps = l.points.filter(ok);
  const banded = ps.filter(p => p[2] != null && p[3] != null && !Number.isNaN(Y(p[2])) && Number.isFinite(Y(p[3])));
  const f = n => n.toFixed(1), low = p => f(Math.min(Y(p[2]), bottom));
  if (banded.length > 1 && !l.dots) {
    const up = banded.map(p => `${f(X(p[0]))} ${f(Y(p[3]))}`), down = banded.map(p => `${f(X(p[0]))} ${low(p)}`).reverse();
    g.append(svg('path', { d: 'M' + up.concat(down).join('L') + 'Z', fill: l.color, opacity: 0.18 }));
  } else {
    for (const p of banded) g.append(svg('path', { d: `M${f(X(p[0]))} ${low(p)}V${f(Y(p[3]))}`, stroke: l.color, 'stroke-width': 2, opacity: 0.6 }));
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
    return p && p[1] != null ? pointText(s, p) : '–';
  };
  const unit = s.y.label ? `: ${s.y.label}` : '';
  return {
    label: s.label, head: [s.x.label || 'x', ...s.lines.map(l => l.name + unit)],
    rows: xs.filter((_, i) => i % every === 0).map(x => [s.x.cats ? s.x.cats[x] : (s.x.text || fmt)(x), ...s.lines.map(l => cell(l, x))]),
  };
}
