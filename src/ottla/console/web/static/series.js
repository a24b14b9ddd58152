// Asks for series: `keys` are [measure, subject, topic] each.
export const KEYS_MAX = 16; // of one request, as web/series.py

export async function read(url, keys, from, to, points, signal) {
  const query = new URLSearchParams({ from: Math.round(from), to: Math.round(to), points });
  for (const key of keys) query.append("key", JSON.stringify(key));
  const answer = await fetch(`${url}?${query}`, {
    headers: { Accept: "application/json" },
    signal,
  });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error?.message || `HTTP ${answer.status}`);
  return found.series;
}

// The points of a line cut where values are missing.
export function pieces(series) {
  const found = [];
  const gap = series.resolution_ms * 2.5;
  let last = -Infinity;
  for (const point of series.points) {
    if (point[0] - last > gap) found.push([]);
    found[found.length - 1].push(point);
    last = point[0];
  }
  return found;
}
