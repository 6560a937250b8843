// Tables that never run out of their section.
import { el, onResize } from './dom.js';

// fitted shows a table: where its columns do not fit side by side, each row becomes a block of labelled values.
export function fitted(label, table) {
  const box = el('div', { class: 'fit', role: 'region', 'aria-label': label }, table);
  let width = -1;
  const fit = () => {
    width = box.clientWidth;
    table.classList.remove('stacked');
    table.classList.toggle('stacked', table.scrollWidth > box.clientWidth || box.scrollWidth > box.clientWidth);
  };
  table.addEventListener('filled', fit);
  onResize(box, () => width, fit);
  return box;
}

// cell makes a cell from a text, or from {text: text, element or list of them, label: of a head without text alone,
// further attributes}.
function cell(tag, content, attrs) {
  const { text, label, ...own } = content?.text === undefined ? { text: content } : content;
  return el(tag, { ...attrs, ...own }, ...[text].flat());
}

// fillTable renews a table. head is a list of cells. A row is a list of cells, or {cells, further attributes}; its first cell
// heads it. A column of words has the class text; the first cell of a row repeats its label unless it is a word.
export function fillTable(table, head, rows) {
  const labels = head.map(h => h.label ?? h.text ?? h);
  const own = { scope: 'row', 'data-label': head[0].class === 'text' ? null : labels[0] };
  table.replaceChildren(
    el('thead', {}, el('tr', {}, ...head.map(h => cell('th', h, { scope: 'col' })))),
    el('tbody', {}, ...rows.map(row => {
      const { cells, ...attrs } = Array.isArray(row) ? { cells: row } : row;
      return el('tr', attrs, ...cells.map((c, i) => i ? cell('td', c, { 'data-label': labels[i], class: head[i].class }) : cell('th', c, own)));
    })));
  table.dispatchEvent(new Event('filled'));
}

// filled is a table with a head and rows, for good.
export function filled(label, head, rows) {
  const table = el('table'), box = fitted(label, table);
  fillTable(table, head, rows);
  return box;
}

// asTable is a folded table, which is made when it is opened: content() returns its label, head and rows. Its function
// renew makes an open one again.
export function asTable(content) {
  const table = el('table'), box = fitted('As a table', table);
  const more = el('details', { class: 'as-table', ontoggle: () => more.renew() }, el('summary', {}, 'As a table'), box);
  more.renew = () => {
    const now = more.open && content();
    if (!now) return;
    box.setAttribute('aria-label', now.label);
    fillTable(table, now.head, now.rows);
  };
  return more;
}
