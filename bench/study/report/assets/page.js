'use strict';
// The data of the page, and its sections.
const D = JSON.parse(document.getElementById('data').textContent);

// section adds a figure to the page and to its navigation.
function section(id, title, hint, ...children) {
  const s = el('section', { id, 'aria-labelledby': id + '-title' },
    el('h2', { id: id + '-title' }, title), hint ? el('p', { class: 'hint' }, hint) : null, ...children);
  document.getElementById('main').append(s);
  document.getElementById('nav').append(el('a', { href: '#' + id }, title));
  return s;
}
