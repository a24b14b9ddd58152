// A statement, its rows as a table as they come, and a chart of two columns.
import { count, csrf, element, lines } from "./stream.js";
import { draw } from "./plot.js";

const form = document.querySelector("#sql");
const status = document.querySelector(".data-status");
const table = document.querySelector("#result");
const card = document.querySelector(".data-chart");
const choice = document.querySelector("#chart");
const cancel = document.querySelector('[data-act="cancel"]');
const NUMBER = /INT|DOUBLE|FLOAT|DECIMAL/;
const TIME = /^(TIMESTAMP|DATE)/;
let running = null;
let columns = [];
let rows = [];

function say(text, bad = false) {
  status.textContent = text;
  status.classList.toggle("bad", bad);
}

function text(value) {
  if (value === null) return "null";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function head(found) {
  columns = found;
  table.tHead.replaceChildren(element("tr", {}, ...columns.map((each) => element("th",
    { scope: "col", class: NUMBER.test(each.type) ? "number" : "", title: each.type }, each.name))));
}

function add(more) {
  rows.push(...more);
  table.tBodies[0].append(...more.map((row) => element("tr", {}, ...row.map((value, at) => element("td",
    { class: NUMBER.test(columns[at].type) ? "number" : value === null ? "dim" : "" }, text(value))))));
}

function options(select, fits, usual) {
  const names = columns.map((each, at) => [each, at]).filter(([each]) => fits(each));
  select.replaceChildren(...names.map(([each, at]) => element("option", { value: at, selected: at === usual }, each.name)));
  return names.length > 0;
}

function offer() {
  const numbers = columns.findIndex((each, at) => at > 0 && NUMBER.test(each.type));
  const y = numbers >= 0 ? numbers : columns.findIndex((each) => NUMBER.test(each.type));
  options(choice.elements.x, () => true, 0);
  const some = options(choice.elements.y, (each) => NUMBER.test(each.type), y);
  card.hidden = !rows.length;
  choice.elements.kind.value = some && rows.length > 1
    ? (columns[0] && (TIME.test(columns[0].type) || NUMBER.test(columns[0].type)) && rows.length > 30 ? "line" : "bar") : "";
  chart();
}

function chart() {
  const [x, y] = [Number(choice.elements.x.value), Number(choice.elements.y.value)];
  const place = document.querySelector(".data-plot");
  if (!choice.elements.kind.value || !columns[y]) {
    place.replaceChildren();
    return;
  }
  const points = rows.map((row) => [row[x], Number(row[y])]).filter(([, value]) => Number.isFinite(value));
  place.replaceChildren(draw(choice.elements.kind.value, points, columns[x], columns[y]));
}

async function run() {
  running?.abort();
  const mine = new AbortController();
  running = mine;
  cancel.hidden = false;
  rows = [];
  columns = [];
  table.tHead.replaceChildren();
  table.tBodies[0].replaceChildren();
  card.hidden = true;
  say("Running …");
  const fields = form.elements;
  const body = { statement: fields.statement.value, partitions: fields.partitions.value, isolation: fields.isolation.value };
  for (const name of ["from", "to"]) if (fields[name].value) body[name] = String(new Date(fields[name].value).getTime());
  let failure = null;
  let end = null;
  try {
    await lines(form.dataset.url, { method: "POST", signal: mine.signal, body: JSON.stringify(body),
      headers: { "Content-Type": "application/json", "X-CSRF-Token": csrf() } }, (line) => {
      if (line.columns) head(line.columns);
      else if (line.rows) add(line.rows);
      else if (line.progress) say(`Read ${count(line.progress.read)} records …`);
      else if (line.end) end = line.end;
      else if (line.error) failure = line.error;
    });
  } catch (error) {
    failure = error.name === "AbortError" ? "Cancelled." : error.message;
  }
  if (running !== mine) return;
  running = null;
  cancel.hidden = true;
  if (failure !== null || end === null) {
    say(failure || "The answer ended too early: try again.", true);
    return;
  }
  offer();
  say(`${count(end.rows)} rows${end.cut ? " (more are left out)" : ""}, ${count(end.read)} records read, ${count(end.took_ms)} ms.`);
}

function csv() {
  const quoted = (value) => {
    const shown = value === null ? "" : text(value);
    const safe = /^([=+@\t\r]|-(?![\d.]+$))/.test(shown) ? `'${shown}` : shown;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const all = [columns.map((each) => quoted(each.name)), ...rows.map((row) => row.map(quoted))];
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([all.map((row) => row.join(",")).join("\r\n")], { type: "text/csv" }));
  link.download = "result.csv";
  link.click();
  URL.revokeObjectURL(link.href);
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});
form.elements.statement.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    run();
  }
});
form.elements.topic.addEventListener("change", (event) => {
  const box = form.elements.statement;
  if (event.target.value) box.setRangeText(`"${event.target.value.replaceAll('"', '""')}"`, box.selectionStart, box.selectionEnd, "end");
  event.target.value = "";
  box.focus();
});
cancel.addEventListener("click", () => running?.abort());
choice.addEventListener("change", chart);
choice.addEventListener("submit", (event) => event.preventDefault());
document.querySelector('[data-act="csv"]').addEventListener("click", csv);
