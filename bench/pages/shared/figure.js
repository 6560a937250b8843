// A figure has a cursor for mouse, touch and keyboard, and a tip beside it, which screen readers read.
import { el, redraws, onResize } from './dom.js';

// figure makes host a figure. of tells what it shows:
//   - draw(width) draws it, and returns {element, label, points}: points is how many values are shown
//   - point(event) is the place that the mouse is at, null: none
//   - step(key, place) is the place that a key leads to, null: none; place null: the cursor is not shown
//   - show(place) shows the cursor, and returns {place, x, y, content}: the place that it has gone to, where the tip goes
//     to in pixels, and the elements in it; null: there is nothing to show
//   - hide() hides the cursor
// It returns the function that draws it again.
export function figure(host, of) {
  host.classList.add('chart');
  host.tabIndex = 0;
  host.setAttribute('role', 'img');
  const live = el('span', { class: 'sr', 'aria-live': 'polite' }), tip = el('div', { class: 'tip', hidden: true });
  let place = null, width = 0;

  function draw() {
    width = host.clientWidth || 600;
    const { element, label, points } = of.draw(width);
    host.replaceChildren(element, tip, live);
    host.setAttribute('aria-label', label);
    host.dataset.points = points;
    if (place != null) show(place, true);
  }

  function show(to, quiet) {
    const shown = to == null ? null : of.show(to);
    if (!shown) return;
    place = shown.place;
    tip.replaceChildren(...shown.content);
    tip.hidden = false;
    const w = tip.offsetWidth, right = shown.x + 12;
    tip.style.left = Math.max(0, Math.min(right + w > width ? shown.x - 12 - w : right, width - w)) + 'px';
    tip.style.top = Math.max(0, shown.y) + 'px';
    if (!quiet) live.textContent = tip.innerText;
  }

  function hide() {
    place = null;
    tip.hidden = true;
    of.hide?.();
  }

  host.addEventListener('pointermove', e => {
    const to = of.point(e);
    if (to == null) hide(); else show(to, true);
  });
  host.addEventListener('pointerleave', hide);
  host.addEventListener('blur', hide);
  host.addEventListener('keydown', e => {
    if (e.key === 'Escape') return hide();
    const to = of.step(e.key, place);
    if (to == null) return;
    e.preventDefault();
    show(to);
  });
  redraws.add(draw);
  onResize(host, () => width, draw);
  draw();
  return draw;
}
