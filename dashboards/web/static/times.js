// Times as they are typed. The API takes one without a zone as UTC; typed, it means the zone that the page shows.

import { zone } from "./dom.js";

const BARE = /^\s*(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?))?\s*$/i;

export const taken = () => `a length of time ago (90s, 30m, 1h, 2d, 1w), now, or a time such as 2026-01-31T12:00, read in ${zone()} unless ` +
  "it ends in a zone of its own (Z, +02:00)";

// With the offset that the browser's zone has at that time, so that a link means the same to somebody else.
export function withZone(text) {
  const [, day, time = "00:00"] = BARE.exec(text) ?? [];
  const minutes = day ? new Date(`${day}T${time.slice(0, 8)}`).getTimezoneOffset() : Number.NaN;
  if (Number.isNaN(minutes)) return text;  // no such day: the API says so
  const size = Math.abs(minutes), two = (n) => String(n).padStart(2, "0");
  return `${text.trim()}${minutes > 0 ? "-" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

// What stands in a link without a zone is UTC, and is shown as that.
export const shownZone = (text) => (BARE.test(text) ? `${text.trim()}Z` : text);

// FROM..TO; a run's name stays as it is.
export const each = (text, change) => (text.includes("..") ? text.split("..").map(change).join("..") : text);
