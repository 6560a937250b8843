// The contrast of each visible text with what lies behind it, by WCAG 2.2: (L1 + 0.05) / (L2 + 0.05) of the relative
// luminances. Backgrounds and opacities of all ancestors count; pictures behind texts do not.
(() => {
  const paint = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const known = new Map();
  // rgba reads any CSS color, as parts from 0 to 1.
  function rgba(css) {
    if (!known.has(css)) {
      paint.clearRect(0, 0, 1, 1);
      paint.fillStyle = css;
      paint.fillRect(0, 0, 1, 1);
      known.set(css, [...paint.getImageData(0, 0, 1, 1).data].map(v => v / 255));
    }
    return known.get(css);
  }
  const over = (top, below, alpha) => [0, 1, 2].map(i => top[i] * alpha + below[i] * (1 - alpha));
  function luminance(c) {
    const [r, g, b] = c.map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }
  // look is the color of a text in an element, and what lies behind it.
  function look(e) {
    const chain = [];
    for (let x = e; x; x = x.parentElement) chain.unshift(getComputedStyle(x));
    let behind = [1, 1, 1], opacity = 1;
    for (const s of chain) {
      opacity *= Number(s.opacity);
      const b = rgba(s.backgroundColor);
      behind = over(b, behind, b[3] * opacity);
    }
    const s = chain.at(-1), c = rgba(e.closest('svg') ? s.fill : s.color);
    return [over(c, behind, c[3] * opacity), behind];
  }
  const low = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let texts = 0;
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement, text = walk.currentNode.textContent.trim();
    if (!text || e.closest('script, style, noscript, option, datalist') || !e.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    texts++;
    const [a, b] = look(e).map(luminance), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const s = getComputedStyle(e), size = parseFloat(s.fontSize), large = size >= 24 || size >= 18.66 && Number(s.fontWeight) >= 700;
    if (ratio < (large ? 3 : 4.5)) low.push(`${ratio.toFixed(2)}: ${e.tagName.toLowerCase()}.${e.getAttribute('class') || ''} "${text.slice(0, 40)}"`);
  }
  return { texts, low };
})()
