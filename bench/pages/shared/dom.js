// Elements, numbers, colours, and what the charts of a page share.

const byId = id => document.getElementById(id);

function el(tag, attrs, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attrs || {})) {
    if (k.startsWith('on')) e.addEventListener(k.slice(2), v);
    else if (v === true) e.setAttribute(k, '');
    else if (v !== false && v != null) e.setAttribute(k, v);
  }
  e.append(...children.filter(c => c != null));
  return e;
}

function svg(tag, attrs, text) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [k, v] of Object.entries(attrs || {})) if (v != null) e.setAttribute(k, v);
  if (text != null) e.textContent = text;
  return e;
}

// fmt writes a number for people: four significant digits.
function fmt(x) {
  if (x == null || Number.isNaN(x)) return '–';
  const a = Math.abs(x);
  if (a !== 0 && a < 0.001) return x.toExponential(2);
  return x.toLocaleString('en', a >= 1000 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 4 });
}

// time writes seconds.
const time = s => s >= 7200 ? fmt(s / 3600) + ' h' : fmt(s) + ' s';

const color = i => `var(--c${i % 8})`;
const dash = i => ['', '7 3', '2 3', '9 3 2 3'][Math.floor(i / 8) % 4];

// workerColor tells workers apart: the palette, then hues spread evenly.
function workerColor(i) {
  if (i < 8) return cssValue(`--c${i}`);
  return `hsl(${(i * 137.5) % 360} 60% ${isDark() ? 65 : 45}%)`;
}
const cssValue = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function isDark() {
  const t = document.documentElement.dataset.theme;
  return t ? t === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
}

// redraws are the functions that draw figures again, on another theme or when a
// run is shown or hidden.
const redraws = new Set();
const redraw = () => redraws.forEach(f => f());

const hidden = new Set(); // names of runs and policies that are not shown

function setupTheme() {
  const b = document.getElementById('theme');
  const show = () => {
    b.textContent = isDark() ? 'Light' : 'Dark';
    b.setAttribute('aria-pressed', String(isDark()));
    b.setAttribute('aria-label', isDark() ? 'Switch to the light theme' : 'Switch to the dark theme');
  };
  b.addEventListener('click', () => {
    document.documentElement.dataset.theme = isDark() ? 'light' : 'dark';
    show();
    redraw();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { show(); redraw(); });
  show();
}

// select makes a labelled list of choices; change is told the chosen value.
function select(label, choices, change, value) {
  const s = el('select', { onchange: () => change(s.value) });
  for (const [v, text] of choices) s.append(el('option', { value: v, selected: v === value }, text));
  return el('label', {}, label, s);
}

function checkbox(label, change, checked) {
  const c = el('input', { type: 'checkbox', onchange: () => change(c.checked), checked });
  return el('label', { class: 'check' }, c, label);
}

// legend is a row of buttons that show and hide runs in all figures.
function legend(names, colors) {
  const box = el('div', { class: 'legend', role: 'group', 'aria-label': 'Show and hide' });
  const draw = () => {
    for (const b of box.children) b.setAttribute('aria-pressed', String(!hidden.has(b.dataset.name)));
  };
  names.forEach((name, i) => {
    const sw = el('i');
    sw.style.background = (colors || color)(i);
    box.append(el('button', {
      type: 'button', 'data-name': name, onclick: () => {
        if (hidden.has(name)) hidden.delete(name); else hidden.add(name);
        redraw();
      },
    }, sw, name));
  });
  redraws.add(draw);
  draw();
  box.draw = draw;
  return box;
}

// fitted shows a table that never runs out of its section: where its columns do
// not fit side by side, each row becomes a block of labelled values (data-label).
function fitted(label, table) {
  const box = el('div', { class: 'fit', role: 'region', 'aria-label': label }, table);
  let width = -1;
  const fit = () => {
    width = box.clientWidth;
    table.classList.remove('stacked');
    table.classList.toggle('stacked', table.scrollWidth > box.clientWidth || box.scrollWidth > box.clientWidth);
  };
  table.addEventListener('filled', fit);
  new ResizeObserver(() => { if (box.clientWidth !== width) fit(); }).observe(box);
  return box;
}

export { byId, el, svg, fmt, time, color, dash, workerColor, cssValue, redraws, redraw, hidden, setupTheme, select, checkbox, legend, fitted };
