// Scales: round numbers, and the way from values to pixels.

// ticks returns round numbers from lo to hi.
export function ticks(lo, hi, n) {
  if (!(hi > lo)) return [lo];
  const raw = (hi - lo) / n, mag = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find(m => m * mag >= raw) * mag;
  const out = [];
  for (let v = Math.ceil(lo / step) * step; v <= hi + step * 1e-9; v += step) out.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return out;
}

// logTicks returns powers of ten, and 2 and 5 times them where there is room.
export function logTicks(lo, hi, n) {
  const out = [];
  const from = Math.floor(Math.log10(lo)), to = Math.ceil(Math.log10(hi));
  const muls = (to - from) * 3 <= n * 1.5 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil((to - from) / n));
  for (let p = from; p <= to; p++) {
    if ((p - from) % every) continue;
    for (const m of muls) {
      const v = m * 10 ** p;
      if (v >= lo * (1 - 1e-9) && v <= hi * (1 + 1e-9)) out.push(v);
    }
  }
  return out.length > 1 ? out : [lo, hi];
}

const clockSteps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400].map(s => 1000 * s);

// clockTicks returns at most n + 1 round times of day from lo to hi, ms since 1970.
export function clockTicks(lo, hi, n) {
  const step = clockSteps.find(s => s * n >= hi - lo) || Math.ceil((hi - lo) / n / 86400000) * 86400000;
  const zone = 60000 * new Date(lo).getTimezoneOffset(), out = [];
  for (let v = Math.ceil((lo - zone) / step) * step + zone; v <= hi; v += step) out.push(v);
  return out;
}

// scale maps values to pixels. Values that a log axis cannot show, 0 and less, are at minus infinity.
export function scale(axis, a, b) {
  const f = axis.log ? x => x > 0 ? Math.log10(x) : -Infinity : x => x;
  const lo = f(axis.lo), span = f(axis.hi) - lo || 1;
  const s = v => a + (f(v) - lo) / span * (b - a);
  s.inverse = px => {
    const t = lo + (px - a) / (b - a) * span;
    return axis.log ? 10 ** t : t;
  };
  return s;
}

// range sets lo and hi of an axis from its values.
export function range(axis, values) {
  let lo = Infinity, hi = -Infinity;
  for (const v of values) {
    if (v == null || Number.isNaN(v) || (axis.log && v <= 0)) continue;
    lo = Math.min(lo, v);
    hi = Math.max(hi, v);
  }
  if (lo > hi) { lo = axis.log ? 1 : 0; hi = axis.log ? 10 : 1; }
  if (axis.min != null) lo = axis.min;
  if (axis.max != null) hi = axis.max;
  if (axis.zero && !axis.log) lo = Math.min(0, lo);
  // values that differ by rounding alone are equal: steps between them would be too small to count
  if (hi - lo <= 1e-12 * Math.max(Math.abs(lo), Math.abs(hi))) hi = axis.log ? lo * 2 : lo + (Math.abs(lo) || 1);
  if (axis.pad && !axis.log) { const p = (hi - lo) * axis.pad; if (lo !== 0) lo -= p; hi += p; }
  return Object.assign(axis, { lo, hi });
}
