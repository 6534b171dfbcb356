// @ts-check
// Numbers, times and ids as people read them, in the language of their browser.

const number = new Intl.NumberFormat();
const short = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const ago = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "short" });

/** @param {number | null | undefined} value */
export function count(value) {
  return value === null || value === undefined ? "–" : number.format(value);
}

/** 12345 as 12.3K. @param {number | null | undefined} value */
export function compact(value) {
  return value === null || value === undefined ? "–" : short.format(value);
}

/**
 * A time as the interface has it: seconds, or ISO 8601.
 * @param {number | string | null | undefined} value @returns {Date | null}
 */
function date(value) {
  if (value === null || value === undefined || value === "") return null;
  const found = new Date(typeof value === "number" ? value * 1000 : value);
  return Number.isNaN(found.getTime()) ? null : found;
}

/** @param {number | string | null | undefined} value */
export function when(value) {
  const found = date(value);
  return found === null ? "–" : clock.format(found);
}

/** @type {[Intl.RelativeTimeFormatUnit, number][]} */
const UNITS = [["day", 86_400], ["hour", 3600], ["minute", 60], ["second", 1]];

/** How long ago something was, in words. @param {number | string | null | undefined} value */
export function since(value) {
  const found = date(value);
  if (found === null) return "–";
  const seconds = (found.getTime() - Date.now()) / 1000;
  const [unit, size] = UNITS.find(([, size]) => Math.abs(seconds) >= size) ?? ["second", 1];
  return ago.format(Math.round(seconds / size), unit);
}

/** A length of time. @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86_400)} d ${Math.round((seconds % 86_400) / 3600)} h`;
}

/** @param {number | null | undefined} value */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const step = value < 1024 ? 0 : Math.min(4, Math.floor(Math.log2(value) / 10));
  return `${(value / 1024 ** step).toFixed(step && value / 1024 ** step < 10 ? 1 : 0)} ${["B", "KiB", "MiB", "GiB", "TiB"][step]}`;
}

/** One word for one thing, another for several. @param {number} many @param {string} word */
export function plural(many, word, words = `${word}s`) {
  return `${count(many)} ${many === 1 ? word : words}`;
}
