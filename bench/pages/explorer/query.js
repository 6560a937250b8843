// The query: settings, policies, SLO, price and seeds, all as texts; and the link that stands for it.

const extras = ['slo', 'price', 'seeds'];

// linkOf writes a query as the part of an address behind the #.
export function linkOf(query) {
  const p = new URLSearchParams();
  for (const key of Object.keys(query.settings).sort()) p.append(key, query.settings[key]);
  for (const policy of query.policies) p.append('policy', policy);
  for (const key of extras) p.append(key, query[key] || '');
  return p.toString();
}

// ofLink reads what linkOf wrote; null: it is no query.
export function ofLink(text) {
  const p = new URLSearchParams(text.replace(/^#/, ''));
  if (!p.has('policy')) return null;
  const query = { settings: {}, policies: p.getAll('policy'), slo: '', price: '', seeds: '' };
  for (const [key, value] of p) {
    if (extras.includes(key)) query[key] = value;
    else if (key !== 'policy') query.settings[key] = value;
  }
  return query;
}

export const copy = query => ({ ...query, settings: { ...query.settings }, policies: [...query.policies] });
