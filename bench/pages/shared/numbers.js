// Numbers and times for people.

// fmt writes a number: four significant digits.
export function fmt(x) {
  if (x == null || Number.isNaN(x)) return '–';
  const a = Math.abs(x);
  if (a !== 0 && a < 0.001) return x.toExponential(2);
  return x.toLocaleString('en', a >= 1000 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 4 });
}

// plusMinus writes a mean, and half of its interval with the decimals of the mean.
export function plusMinus(mean, half) {
  const text = fmt(mean);
  return `${text} ± ${text.includes('e') ? fmt(half) : half.toFixed((text.split('.')[1] || '').length)}`;
}

export const percent = x => fmt(100 * x) + ' %';

// time writes seconds.
export function time(s, digits = 4) {
  if (s == null || Number.isNaN(s)) return '–';
  const [x, unit] = s >= 7200 ? [s / 3600, 'h'] : s !== 0 && Math.abs(s) < 1 ? [1000 * s, 'ms'] : [s, 's'];
  return `${fmt(Number(x.toPrecision(digits)))} ${unit}`;
}

// clock writes a time of day.
export const clock = at => new Date(at).toLocaleTimeString([], { hour12: false });

export const counted = (n, noun) => `${n.toLocaleString('en')} ${noun}${n === 1 ? '' : 's'}`;
