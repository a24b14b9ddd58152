// Where the lines of a chart's grid are: round numbers, bytes, durations, times of day.
const MINUTE = 60000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const DURATION_STEPS = [
  1000, 2000, 5000, 10000, 15000, 30000, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE,
  30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY,
  30 * DAY, 90 * DAY, 365 * DAY,
];

function roundStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].find((each) => each * power >= rough) * power;
}

function step(rough, unit) {
  if (unit === "duration" && rough > 500) {
    return DURATION_STEPS.find((each) => each >= rough) || roundStep(rough / DAY) * DAY;
  }
  if (unit === "size" || unit === "size_rate") {
    const scale = 1024 ** Math.max(0, Math.floor(Math.log(Math.max(1, rough)) / Math.log(1024)));
    return roundStep(rough / scale) * scale;
  }
  return roundStep(rough);
}

// From 0 to at least `most`, in about `count` steps.
export function valueTicks(most, unit, count) {
  const whole = ["count", "short", "size", "size_rate"].includes(unit);
  const top = most > 0 ? most : 1;
  let size = step(top / count, unit);
  if (whole) size = Math.max(1, size);
  const ticks = [];
  for (let at = 0; at < top + size * 0.999; at += size) ticks.push(at);
  return ticks;
}

const two = (number) => String(number).padStart(2, "0");

// Round times of the viewer's zone between two moments, each with its text.
export function timeTicks(from, to, count) {
  const rough = (to - from) / Math.max(1, count);
  const size = DURATION_STEPS.find((each) => each >= rough) || 365 * DAY;
  const zone = -new Date(from).getTimezoneOffset() * MINUTE;
  const ticks = [];
  for (let at = Math.ceil((from + zone) / size) * size - zone; at <= to; at += size) {
    const date = new Date(at);
    const clock = `${two(date.getHours())}:${two(date.getMinutes())}`;
    let text = size < MINUTE ? `${clock}:${two(date.getSeconds())}` : clock;
    if (size >= DAY || clock === "00:00") {
      text = `${two(date.getDate())} ${date.toLocaleString("en", { month: "short" })}`;
    }
    if (size >= 30 * DAY) text = `${date.toLocaleString("en", { month: "short" })} ${date.getFullYear()}`;
    ticks.push([at, text]);
  }
  return ticks;
}
