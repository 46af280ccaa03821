// A file of the workspace in a dialog: images, Markdown, tables of CSV and XLSX, pages of a PDF, text, and
// HTML in a frame of its own. What is active in HTML runs only when a person asks for it, once.

import * as api from "./api.js";
import { fill, h } from "./dom.js";
import { exact, onOneLine } from "./escape.js";
import { markdown } from "./markdown.js";

const MAX_TEXT_CHARS = 200_000;
const MAX_ROWS = 500; // of a table
const MAX_COLUMNS = 100;
const MAX_CELL_CHARS = 2000;
// With a sign or in parentheses, with groups of three, a currency or a percent sign.
const NUMBER = /^[-−(]?(?:[$€£¥]|[A-Z]{3}\s)?\s?[-−]?(?:\d{1,3}(?:[.,'’\u202f]\d{3})+|\d+)?(?:[.,]\d+)?(?:\s?(?:[%$€£¥]|[A-Z]{3}))?\)?$/;
const KINDS = {
  image: /\.(png|jpe?g|gif|webp)$/i, pdf: /\.pdf$/i, html: /\.x?html?$/i, markdown: /\.(md|markdown)$/i, table: /\.(csv|tsv)$/i, workbook: /\.(xlsx|xlsm|xltx|xltm)$/i,
  text: /\.(txt|log|json|jsonl|ya?ml|toml|ini|xml|py|js|ts|css|sh|sql|c|h|cc|cpp|rs|go|java|rb|php|tex|diff|patch)$/i,
};

const kindOf = (path) => Object.keys(KINDS).find((kind) => KINDS[kind].test(path)) ?? "";

/** A button that shows a file; null where only a download makes sense. */
export function previewButton(id, path, t) {
  if (!kindOf(path)) return null;
  const name = path.split("/").pop();
  return h("button", {
    type: "button", class: "button quiet show-file", "aria-label": t.previews.showNamed(onOneLine(name)),
    on: { click: () => showFile(id, path, t) },
  }, t.previews.show);
}

function showFile(id, path, t) {
  const name = onOneLine(path.split("/").pop());
  const body = h("div", { class: "preview-body", tabindex: "0", role: "region", "aria-label": name }, t.loading);
  const dialog = h("dialog", { class: "dialog preview", "aria-label": name, on: { close: () => dialog.remove() } },
    h("header", {}, h("h2", {}, name)), body,
    h("footer", { class: "actions" },
      h("button", { type: "button", class: "button primary", autofocus: true, on: { click: () => dialog.close() } }, t.close),
      h("a", { class: "button", href: api.of(id, "files", path), download: path.split("/").pop() }, t.download)));
  document.body.append(dialog);
  dialog.showModal();
  SHOW[kindOf(path)](body, { id, path, name, t }).catch((error) => {
    fill(body, h("p", { class: "problem", role: "alert" }, t.dialogFailed(error.message)));
  });
}

const SHOW = {
  async image(body, { id, path, name }) {
    fill(body, await loaded(api.of(id, "previews", path), name));
  },
  async markdown(body, file) {
    fill(body, h("div", { class: "prose" }, markdown((await textOf(file)).slice(0, MAX_TEXT_CHARS), file.t.lines)));
  },
  async text(body, file) {
    const text = await textOf(file);
    fill(body, text.length > MAX_TEXT_CHARS ? h("p", { class: "note" }, file.t.previews.beginning) : null,
      h("pre", {}, exact(text.slice(0, MAX_TEXT_CHARS))));
  },
  async table(body, file) {
    const text = await textOf(file);
    const rows = csvRows(text, /\.tsv$/i.test(file.path) ? "\t" : separatorOf(text), MAX_ROWS + 2);
    fill(body, tableOf(rows, rows.length - 1 > MAX_ROWS, rows.some((row) => row.length > MAX_COLUMNS), file.t));
  },
  async workbook(body, { id, path, t }) {
    const read = (sheet) => api.get(`${api.of(id, "sheets", path)}?sheet=${sheet}`);
    const first = await read(1);
    const table = h("div", { role: "tabpanel", id: "sheet", "aria-labelledby": "sheet-tab-1" });
    const tabs = first.sheets.map((name, n) => h("button", {
      type: "button", role: "tab", id: `sheet-tab-${n + 1}`, "aria-controls": "sheet", on: { click: () => show(n + 1) },
    }, onOneLine(name)));
    const draw = (sheet, { rows, more_rows, more_columns }) => {
      for (const [n, tab] of tabs.entries()) {
        tab.setAttribute("aria-selected", String(n + 1 === sheet));
        tab.tabIndex = n + 1 === sheet ? 0 : -1;
      }
      table.setAttribute("aria-labelledby", `sheet-tab-${sheet}`);
      fill(table, rows.length ? tableOf(rows, more_rows || rows.length - 1 > MAX_ROWS, more_columns || rows[0].length > MAX_COLUMNS, t)
        : h("p", { class: "empty" }, t.previews.emptySheet));
    };
    let wanted = 1;
    const show = async (sheet) => {
      wanted = sheet;
      try {
        const shown = await read(sheet);
        if (wanted === sheet) draw(sheet, shown);
      } catch (error) {
        fill(table, h("p", { class: "problem", role: "alert" }, t.dialogFailed(error.message)));
      }
    };
    const list = h("div", { class: "tabs sheet-tabs", role: "tablist", "aria-label": t.previews.sheets, on: { keydown: (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = (wanted - 1 + step + tabs.length) % tabs.length;
      tabs[next].focus();
      show(next + 1);
    } } }, tabs);
    draw(1, first);
    fill(body, list, table);
  },
  async pdf(body, { id, path, name, t }) {
    const address = (page) => `${api.of(id, "previews", path)}?page=${page}`;
    const pages = Number((await api.head(address(1))).get("x-pages"));
    const paper = h("div", { class: "pdf-page" });
    const label = h("span", { role: "status" });
    const turn = (text, step) => h("button", { type: "button", class: "button", on: { click: () => show(now + step) } }, text);
    const [back, on] = [turn(t.previews.back, -1), turn(t.previews.forward, 1)];
    let now = 1;
    const show = async (page) => {
      now = page;
      back.disabled = page <= 1;
      on.disabled = page >= pages;
      label.textContent = t.previews.page(page, pages);
      try {
        const image = await loaded(address(page), t.previews.pageOf(name, page));
        if (now === page) fill(paper, image);
      } catch (error) {
        fill(paper, h("p", { class: "problem", role: "alert" }, t.dialogFailed(error.message)));
      }
    };
    fill(body, h("div", { class: "actions" }, back, label, on), paper);
    await show(1);
  },
  async html(body, { id, path, name, t }) {
    const address = api.of(id, "previews", path);
    const frame = (sandbox, query) => h("iframe", { sandbox, src: address + query, title: name, referrerpolicy: "no-referrer" });
    const run = h("button", { type: "button", class: "button", on: { click: () => {
      run.disabled = true;
      body.querySelector("iframe").replaceWith(frame("allow-scripts", "?run=true"));
    } } }, t.previews.run);
    fill(body, h("div", { class: "actions" }, run, h("span", { class: "note" }, t.previews.still)), frame("", ""));
  },
};

/** A table whose first row is its head, with notes if rows or columns are left out. Numbers stand at the right, and the name of a column above them. */
function tableOf(rows, moreRows, moreColumns, t) {
  const [head = [], ...rest] = rows.slice(0, MAX_ROWS + 1).map((row) => row.slice(0, MAX_COLUMNS).map(cellText));
  const above = (n) => isNumber(rest.find((row) => row[n])?.[n] ?? "");
  const cell = (text, number, element = "td", attributes = {}) => h(element, { ...attributes, class: number ? "number" : null }, exact(text));
  return [moreRows ? h("p", { class: "note" }, t.previews.rows(MAX_ROWS)) : null,
    moreColumns ? h("p", { class: "note" }, t.previews.columns(MAX_COLUMNS)) : null,
    h("div", { class: "prose" }, h("table", {},
      h("thead", {}, h("tr", {}, head.map((text, n) => cell(text, above(n), "th", { scope: "col" })))),
      h("tbody", {}, rest.map((row) => h("tr", {}, row.map((text) => cell(text, isNumber(text))))))))];
}

/** Is this text of a cell a number? Pure. */
export const isNumber = (text) => /\d/.test(text) && NUMBER.test(text);

const textOf = ({ id, path }) => api.get(api.of(id, "files", path));

const cellText = (cell) => (cell.length > MAX_CELL_CHARS ? `${cell.slice(0, MAX_CELL_CHARS)}…` : cell);

/** The image at this address, once it is there. */
function loaded(src, alt) {
  const image = h("img", { src, alt });
  return image.decode().then(() => image, async () => {
    await api.get(src); // says why there is none
    throw new Error(alt);
  });
}

const SEPARATORS = [",", ";", "\t"];

function separatorOf(text) {
  const [first] = text.split("\n", 1);
  const counts = SEPARATORS.map((separator) => first.split(separator).length);
  return SEPARATORS[counts.indexOf(Math.max(...counts))];
}

/** The first rows of CSV (RFC 4180), with the separator that it has. Pure. */
export function csvRows(text, separator, most) {
  const rows = [];
  let row = [];
  let cell = "";
  let quoted = false;
  const endRow = () => {
    rows.push([...row, cell]);
    [row, cell] = [[], ""];
  };
  for (let at = 0; at < text.length && rows.length < most; at += 1) {
    const char = text[at];
    if (quoted && char === '"' && text[at + 1] === '"') {
      cell += '"';
      at += 1;
    } else if (char === '"' && (quoted || !cell)) quoted = !quoted;
    else if (quoted) cell += char;
    else if (char === separator) {
      row.push(cell);
      cell = "";
    } else if (char === "\n") endRow();
    else if (char !== "\r" || text[at + 1] !== "\n") cell += char;
  }
  if ((cell || row.length) && rows.length < most) endRow();
  return rows;
}
