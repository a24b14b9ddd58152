// Browsing: a form, a page of records, and the cursors to the next ones.
import { count, element, lines } from "./stream.js";
import { tableRows } from "./records.js";

const form = document.querySelector("#browse");
const base = form.dataset.url;
const body = document.querySelector(".data-rows tbody");
const status = document.querySelector(".data-status");
const problems = document.querySelector(".data-problems");
const pager = document.querySelector(".data-pager");
const button = (name) => document.querySelector(`[data-act="${name}"]`);
let running = null;
let end = null;
let watching = null;
const LIVE_ROWS_MAX = 500;

function parameters(more = {}) {
  const wanted = new URLSearchParams();
  for (const [name, value] of new FormData(form)) {
    if (value !== "" && name !== "csrf") wanted.set(name, value);
  }
  if (wanted.get("from") !== "offset") wanted.delete("offset");
  if (wanted.get("from") === "time" && wanted.get("time")) {
    wanted.set("time", String(new Date(wanted.get("time")).getTime()));
  } else {
    wanted.delete("time");
  }
  for (const [name, value] of Object.entries(more)) wanted.set(name, value);
  return wanted;
}

function shape() {
  const from = form.elements.from.value;
  form.querySelectorAll("[data-when]").forEach((each) => { each.hidden = each.dataset.when !== from; });
}

function say(text, bad = false) {
  status.textContent = text;
  status.classList.toggle("bad", bad);
}

function show(list) {
  problems.replaceChildren(...list.map((each) => element("li", {}, each)));
  problems.hidden = !list.length;
}

function stopLive() {
  watching?.close();
  watching = null;
  button("live").setAttribute("aria-pressed", "false");
}

// What is appended from now on, newest at the top; the oldest rows leave the page.
function live() {
  running?.abort();
  running = null;
  button("cancel").hidden = true;
  stopLive();
  body.replaceChildren();
  pager.hidden = true;
  show([]);
  say("Waiting for records …");
  button("live").setAttribute("aria-pressed", "true");
  let seen = 0;
  let skipped = 0;
  const source = new EventSource(`${base}/tail?${parameters()}`);
  watching = source;
  source.addEventListener("message", (event) => {
    const line = JSON.parse(event.data);
    if (line.error || line.end) {
      stopLive();
      say(line.error || line.end.why, Boolean(line.error));
      return;
    }
    if (line.problems.length) show(line.problems);
    for (const row of line.rows) body.prepend(...tableRows(row, base));
    while (body.children.length > 2 * LIVE_ROWS_MAX) body.lastElementChild.remove();
    seen += line.rows.length;
    skipped += line.skipped;
    say(`Live: ${count(seen)} records${skipped ? `, ${count(skipped)} more were not shown` : ""}.`);
  });
  source.addEventListener("error", () => {
    // Not again by itself: it would begin at another place without saying so.
    if (watching === source) {
      stopLive();
      say("The live view ended: start it again.", true);
    }
  });
}

async function load(more = {}) {
  stopLive();
  running?.abort();
  const mine = new AbortController();
  running = mine;
  button("cancel").hidden = false;
  say("Reading …");
  const rows = [];
  let failure = null;
  let last = null;
  try {
    await lines(`${base}/rows?${parameters(more)}`, { signal: mine.signal }, (line) => {
      if (line.row) rows.push(line.row);
      else if (line.progress) say(`Read ${count(line.progress.scanned)} records, found ${count(line.progress.found)} …`);
      else if (line.end) last = line.end;
      else if (line.error) failure = line.error;
    });
  } catch (error) {
    failure = error.name === "AbortError" ? "Cancelled." : error.message;
  }
  if (running !== mine) return;
  running = null;
  button("cancel").hidden = true;
  if (failure !== null || last === null) {
    say(failure || "The answer ended too early: try again.", true);
    return;
  }
  end = last;
  const newestFirst = form.elements.from.value === "latest"; // in this order come all pages
  const back = more.direction ? more.direction === "back" : newestFirst;
  if (back !== newestFirst) rows.reverse();
  body.replaceChildren(...rows.flatMap((row) => tableRows(row, base)));
  pager.hidden = false;
  button("older").disabled = !end.has_older;
  button("newer").disabled = !end.has_newer;
  show(end.problems);
  const why = end.complete ? "" : ` The limit of what is searched for one page was reached after ${count(end.scanned)} records: go on with ${back ? "Older" : "Newer"}.`;
  say(`${count(rows.length)} records.${why}`);
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  history.replaceState(null, "", `?${parameters()}`);
  load();
});
form.elements.from.addEventListener("change", shape);
button("cancel").addEventListener("click", () => running?.abort());
button("older").addEventListener("click", () => load({ positions: end.older, direction: "back" }));
button("newer").addEventListener("click", () => load({ positions: end.newer, direction: "forward" }));
button("live").addEventListener("click", () => (watching ? (stopLive(), say("Stopped.")) : live()));
window.addEventListener("pagehide", stopLive);
shape();
load();
