// Figures as files.
import { el, svg } from './dom.js';
import { cssColor } from './theme.js';

// pictures are what the charts show now, by their elements.
export const pictures = new WeakMap();

// svgOf returns a chart as an SVG file that needs no style sheet: with colours, a title, and a legend below.
export function svgOf(host) {
  const { svg: shown, entries, label } = pictures.get(host);
  const [, , width, height] = shown.getAttribute('viewBox').split(' ').map(Number);
  const copy = shown.cloneNode(true), title = 28, step = 20, tall = title + height + step * entries.length + 10;
  const inner = svg('g', { transform: `translate(0 ${title})` });
  inner.append(...copy.childNodes);
  copy.replaceChildren(svg('title', {}, label), svg('rect', { width, height: tall, fill: 'var(--card)' }),
    svg('text', { x: width / 2, y: 19, 'text-anchor': 'middle', 'font-size': Math.min(14, (width - 20) / (0.6 * label.length)).toFixed(1), fill: 'var(--text)' }, label), inner);
  entries.forEach(([name, col], i) => copy.append(
    svg('rect', { x: 14, y: title + height + step * i, width: 14, height: 14, fill: col }),
    svg('text', { x: 34, y: title + height + step * i + 12, 'font-size': 12.5, fill: 'var(--text)' }, name)));
  for (const e of [copy, ...copy.querySelectorAll('*')]) {
    if (e.tagName === 'text' && !e.getAttribute('fill')) {
      e.setAttribute('fill', e.getAttribute('class') === 'label' ? 'var(--text)' : 'var(--soft)');
      e.setAttribute('font-size', 12);
    }
    for (const a of [...e.attributes]) {
      a.value = a.value.replace(/var\((--[\w-]+)\)/g, (_, name) => cssColor(name));
    }
  }
  for (const [k, v] of Object.entries({ xmlns: 'http://www.w3.org/2000/svg', width, height: tall, viewBox: `0 0 ${width} ${tall}`, 'font-family': 'system-ui, sans-serif' })) copy.setAttribute(k, v);
  copy.removeAttribute('aria-hidden');
  return new XMLSerializer().serializeToString(copy);
}

// pngOf returns a chart as a PNG of twice the size, as a Blob.
export async function pngOf(host) {
  const text = svgOf(host), image = new Image();
  image.src = 'data:image/svg+xml,' + encodeURIComponent(text);
  await image.decode();
  const canvas = el('canvas', { width: image.width * 2, height: image.height * 2 });
  const c = canvas.getContext('2d');
  c.scale(2, 2);
  c.drawImage(image, 0, 0);
  return new Promise(done => { canvas.toBlob(done, 'image/png'); });
}
