// Starts what a page has need of; every page works without it, but for charts and live numbers.
import { duration, moment } from "./formats.js";

const OLD_PICTURE_MS = 60000; // as web/rendering.py

function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  for (const button of document.querySelectorAll("[data-theme-toggle]")) {
    button.addEventListener("click", () => {
      const root = document.documentElement;
      const now = root.dataset.theme || (dark.matches ? "dark" : "light");
      root.dataset.theme = now === "dark" ? "light" : "dark";
      try {
        localStorage.setItem("theme", root.dataset.theme);
      } catch {
        // It holds for this page then.
      }
    });
  }
}

function age() {
  const shown = document.querySelector("[data-age]");
  if (!shown) return;
  const tick = () => {
    if (!shown.dataset.age) return;
    const ms = Math.max(0, Date.now() - Number(shown.dataset.age));
    const text = shown.querySelector("span");
    if (text) text.textContent = `${duration(Math.floor(ms / 1000) * 1000)} ago`;
    shown.classList.toggle("bad", ms > OLD_PICTURE_MS);
    shown.classList.toggle("good", ms <= OLD_PICTURE_MS);
  };
  tick();
  setInterval(tick, 1000);
}

function moments(within = document) {
  for (const each of within.querySelectorAll("time[data-ms]")) {
    each.title = each.textContent;
    each.textContent = moment(Number(each.dataset.ms));
  }
}

function forms() {
  for (const select of document.querySelectorAll("select[data-goto]")) {
    select.addEventListener("change", () => location.assign(select.value));
  }
  for (const select of document.querySelectorAll("[data-submit]")) {
    select.addEventListener("change", () => select.form.requestSubmit());
  }
  // What destroys asks for a name; the button waits until it is typed (the server checks it too).
  for (const input of document.querySelectorAll("input[data-type-to-confirm]")) {
    const button = input.form.querySelector("button[type=submit]");
    const check = () => {
      button.disabled = input.value !== input.dataset.typeToConfirm;
    };
    input.addEventListener("input", check);
    check();
  }
  for (const box of document.querySelectorAll("input[data-check-all]")) {
    box.hidden = false;
    box.addEventListener("change", () => {
      const names = box.form.querySelectorAll(`input[type=checkbox][name="${box.dataset.checkAll}"]`);
      for (const each of names) each.checked = box.checked;
    });
  }
}

function keys() {
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select, [contenteditable]");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const search = document.querySelector("input[type=search]");
    if (!search) return;
    event.preventDefault();
    search.focus();
    search.select();
  });
}

function scrollable() {
  for (const each of document.querySelectorAll(".scroll")) {
    if (each.scrollWidth > each.clientWidth) each.tabIndex = 0; // arrow keys can move it
  }
}

// The line of pages on a narrow screen: bring the current one into sight.
function here() {
  const nav = document.querySelector(".side");
  const current = nav && nav.querySelector("[aria-current]");
  if (current && nav.scrollWidth > nav.clientWidth) nav.scrollLeft = current.offsetLeft - 24;
}

// A page whose answer was not there yet looks again by itself.
function lookAgain() {
  if (document.querySelector("[data-look-again]")) setTimeout(() => location.reload(), 1500);
}

// Lists whose lines change, not only their numbers: taken anew from the page's own address.
function again() {
  for (const each of document.querySelectorAll("[data-again]")) {
    setInterval(async () => {
      if (document.hidden || each.contains(document.activeElement)) return;
      try {
        const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
        if (!answer.ok || answer.redirected) return;
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const fresh = page.getElementById(each.id);
        if (fresh && !each.contains(document.activeElement)) each.replaceChildren(...fresh.childNodes);
        moments(each);
      } catch {
        // The console is away: the age of the picture says so.
      }
    }, Number(each.dataset.again) * 1000);
  }
}

theme();
age();
moments();
forms();
keys();
scrollable();
here();
lookAgain();
again();
if (document.querySelector("[data-chart]")) import("./charts.js").then((it) => it.start());
if (document.querySelector("[data-spark]")) import("./sparks.js").then((it) => it.start());
if (document.querySelector("[data-subject]")) import("./live.js").then((it) => it.start());
