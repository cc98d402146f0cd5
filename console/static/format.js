// Numbers and times as people read them.

const NONE = "–";
const whole = new Intl.NumberFormat("en-US");

export const count = (value) => (value == null ? NONE : whole.format(value));

/** 12.3 k */
export function short(value) {
  if (value == null) return NONE;
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (Math.abs(value) >= size) return `${(value / (unit === "k" ? 1e3 : size)).toFixed(1)} ${unit}`;
  }
  return Math.abs(value) < 10 && !Number.isInteger(value) ? value.toFixed(1) : whole.format(Math.round(value));
}

export function bytes(value) {
  if (value == null || value < 0) return NONE;
  let unit = 0;
  while (value >= 1024 && unit < 5) {
    value /= 1024;
    unit += 1;
  }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit]}`;
}

export const rate = (value) => `${short(value)}/s`;
export const byteRate = (value) => `${bytes(value)}/s`;

export function time(ms) {
  if (ms == null || ms < 0) return NONE;
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return String(ms);
  const two = (number, width = 2) => String(number).padStart(width, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${two(date.getMilliseconds(), 3)}`;
}

export function clock(ms) {
  return new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
}

export function duration(ms) {
  if (ms == null) return NONE;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}
