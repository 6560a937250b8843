// Colors of the style sheet, in the theme that is shown.

export const color = i => `var(--c${i % 8})`;
export const dash = i => ['', '7 3', '2 3', '9 3 2 3'][Math.floor(i / 8) % 4];

// hue tells adapters apart; neighbours are far from each other.
export const hue = i => Math.round(i * 137.508) % 360;

// workerColor tells workers apart: the palette, then hues spread evenly.
export function workerColor(i) {
  if (i < 8) return cssColor(`--c${i}`);
  return `hsl(${hue(i)} 60% ${isDark() ? 65 : 45}%)`;
}

// cssColor is a color of the style sheet for what the style sheet does not reach: a canvas, a file.
export function cssColor(name) {
  const probe = document.body.appendChild(document.createElement('i'));
  probe.hidden = true;
  probe.style.color = `var(${name})`;
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

export function isDark() {
  const t = document.documentElement.dataset.theme;
  return t ? t === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
}
