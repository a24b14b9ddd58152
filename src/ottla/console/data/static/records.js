// Records as rows of a table. All that comes from a record is set as text.
import { count, element, time } from "./stream.js";

const PREVIEW_CHARACTERS = 200;

function preview(shown) {
  if (shown.format === "null") return element("i", { class: "dim" }, "null");
  const text = shown.format === "hex"
    ? shown.text.split("\n").slice(0, 4).map((line) => line.slice(10, 57).trim()).join(" ")
    : shown.text.replace(/\s+/g, " ");
  const cut = shown.cut || text.length > PREVIEW_CHARACTERS;
  return element("code", {}, text.slice(0, PREVIEW_CHARACTERS) + (cut ? " …" : ""));
}

function part(title, shown, download) {
  const head = element("h3", {}, title, " ",
    element("span", { class: "badge" }, shown.format), " ",
    element("span", { class: "dim" }, shown.format === "null" ? "" : `${count(shown.size)} bytes`));
  const box = element("section", {}, head);
  if (shown.problem) box.append(element("p", { class: "note bad" }, shown.problem));
  if (shown.format !== "null") {
    box.append(element("pre", { tabindex: "0" }, shown.text || "(empty)"));
    const link = element("a", { href: download, download: true }, "Download");
    box.append(element("p", {}, shown.cut ? "Cut here. " : "", link));
  }
  return box;
}

function details(row, base) {
  const at = `${base}/record?partition=${row.partition}&offset=${row.offset}`;
  const facts = element("p", { class: "dim" },
    `${row.timestamp_kind === "append" ? "time of the append" : "time of its maker"}`
    + ` · compression ${row.compression} · transaction ${row.state}`
    + (row.marker ? ` · marker ${row.marker}` : ""));
  const box = element("div", { class: "data-details" }, facts,
    part("Key", row.key, `${at}&part=key`), part("Value", row.value, `${at}&part=value`));
  if (row.headers.length) {
    const body = element("tbody");
    row.headers.forEach(([name, shown]) => {
      body.append(element("tr", {}, element("th", { scope: "row" }, name),
        element("td", {}, shown.format === "null" ? preview(shown) : element("code", {}, shown.text))));
    });
    const more = row.headers_count - row.headers.length;
    box.append(element("section", {}, element("h3", {}, `Headers (${row.headers_count})`),
      element("table", {}, body), more > 0 ? `and ${more} more` : ""));
  }
  return box;
}

export function tableRows(row, base) {
  const id = `r${row.partition}-${row.offset}`;
  const open = element("button", { type: "button", class: "data-open", "aria-expanded": "false",
    "aria-controls": id, "aria-label": `Record ${row.partition}:${row.offset}` }, count(row.offset));
  const pick = element("input", { type: "checkbox", "aria-label": `Select ${row.partition}:${row.offset}`,
    disabled: row.marker !== null });
  pick.dataset.at = `${row.partition}:${row.offset}`;
  const state = row.marker || (row.state === "none" || row.state === "committed" ? "" : row.state);
  const line = element("tr", { class: state },
    element("td", {}, pick),
    element("td", { class: "number" }, String(row.partition)),
    element("td", { class: "number" }, open),
    element("td", { class: "nowrap" }, time(row.timestamp)),
    element("td", { class: "data-key" }, preview(row.key)),
    element("td", { class: "data-value" }, state ? element("span", { class: "badge bad" }, state) : "", " ", preview(row.value)),
    element("td", { class: "number" }, count(row.size)));
  const cell = element("td", { colspan: "7" });
  const below = element("tr", { class: "data-below", id, hidden: true }, cell);
  open.addEventListener("click", () => {
    if (!cell.firstChild) cell.append(details(row, base));
    below.hidden = !below.hidden;
    open.setAttribute("aria-expanded", String(!below.hidden));
  });
  return [line, below];
}
