// Numbers that change without a new page: what the server sends for the subjects that are shown.
import { show } from "./formats.js";

const SUBJECTS_MAX = 120; // as web/events.py

function subjects() {
  const found = new Map();
  for (const each of document.querySelectorAll("[data-subject]")) {
    const name = each.dataset.subject;
    if (!found.has(name)) found.set(name, []);
    found.get(name).push(each);
  }
  return found;
}

function fields(container, name) {
  const selector = `[data-live="${CSS.escape(name)}"]`;
  return [...(container.matches(selector) ? [container] : []), ...container.querySelectorAll(selector)]
    .filter((each) => each.closest("[data-subject]") === container);
}

function take(containers, values) {
  for (const container of containers) {
    for (const [name, value] of Object.entries(values)) {
      for (const field of fields(container, name)) {
        const text = show(field.dataset.format || "text", value);
        if (field.textContent === text) continue;
        field.textContent = text;
        field.classList.remove("flash");
        void field.offsetWidth; // so that the colour fades once more
        field.classList.add("flash");
      }
    }
  }
}

export function start() {
  const cluster = document.querySelector("meta[name=cluster]")?.content;
  const shown = subjects();
  const names = [...shown.keys()].slice(0, SUBJECTS_MAX);
  if (!cluster) return;
  const query = new URLSearchParams({ cluster });
  for (const name of names) query.append("of", name);
  let source = null;
  const listen = () => {
    if (source || document.hidden) return;
    source = new EventSource(`/events?${query}`);
    source.addEventListener("numbers", (event) => {
      const { taken_ms: taken, subjects: sent } = JSON.parse(event.data);
      const age = document.querySelector("[data-age]");
      if (age && taken !== null) age.dataset.age = String(taken);
      for (const [name, values] of Object.entries(sent)) take(shown.get(name) || [], values);
    });
  };
  const stop = () => {
    source?.close();
    source = null;
  };
  // A page that nobody looks at asks for nothing.
  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : listen()));
  addEventListener("pagehide", stop);
  addEventListener("pageshow", listen);
  listen();
}
