// The data of the report, and what its sections share.
import { el, hidden } from './dom.js';

// D is the data, as bench/study/report wrote it.
export const D = JSON.parse(document.getElementById('data').textContent);

// section adds a figure to the page and to its navigation.
export function section(id, title, hint, ...children) {
  const s = el('section', { id, 'aria-labelledby': id + '-title' },
    el('h2', { id: id + '-title' }, title), hint ? el('p', { class: 'hint' }, hint) : null, ...children);
  document.getElementById('main').append(s);
  document.getElementById('nav').append(el('a', { href: '#' + id }, title));
  return s;
}

// first is the run to look at first: one that plans, if there is one.
export const first = runs => (runs.find(r => r.plans) || runs[0]).name;

// shown are the runs that no legend hides.
export const shown = list => list.filter(x => !hidden.has(x.name));

// where says at which values of the settings the runs of sweeps are.
export const where = D.at.length ? ` Runs of ${D.at.join('; ')}.` : '';
