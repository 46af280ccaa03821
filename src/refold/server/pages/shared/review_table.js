// A diff as a table for a review: one column of text or two side by side, and a button at each
// line, which opens a comment. `diff.js` has the smaller one of a call.

import { hunkOf, labelledRows, marked } from "./diff.js";
import { h } from "./dom.js";

/**
 * `comment(place, row)` is called with the side, line and text of the line, and its row.
 * The result has `element`, how many rows are `hidden` above the `limit`, and `anchors` by
 * "side line": {row, text}.
 */
export function reviewTable(text, { split, limit, labels }, comment) {
  const every = labelledRows(text, labels);
  const rows = every.slice(0, limit);
  const table = { anchors: new Map(), labels, comment };
  const body = h("tbody", {}, split ? pairs(rows).flatMap((pair) => twoSides(pair, rows, table))
    : rows.flatMap((row, n) => oneSide(row, n, rows, table)));
  const element = h("div", { class: `review-diff${split ? " is-split" : ""}`, tabindex: "0", role: "region", "aria-label": labels.diff }, h("table", {}, columns(split), body));
  return { element, hidden: every.length - rows.length, anchors: table.anchors };
}

// The first row may be over all columns, so these have the widths.
function columns(split) {
  const names = split ? ["number", "sign", "text", "number", "sign", "text"] : ["number", "number", "sign", "text"];
  return h("colgroup", {}, names.map((name) => h("col", { class: name })));
}

function oneSide(row, n, rows, table) {
  if (row.kind === "hunk") return hunkOf(row, 4, table.labels);
  const made = h("tr", { class: row.kind });
  const side = row.kind === "gone" ? "old" : "now";
  made.append(number(row, side, made, table, "old"), number(row, side, made, table, "now"), ...content(row, n, rows, table));
  return made;
}

function twoSides([left, right], rows, table) {
  if (rows[left]?.kind === "hunk") return hunkOf(rows[left], 6, table.labels);
  const made = h("tr", {});
  for (const [side, n] of [["old", left], ["now", right]]) {
    if (n === undefined) made.append(...["number", "sign", "text"].map((name) => h("td", { class: `${name} blank` })));
    else {
      const row = rows[n];
      const own = row.kind === "same" ? "now" : side; // one button is enough for a line that is the same
      const cells = [number(row, own, made, table, side), ...content(row, n, rows, table)];
      for (const cell of cells) cell.classList.add(row.kind);
      made.append(...cells);
    }
  }
  return made;
}

/** Return the cell with the number of a line in one version; that of `side` opens a comment. */
function number(row, side, made, table, column) {
  const line = row[column];
  const cell = h("td", { class: "number" });
  if (line === undefined) return cell;
  if (column !== side) return h("td", { class: "number" }, line);
  const place = { side, line, text: row.text };
  table.anchors.set(`${side} ${line}`, { row: made, text: row.text });
  cell.append(h("button", { type: "button", class: "review-line", "aria-label": table.labels.comment(line), on: { click: () => table.comment(place, made) } }, line));
  return cell;
}

function content(row, n, rows, { labels }) {
  const sign = { added: "+", gone: "−" }[row.kind];
  const said = { added: labels.added, gone: labels.gone }[row.kind];
  return [h("td", { class: "sign" }, sign ? [h("span", { "aria-hidden": "true" }, sign), h("span", { class: "unseen" }, said)] : null),
    h("td", { class: "text" }, marked(rows, n))];
}

/** Return pairs of indexes: an equal line beside itself, removed lines beside added lines. Pure. */
export function pairs(rows) {
  const made = [];
  let n = 0;
  while (n < rows.length) {
    if (rows[n].kind !== "gone" && rows[n].kind !== "added") {
      made.push([n, n]);
      n += 1;
      continue;
    }
    const gone = run(rows, n, "gone");
    const added = run(rows, n + gone, "added");
    for (let at = 0; at < Math.max(gone, added); at += 1) {
      made.push([at < gone ? n + at : undefined, at < added ? n + gone + at : undefined]);
    }
    n += gone + added;
  }
  return made;
}

function run(rows, from, kind) {
  let size = 0;
  while (rows[from + size]?.kind === kind) size += 1;
  return size;
}
