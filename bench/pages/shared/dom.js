// Elements, and the parts of which all pages are made: sections, choices, legends.
import { color, isDark } from './theme.js';

export const byId = id => document.getElementById(id);

// el makes an element. Attributes that begin with on are listeners; true is an attribute without a value; false, null
// and undefined are none. Children that are null are left out.
export function el(tag, attrs, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attrs || {})) {
    if (k.startsWith('on')) e.addEventListener(k.slice(2), v);
    else if (v === true) e.setAttribute(k, '');
    else if (v !== false && v != null) e.setAttribute(k, v);
  }
  e.append(...children.filter(c => c != null));
  return e;
}

// svg makes an element of a picture.
export function svg(tag, attrs, text) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [k, v] of Object.entries(attrs || {})) if (v != null) e.setAttribute(k, v);
  if (text != null) e.textContent = text;
  return e;
}

// onResize calls f when the width of an element is not the one that width() returns.
export function onResize(e, width, f) {
  new ResizeObserver(() => { if (e.clientWidth !== width()) f(); }).observe(e);
}

// redraws are the functions that draw figures again, on another theme or when a run is shown or hidden.
export const redraws = new Set();
export const redraw = () => redraws.forEach(f => f());

export const hidden = new Set(); // names of runs and policies that are not shown

// setupTheme makes the button of the page's head switch between the light and the dark theme.
export function setupTheme() {
  const b = byId('theme');
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

// section adds a section to the page, and to its navigation where it has one.
export function section(id, title, hint, ...children) {
  const s = el('section', { id, 'aria-labelledby': id + '-title', tabindex: -1 },
    el('h2', { id: id + '-title' }, title), hint ? el('p', { class: 'hint' }, hint) : null, ...children);
  byId('main').append(s);
  byId('nav')?.append(el('a', { href: '#' + id }, title));
  return s;
}

// select makes a labelled list of choices; change is told the chosen value.
export function select(label, choices, change, value) {
  const s = el('select', { onchange: () => change(s.value) });
  for (const [v, text] of choices) s.append(el('option', { value: v, selected: v === value }, text));
  return el('label', {}, label, s);
}

export function checkbox(label, change, checked) {
  const c = el('input', { type: 'checkbox', onchange: () => change(c.checked), checked });
  return el('label', { class: 'check' }, c, label);
}

// swatch is a square that tells a color.
export function swatch(background) {
  const e = el('i', { class: 'swatch' });
  e.style.background = background;
  return e;
}

// colorKey tells the colors of a figure: pairs of name and color.
export function colorKey(entries) {
  return el('div', { class: 'key' }, ...entries.map(([name, background]) => el('span', {}, swatch(background), name)));
}

// legend is a row of buttons that show and hide runs in all figures.
export function legend(names, colors = color) {
  const box = el('div', { class: 'legend', role: 'group', 'aria-label': 'Show and hide' });
  const draw = () => {
    for (const b of box.children) b.setAttribute('aria-pressed', String(!hidden.has(b.dataset.name)));
  };
  names.forEach((name, i) => {
    box.append(el('button', {
      type: 'button', 'data-name': name, onclick: () => {
        if (hidden.has(name)) hidden.delete(name); else hidden.add(name);
        redraw();
      },
    }, swatch(colors(i)), name));
  });
  redraws.add(draw);
  draw();
  box.draw = draw;
  return box;
}
