// Charts of a page: ranges, zoom by dragging or keys, values under the cursor, lines on and off.
import { ABSENT, duration, moment, show } from "./formats.js";
import { pieces, read } from "./series.js";
import { timeTicks, valueTicks } from "./scales.js";

const SVG = "http://www.w3.org/2000/svg";
const RANGES = [
  ["15 min", 900000], ["1 h", 3600000], ["6 h", 21600000], ["24 h", 86400000],
  ["7 d", 604800000], ["30 d", 2592000000], ["1 y", 31536000000],
];
const NAMED = { "15m": 900000, "1h": 3600000, "6h": 21600000, "24h": 86400000, "7d": 604800000 };
const REFRESH_MIN_MS = 10000;
const RANGE_MIN_MS = 60000;
const POINTS_MAX = 400;
const COLOURS = 8;
const TOP = 8;
const BOTTOM = 22;
const RIGHT = 10;
const DRAG_MIN_PX = 6;

function node(name, attributes = {}, text = null) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

class Chart {
  constructor(figure) {
    this.figure = figure;
    this.options = JSON.parse(figure.dataset.chart);
    this.lines = this.options.lines.map(([label, ...key], index) => ({
      label, key, colour: `c${(index % COLOURS) + 1}`, on: true, series: null,
    }));
    this.rangeMs = NAMED[this.options.range] || 3600000;
    this.to = null; // null: up to now
    this.cursor = null;
    this.drag = null;
    this.asked = null;
    this.build();
    new ResizeObserver(() => this.draw()).observe(this.plot);
    new IntersectionObserver((seen) => {
      this.visible = seen.some((each) => each.isIntersecting);
      if (this.visible && !this.loaded) this.load();
    }).observe(figure);
  }

  get span() {
    const to = this.to ?? this.shownTo ?? Date.now();
    return [to - this.rangeMs, to];
  }

  build() {
    this.plot = this.figure.querySelector(".plot");
    this.svg = node("svg", { tabindex: "0", role: "img" });
    this.status = element("p", { className: "status", textContent: "Loading…" });
    this.plot.replaceChildren(this.svg, this.status);
    this.said = element("output", { className: "hidden" });
    this.said.setAttribute("aria-live", "polite");
    this.legend = element("ul", { className: "legend" });
    this.figure.append(this.legend, this.said);
    this.tools = element("span", { className: "chart-tools" });
    this.buttons = RANGES.map(([label, ms]) => {
      const button = element("button", { type: "button", textContent: label });
      button.addEventListener("click", () => this.show(ms, null));
      this.tools.append(button);
      return [ms, button];
    });
    this.out = element("button", { type: "button", textContent: "Zoom out" });
    this.out.addEventListener("click", () => this.zoom(2));
    this.tools.append(this.out);
    this.figure.querySelector("figcaption").append(this.tools);
    for (const line of this.lines) {
      line.value = element("b");
      line.button = element("button", { type: "button" }, element("i", {}), line.label, " ", line.value);
      line.button.setAttribute("aria-pressed", "true");
      line.button.classList.add(line.colour);
      line.button.addEventListener("click", () => {
        line.on = !line.on;
        line.button.setAttribute("aria-pressed", String(line.on));
        this.draw();
      });
      this.legend.append(element("li", {}, line.button));
    }
    this.svg.addEventListener("pointerdown", (event) => this.press(event));
    this.svg.addEventListener("pointermove", (event) => this.move(event));
    this.svg.addEventListener("pointerup", (event) => this.release(event));
    this.svg.addEventListener("pointercancel", () => { this.drag = null; this.draw(); });
    this.svg.addEventListener("pointerleave", () => { if (!this.drag) this.point(null); });
    this.svg.addEventListener("dblclick", () => this.zoom(2));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.mark();
  }

  mark() {
    for (const [ms, button] of this.buttons) {
      button.setAttribute("aria-pressed", String(this.to === null && ms === this.rangeMs));
    }
  }

  show(rangeMs, to) {
    this.chosen = true;
    this.rangeMs = Math.max(RANGE_MIN_MS, Math.min(RANGES[RANGES.length - 1][1], rangeMs));
    this.to = to !== null && to < Date.now() ? to : null;
    this.cursor = null;
    this.mark();
    this.load();
  }

  zoom(factor) {
    const [from, to] = this.span;
    const middle = factor < 1 && this.cursor !== null ? this.cursor : (from + to) / 2;
    this.show(this.rangeMs * factor, middle + (this.rangeMs * factor) / 2);
  }

  async load() {
    this.loaded = true;
    this.asked?.abort();
    const asked = (this.asked = new AbortController());
    clearTimeout(this.timer);
    const to = this.to ?? Date.now();
    const points = Math.max(50, Math.min(POINTS_MAX, Math.floor(this.plot.clientWidth / 2)));
    try {
      const keys = this.lines.map((line) => line.key);
      const found = await read(this.options.url, keys, to - this.rangeMs, to, points, asked.signal);
      found.forEach((series, index) => { this.lines[index].series = series; });
      this.shownTo = to;
      if (this.young(found, to)) return;
      this.status.textContent = found.some((series) => series.points.length) ? "" : "No values in this range yet.";
    } catch (error) {
      if (asked.signal.aborted) return;
      this.status.textContent = `No values: ${error.message}`;
    }
    this.draw();
    if (this.to === null) {
      this.timer = setTimeout(() => this.again(), Math.max(REFRESH_MIN_MS, this.rangeMs / POINTS_MAX));
    }
  }

  // A console that was just started has minutes of history: they fill the chart, not its last edge.
  young(found, to) {
    if (this.chosen || this.to !== null) return false;
    this.chosen = true;
    const first = Math.min(...found.filter((series) => series.points.length).map((series) => series.points[0][0]));
    if (!Number.isFinite(first) || first <= to - RANGES[0][1] || this.rangeMs <= RANGES[0][1]) return false;
    this.show(RANGES[0][1], null);
    return true;
  }

  again() {
    if (!document.hidden && this.visible && !this.drag) this.load();
    else this.timer = setTimeout(() => this.again(), REFRESH_MIN_MS);
  }

  draw() {
    const width = this.plot.clientWidth;
    const height = this.plot.clientHeight;
    if (!width || !this.loaded) return;
    const unit = this.options.unit;
    const shown = this.lines.filter((line) => line.on && line.series?.points.length);
    const [from, to] = this.span;
    let most = 0;
    for (const line of shown) for (const point of line.series.points) most = Math.max(most, point[3]);
    const ticks = valueTicks(most, unit, Math.max(2, Math.floor(height / 45)));
    const texts = ticks.map((each) => show(unit, each));
    this.left = 12 + Math.max(...texts.map((text) => text.length)) * 6.3;
    this.width = width;
    const top = ticks[ticks.length - 1];
    this.x = (ms) => this.left + ((ms - from) / (to - from)) * (width - this.left - RIGHT);
    const y = (value) => height - BOTTOM - (value / top) * (height - BOTTOM - TOP);
    const parts = [];
    ticks.forEach((each, index) => {
      const at = y(each).toFixed(1);
      parts.push(node("line", { class: "grid", x1: this.left, x2: width - RIGHT, y1: at, y2: at }));
      parts.push(node("text", { class: "axis", x: this.left - 6, y: Number(at) + 4, "text-anchor": "end" }, texts[index]));
    });
    for (const [ms, text] of timeTicks(from, to, (width - this.left) / 80)) {
      const at = this.x(ms);
      const anchor = at > width - 30 ? "end" : "middle";
      parts.push(node("text", { class: "axis", x: anchor === "end" ? width - RIGHT : at, y: height - 5, "text-anchor": anchor }, text));
    }
    for (const line of shown) {
      for (const piece of pieces(line.series)) {
        const px = (point) => this.x(point[0]).toFixed(1);
        const mean = piece.map((point) => `${px(point)},${y(point[1]).toFixed(1)}`);
        if (piece.length === 1) mean.push(`${this.x(piece[0][0]) + 1},${y(piece[0][1]).toFixed(1)}`);
        if (piece.some((point) => point[3] > point[2])) {
          const up = piece.map((point) => `${px(point)},${y(point[3]).toFixed(1)}`);
          const down = [...piece].reverse().map((point) => `${px(point)},${y(point[2]).toFixed(1)}`);
          parts.push(node("path", { class: `band ${line.colour}`, d: `M${up.join("L")}L${down.join("L")}Z` }));
        }
        parts.push(node("path", { class: `series ${line.colour}`, d: `M${mean.join("L")}` }));
      }
    }
    this.selection = node("rect", { class: "selection", y: TOP, height: height - TOP - BOTTOM, width: 0 });
    this.mark_ = node("line", { class: "cursor", y1: TOP, y2: height - BOTTOM, visibility: "hidden" });
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren(...parts, this.selection, this.mark_);
    this.describe();
    this.point(this.cursor);
  }

  describe() {
    const range = duration(this.rangeMs);
    const said = this.lines.map((line) => {
      const points = line.series?.points || [];
      if (!points.length) return `${line.label}: no values`;
      const most = Math.max(...points.map((point) => point[3]));
      const last = points[points.length - 1][1];
      return `${line.label}: last ${show(this.options.unit, last)}, most ${show(this.options.unit, most)}`;
    });
    const keys = "Arrow keys move the cursor, plus and minus zoom, Shift with arrows moves the range, Escape goes back.";
    this.svg.setAttribute("aria-label", `${this.options.title}, ${range}. ${said.join("; ")}. ${keys}`);
  }

  // Values at a moment, or the newest where there is no cursor.
  point(ms) {
    this.cursor = ms;
    if (!this.mark_) return;
    this.mark_.setAttribute("visibility", ms === null ? "hidden" : "visible");
    if (ms !== null) {
      this.mark_.setAttribute("x1", this.x(ms).toFixed(1));
      this.mark_.setAttribute("x2", this.x(ms).toFixed(1));
    }
    const said = [];
    for (const line of this.lines) {
      const points = line.series?.points || [];
      const point = ms === null ? points[points.length - 1] : nearest(points, ms, line.series?.resolution_ms);
      line.value.textContent = point ? show(this.options.unit, point[1]) : ABSENT;
      said.push(`${line.label} ${line.value.textContent}`);
    }
    this.when ||= this.legend.appendChild(element("li", { className: "dim" }));
    this.when.textContent = ms === null ? "" : moment(ms);
    return said;
  }

  at(event) {
    const [from, to] = this.span;
    const px = event.clientX - this.svg.getBoundingClientRect().left;
    const share = (px - this.left) / (this.width - this.left - RIGHT);
    return from + Math.max(0, Math.min(1, share)) * (to - from);
  }

  press(event) {
    if (event.button !== 0 || !this.x) return;
    this.drag = { from: this.at(event), x: event.clientX };
    if (event.pointerType === "mouse") this.svg.setPointerCapture(event.pointerId);
  }

  move(event) {
    if (!this.x) return;
    const ms = this.at(event);
    this.point(ms);
    if (!this.drag) return;
    const [a, b] = [this.drag.from, ms].sort((one, other) => one - other);
    this.selection.setAttribute("x", this.x(a));
    this.selection.setAttribute("width", this.x(b) - this.x(a));
  }

  release(event) {
    const drag = this.drag;
    this.drag = null;
    if (!drag) return;
    const [a, b] = [drag.from, this.at(event)].sort((one, other) => one - other);
    if (Math.abs(event.clientX - drag.x) >= DRAG_MIN_PX) this.show(b - a, b);
    else this.selection.setAttribute("width", 0);
  }

  key(event) {
    const [from, to] = this.span;
    const stepMs = this.rangeMs / 60;
    const side = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (side && event.shiftKey) this.show(this.rangeMs, to + (side * this.rangeMs) / 4);
    else if (side) {
      const ms = Math.max(from, Math.min(to, (this.cursor ?? (side < 0 ? to : from)) + side * stepMs));
      const said = this.point(ms);
      this.said.textContent = `${moment(ms)}: ${said.join(", ")}`;
    } else if (event.key === "+" || event.key === "=") this.zoom(0.5);
    else if (event.key === "-") this.zoom(2);
    else if (event.key === "Home") this.point(from);
    else if (event.key === "End") this.point(to);
    else if (event.key === "Escape") this.show(NAMED[this.options.range] || 3600000, null);
    else return;
    event.preventDefault();
  }
}

function nearest(points, ms, resolution) {
  let found = null;
  for (const point of points) {
    if (!found || Math.abs(point[0] - ms) < Math.abs(found[0] - ms)) found = point;
  }
  return found && Math.abs(found[0] - ms) <= resolution * 2.5 ? found : null;
}

export function start() {
  for (const figure of document.querySelectorAll("[data-chart]")) new Chart(figure);
}
