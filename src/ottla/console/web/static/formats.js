// How numbers, sizes and times look, for what changes without a new page: as web/formats.py.
export const ABSENT = "–";
const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const COUNT_UNITS = ["", "k", "M", "G", "T"];
const DURATIONS = [[86400000, "d"], [3600000, "h"], [60000, "min"], [1000, "s"]];

function scaled(value, base, units) {
  let at = 0;
  while (Math.abs(value) >= base && at < units.length - 1) {
    value /= base;
    at += 1;
  }
  const digits = Math.abs(value) >= 100 || Number.isInteger(value) ? 0 : 1;
  return `${value.toFixed(digits)} ${units[at]}`.trimEnd();
}

function precise(value) {
  return String(Number(value.toPrecision(3)));
}

export function duration(ms) {
  if (ms < 0) return `-${duration(-ms)}`;
  if (ms < 1000) return ms >= 10 ? `${ms.toFixed(0)} ms` : `${precise(ms)} ms`;
  if (ms < 60000) return `${precise(ms / 1000)} s`;
  const parts = [];
  let left = Math.trunc(ms);
  for (const [unit, name] of DURATIONS) {
    const amount = Math.trunc(left / unit);
    left %= unit;
    if (amount || parts.length) parts.push(amount ? `${amount} ${name}` : "");
    if (parts.length === 2) break;
  }
  return parts.filter(Boolean).join(" ");
}

const FORMATS = {
  text: String,
  count: (value) => Math.round(value).toLocaleString("en-US"),
  short: (value) => scaled(value, 1000, COUNT_UNITS),
  size: (value) => scaled(value, 1024, BYTE_UNITS),
  rate: (value) => `${FORMATS.short(value)}/s`,
  size_rate: (value) => `${FORMATS.size(value)}/s`,
  percent: (value) => `${(value * 100).toFixed(0)} %`,
  duration,
  number: (value) => String(Number(value.toPrecision(Math.abs(value) < 1 ? 2 : 4))),
};

export function show(format, value) {
  if (value === null || value === undefined) return ABSENT;
  return (FORMATS[format] || String)(value);
}

// A moment in the zone of the one who looks.
export function moment(ms, seconds = true) {
  const at = new Date(ms);
  const two = (number) => String(number).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const time = `${two(at.getHours())}:${two(at.getMinutes())}`;
  return `${day} ${time}${seconds ? `:${two(at.getSeconds())}` : ""}`;
}
