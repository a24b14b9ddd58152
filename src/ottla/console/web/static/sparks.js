// The small lines in the tiles: the last half hour, without axes.
import { KEYS_MAX, pieces, read } from "./series.js";

const RANGE_MS = 30 * 60000;
const EVERY_MS = 30000;
const POINTS = 60;
const WIDTH = 100;
const HEIGHT = 24;
const SVG = "http://www.w3.org/2000/svg";

function drawn(series, from, to) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  const most = Math.max(...series.points.map((point) => point[1]), 1e-9);
  const x = (ms) => (((ms - from) / (to - from)) * WIDTH).toFixed(2);
  const y = (value) => (HEIGHT - 2 - (value / most) * (HEIGHT - 4)).toFixed(2);
  for (const piece of pieces(series)) {
    const line = piece.map(([ms, mean]) => `${x(ms)},${y(mean)}`).join("L");
    const end = `L${x(piece[piece.length - 1][0])},${HEIGHT}L${x(piece[0][0])},${HEIGHT}Z`;
    for (const [d, name] of [[`M${line}${end}`, "area"], [`M${line}`, "line"]]) {
      const path = document.createElementNS(SVG, "path");
      path.setAttribute("d", d);
      path.setAttribute("class", name);
      svg.append(path);
    }
  }
  return svg;
}

async function update(all, url) {
  const to = Date.now();
  const from = to - RANGE_MS;
  for (let at = 0; at < all.length; at += KEYS_MAX) {
    const some = all.slice(at, at + KEYS_MAX);
    const found = await read(url, some.map((each) => JSON.parse(each.dataset.spark)), from, to, POINTS);
    some.forEach((each, index) => each.replaceChildren(drawn(found[index], from, to)));
  }
}

export function start() {
  const all = [...document.querySelectorAll("[data-spark]")];
  const name = document.querySelector("meta[name=cluster]")?.content;
  if (!name) return;
  const url = `/c/${encodeURIComponent(name)}/series`;
  const again = () => {
    if (!document.hidden) update(all, url).catch(() => {}); // the tile's number stands
  };
  again();
  setInterval(again, EVERY_MS);
}
