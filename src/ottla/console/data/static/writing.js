// Producing by hand, replaying and downloading what is selected.
import { count, send, told } from "./stream.js";

const browse = document.querySelector("#browse");
const base = browse.dataset.url;
const status = document.querySelector(".data-status");
const chosen = document.querySelector(".data-selected");
const body = document.querySelector(".data-rows tbody");

function say(place, text, bad = false) {
  place.textContent = text;
  place.classList.toggle("bad", bad);
}

function selected() {
  return [...body.querySelectorAll("input[data-at]:checked")].map((each) => each.dataset.at);
}

function showSelected() {
  const number = selected().length;
  chosen.textContent = number ? `${count(number)} selected` : "None selected";
}

function written(place, done, verb) {
  const first = done.records.find((each) => each !== null);
  const where = done.written === 1 ? ` at partition ${first.partition}, offset ${first.offset}` : "";
  const failed = done.errors.length ? ` ${done.records.length - done.written} failed: ${done.errors.join("; ")}` : "";
  say(place, `${count(done.written)} ${done.written === 1 ? "record was" : "records were"} ${verb}${where}.${failed}`,
    done.errors.length > 0);
}

async function act(form, place, url, what, verb) {
  const button = form.querySelector("button[type=submit]");
  button.disabled = true;
  say(place, "Writing …");
  try {
    written(place, await told(await send(url, what)), verb);
  } catch (error) {
    say(place, error.message, true);
  } finally {
    button.disabled = false;
  }
}

const produce = document.querySelector("#produce");
if (produce) {
  const said = document.querySelector(".data-said");
  produce.elements.key.addEventListener("input", () => { produce.elements.key_null.checked = false; });
  produce.elements.value.addEventListener("input", () => { produce.elements.value_null.checked = false; });
  produce.addEventListener("submit", (event) => {
    event.preventDefault();
    const fields = produce.elements;
    const record = {
      key: fields.key_null.checked ? null : fields.key.value, key_format: fields.key_format.value,
      value: fields.value_null.checked ? null : fields.value.value, value_format: fields.value_format.value,
      headers: fields.headers.value, partition: fields.partition.value,
      timestamp: fields.timestamp.value ? new Date(fields.timestamp.value).getTime() : null,
    };
    act(produce, said, `${base}/produce`, { records: [record], compression: fields.compression.value }, "produced");
  });
  const many = document.querySelector("#produce-lines");
  many.addEventListener("submit", (event) => {
    event.preventDefault();
    act(many, said, `${base}/produce`, { lines: many.elements.lines.value,
      compression: produce.elements.compression.value }, "produced");
  });
}

const replay = document.querySelector("#replay");
replay?.addEventListener("submit", (event) => {
  event.preventDefault();
  const records = selected();
  if (!records.length) {
    say(status, "Select the records to replay first.", true);
    return;
  }
  const fields = replay.elements;
  act(replay, status, `${base}/replay`, { records, to: fields.to.value, partition: fields.partition.value,
    keep_time: fields.keep_time.checked, origin: fields.origin.checked }, `written to ${fields.to.value}`);
});

document.querySelector("#download").addEventListener("submit", async (event) => {
  event.preventDefault();
  const fields = event.target.elements;
  const records = selected();
  if (!records.length) { // all that the page would show: by the browser itself, however much it is
    const wanted = new URLSearchParams();
    for (const [name, value] of new FormData(browse)) if (value !== "") wanted.set(name, value);
    if (wanted.get("from") !== "offset") wanted.delete("offset");
    if (wanted.get("from") === "time" && wanted.get("time")) {
      wanted.set("time", String(new Date(wanted.get("time")).getTime()));
    } else {
      wanted.delete("time");
    }
    wanted.set("count", fields.most.value);
    wanted.set("format", fields.format.value);
    location.assign(`${base}/download?${wanted}`);
    return;
  }
  const answer = await send(`${base}/download`, { records, format: fields.format.value });
  if (!answer.ok) {
    told(answer).catch((error) => say(status, error.message, true));
    return;
  }
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = `${browse.dataset.topic}.${fields.format.value}`;
  link.click();
  URL.revokeObjectURL(link.href);
});

document.querySelector('[data-act="select-all"]').addEventListener("click", () => {
  const boxes = [...body.querySelectorAll("input[data-at]:not(:disabled)")];
  const all = boxes.every((each) => each.checked);
  for (const each of boxes) each.checked = !all;
  showSelected();
});
body.addEventListener("change", showSelected);
new MutationObserver(showSelected).observe(body, { childList: true });
