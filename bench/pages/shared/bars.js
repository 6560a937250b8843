// Horizontal bars of stacked parts, with a cursor. The same numbers are a table below.
import { el, svg, swatch } from './dom.js';
import { fmt } from './numbers.js';
import { ticks, scale, range } from './scale.js';
import { figure } from './figure.js';
import { asTable } from './table.js';
import { pictures } from './picture.js';

const row = 44, top = 6; // pixels

const sum = values => values.reduce((a, v) => a + v, 0);

// barChart draws into host what spec() returns, each time it is called:
// {label, x: {label, text}, parts: [{name, color}], bars: [{name, values: [one for each part], text}]}.
// Values are >= 0 and have the unit of x.label.
export function barChart(host, spec) {
  let s = spec(), width = 0;
  const table = asTable(() => ({
    label: s.label, head: [s.x.label, ...s.parts.map(p => p.name)],
    rows: s.bars.map(b => [b.name, ...b.values.map(v => (s.x.text || fmt)(v))]),
  }));
  host.after(table);

  function draw(w) {
    s = spec();
    width = w;
    const height = top + row * s.bars.length + 44, pad = { l: 14, r: 14, t: top, b: 44 };
    range(Object.assign(s.x, { zero: true }), [0, ...s.bars.map(b => sum(b.values))]);
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
        const x = X(at), end = X(at += v);
        g.append(svg('rect', { x: x.toFixed(1), y: y + 18, width: Math.max(end - x - 0.5, 0.5).toFixed(1), height: 18, fill: s.parts[k].color }));
      });
    });
    g.append(svg('text', { x: width / 2, y: height - 8, 'text-anchor': 'middle', class: 'label' }, s.x.label));
    pictures.set(host, { svg: g, entries: s.parts.map(p => [p.name, p.color]), label: s.label });
    table.renew();
    return {
      element: g, points: s.bars.length * s.parts.length,
      label: `${s.label}. ${s.bars.map(b => b.name).join(', ') || 'Nothing to show'}. Arrow keys move from bar to bar.`,
    };
  }

  function show(to) {
    if (!s.bars.length) return null;
    const i = Math.min(Math.max(to, 0), s.bars.length - 1), b = s.bars[i], all = sum(b.values);
    const parts = s.parts.map((p, k) => [p, b.values[k]]).filter(e => e[1] > 0);
    return {
      place: i, x: width / 3, y: top + row * (i + 1) - 4, content: [
        el('b', {}, b.name), ...parts.map(([p, v]) => el('div', {}, swatch(p.color), `${p.name}: ${(s.x.text || fmt)(v)} (${fmt(100 * v / all)} %)`))],
    };
  }

  return figure(host, {
    draw, show,
    point: e => {
      const i = Math.floor((e.clientY - host.getBoundingClientRect().top - top) / row);
      return i < 0 || i >= s.bars.length ? null : i;
    },
    step: (key, place) => {
      const to = { ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1 }[key];
      return to ? place == null ? 0 : place + to : null;
    },
  });
}
