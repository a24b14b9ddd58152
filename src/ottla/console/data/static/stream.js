// Lines of JSON as they come; ends when the reader cancels or leaves the page.
export async function lines(url, options, each) {
  const answer = await fetch(url, { credentials: "same-origin", ...options,
    headers: { Accept: "application/json", ...(options.headers || {}) } });
  if (!answer.ok) {
    let text = `${answer.status} ${answer.statusText}`;
    try {
      const body = await answer.json();
      text = typeof body.error === "string" ? body.error : body.error.message;
    } catch { /* not JSON: the status says it */ }
    throw new Error(text);
  }
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) if (part) each(JSON.parse(part));
  }
  if (rest) each(JSON.parse(rest));
}

// A change, or a question too long for an address: JSON there and back.
export async function send(url, body) {
  const answer = await fetch(url, { method: "POST", credentials: "same-origin", body: JSON.stringify(body),
    headers: { Accept: "application/json", "Content-Type": "application/json", "X-CSRF-Token": csrf() } });
  return answer;
}

export async function told(answer) {
  let body = null;
  try {
    body = await answer.json();
  } catch { /* not JSON: the status says it */ }
  if (body && (answer.ok || body.errors)) return body;
  const error = body && body.error;
  throw new Error((error && (error.message || error)) || `${answer.status} ${answer.statusText}`);
}

// What a change sends along: the token of the session.
export function csrf() {
  return document.querySelector('meta[name="csrf"]').content;
}

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    made.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children) made.append(child); // a string becomes a text node, never markup
  return made;
}

export function count(number) {
  return Number(number).toLocaleString("en-US");
}

export function time(milliseconds) {
  const date = new Date(milliseconds);
  if (milliseconds < 0 || Number.isNaN(date.getTime())) return "–";
  const pad = (number, width = 2) => String(number).padStart(width, "0");
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} `
    + `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`
    + `.${pad(date.getMilliseconds(), 3)}`;
}
