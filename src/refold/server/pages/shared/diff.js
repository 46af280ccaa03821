// A unified diff, without its two header lines, as a table with line numbers; what differs
// within a changed line is marked. Every character that cannot be seen is written out.

import { h } from "./dom.js";
import { exact } from "./escape.js";

const HUNK = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/;

/** Return the lines of a diff: {kind: "same" | "added" | "gone" | "hunk", old, now, text}. Pure. */
export function diffLines(text) {
  let old = 1;
  let now = 1;
  return text.split("\n").filter((row, n, all) => row || n < all.length - 1).map((row) => {
    const hunk = HUNK.exec(row);
    if (hunk) {
      [old, now] = [Number(hunk[1]), Number(hunk[2])];
      return { kind: "hunk", text: row, old, now };
    }
    const body = row.slice(1);
    if (row.startsWith("+")) return { kind: "added", now: now++, text: body };
    if (row.startsWith("-")) return { kind: "gone", old: old++, text: body };
    if (row.startsWith("@") || row.startsWith("\\")) return { kind: "hunk", text: row };
    return { kind: "same", old: old++, now: now++, text: body };
  });
}

/** Return how many lines a diff adds and removes. */
export function diffCount(text) {
  const rows = text.split("\n");
  const count = (sign) => rows.filter((row) => row.startsWith(sign)).length;
  return { added: count("+"), gone: count("-") };
}

/** Return the diff as an element. `labels` has the words of a screen reader for each kind of line. */
export function diffView(text, labels) {
  const rows = labelledRows(text, labels);
  const body = h("tbody");
  rows.forEach((row, n) => body.append(...lineOf(row, marked(rows, n), labels)));
  return h("div", { class: "diff", tabindex: "0", role: "region", "aria-label": labels.diff },
    h("table", {}, body));
}

function lineOf(row, words, labels) {
  if (row.kind === "hunk") return hunkOf(row, 3, labels);
  const sign = { added: "+", gone: "−", same: "" }[row.kind];
  const said = { added: labels.added, gone: labels.gone, same: "" }[row.kind];
  return [h("tr", { class: row.kind },
    h("td", { class: "number" }, row.now ?? row.old),
    h("td", { class: "sign" }, sign && h("span", { "aria-hidden": "true" }, sign),
      said && h("span", { class: "unseen" }, said)),
    h("td", { class: "text" }, words))];
}

/** The row of a hunk over all columns, or none where the labels have no words for it. */
export function hunkOf(row, span, labels) {
  const words = labels.hunk(row);
  return words ? [h("tr", { class: "hunk" }, h("td", { colspan: String(span) }, exact(words)))] : [];
}

/** The rows of a diff. Where all lines end as on Windows, only the labels of developers want to see that. */
export function labelledRows(text, labels) {
  const rows = diffLines(text);
  const isAlike = rows.every((row) => row.kind === "hunk" || row.text.endsWith("\r"));
  return labels.lineEnds || !isAlike ? rows : rows.map((row) => ({ ...row, text: row.text.replace(/\r$/, "") }));
}

/** Return the text of line `n`, with marks around what differs from its partner. */
export function marked(rows, n) {
  const { text } = rows[n];
  const [from, to] = marks(rows, n);
  return to > from ? [exact(text.slice(0, from)), h("mark", {}, exact(text.slice(from, to))), exact(text.slice(to))] : [exact(text)];
}

// If one line was replaced by one line: the part between their common beginning and end.
function marks(rows, n) {
  const other = partner(rows, n);
  if (!other) return [0, 0];
  const [a, b] = [rows[n].text, other.text];
  let from = 0;
  while (from < a.length && from < b.length && a[from] === b[from]) from += 1;
  let end = 0;
  while (end < a.length - from && end < b.length - from && a.at(-1 - end) === b.at(-1 - end)) end += 1;
  const changed = a.length - end - from;
  return changed > 0 && from + end > 0 && changed < a.length * 0.8 ? [from, a.length - end] : [0, 0];
}

function partner(rows, n) {
  const row = rows[n];
  if (row.kind === "same" || row.kind === "hunk") return null;
  const step = row.kind === "gone" ? 1 : -1;
  const far = row.kind === "gone" ? "added" : "gone";
  let size = 0;
  while (rows[n + step * size]?.kind === row.kind) size += 1;
  let first = n; // of the run of lines that this one stands in
  while (rows[first - 1]?.kind === row.kind) first -= 1;
  let last = n;
  while (rows[last + 1]?.kind === row.kind) last += 1;
  const run = last - first + 1;
  const found = rows[n + step * run];
  return found?.kind === far ? found : null;
}
