// A chart of a result: bars or a line, as SVG; its colours come from the page's style.
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 900;
const HEIGHT = 260;
const LEFT = 70;
const BOTTOM = 46;
const TOP = 10;
const BARS_MAX = 60;
const LABEL_CHARACTERS = 14;

function node(name, attributes = {}, text = null) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

function ticks(low, high) {
  const span = high - low || 1;
  const unit = 10 ** Math.floor(Math.log10(span / 4));
  const step = [1, 2, 5, 10].map((each) => each * unit).find((each) => span / each <= 5);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step) found.push(at);
  return found;
}

function short(text) {
  const shown = text === null ? "null" : String(text);
  return shown.length > LABEL_CHARACTERS ? `${shown.slice(0, LABEL_CHARACTERS - 1)}…` : shown;
}

// Where a value of the x column stands: by its size if it is a number or a time, else by its order.
function places(points, column) {
  const numbers = points.map(([x]) => (/^(TIMESTAMP|DATE)/.test(column.type)
    ? Date.parse(`${String(x).replace(" ", "T")}${String(x).length > 10 && !/[+Z]/.test(x) ? "Z" : ""}`)
    : /INT|DOUBLE|FLOAT|DECIMAL/.test(column.type) ? Number(x) : NaN));
  return numbers.every(Number.isFinite) ? numbers : points.map((_, at) => at);
}

export function draw(kind, all, columnX, columnY) {
  const points = kind === "bar" ? all.slice(0, BARS_MAX) : all;
  const svg = node("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: "data-svg" });
  svg.append(node("title", {}, `${columnY.name} along ${columnX.name}`));
  if (!points.length) return svg;
  const values = points.map(([, y]) => y);
  const low = Math.min(0, ...values);
  const high = Math.max(low + 1e-9, ...values);
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low));
  for (const each of ticks(low, high)) {
    svg.append(node("line", { x1: LEFT, x2: WIDTH, y1: y(each), y2: y(each), class: "grid" }));
    svg.append(node("text", { x: LEFT - 8, y: y(each) + 4, "text-anchor": "end" }, Number(each.toPrecision(6)).toLocaleString("en-US")));
  }
  const width = (WIDTH - LEFT) / points.length;
  const labels = Math.max(1, Math.ceil(points.length / 9));
  if (kind === "bar") {
    points.forEach(([x, value], at) => {
      const bar = node("rect", { x: LEFT + at * width + width * 0.12, width: width * 0.76,
        y: Math.min(y(value), y(0)), height: Math.abs(y(value) - y(0)), class: "bar-of" });
      bar.append(node("title", {}, `${x}: ${value.toLocaleString("en-US")}`));
      svg.append(bar);
      if (at % labels === 0) svg.append(node("text", { x: LEFT + (at + 0.5) * width, y: HEIGHT - BOTTOM + 18, "text-anchor": "middle" }, short(x)));
    });
  } else {
    const at = places(points, columnX);
    const order = at.map((_, index) => index).sort((a, b) => at[a] - at[b]);
    const [first, last] = [at[order[0]], at[order.at(-1)]];
    const x = (value) => LEFT + (WIDTH - LEFT - 10) * (last > first ? (value - first) / (last - first) : 0.5);
    svg.append(node("path", { class: "line-of", d: order.map((index, place) => `${place ? "L" : "M"}${x(at[index]).toFixed(1)} ${y(values[index]).toFixed(1)}`).join("") }));
    for (let step = 0; step <= 4; step += 1) {
      const index = order[Math.round((order.length - 1) * step / 4)];
      svg.append(node("text", { x: x(at[index]), y: HEIGHT - BOTTOM + 18, "text-anchor": step === 0 ? "start" : step === 4 ? "end" : "middle" }, short(points[index][0])));
    }
  }
  svg.append(node("text", { x: (WIDTH + LEFT) / 2, y: HEIGHT - 6, "text-anchor": "middle", class: "axis" }, columnX.name));
  return svg;
}
