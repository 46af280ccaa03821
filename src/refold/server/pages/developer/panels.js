// The panels of a developer: frames, model requests, the tree, usage, the timeline, todos and
// the history. Each draws into an element and may be told of changes; files, tasks, the team and background
// commands are in `shared`.

import * as api from "../shared/api.js";
import { dollars, duration, fill, h, short } from "../shared/dom.js";
import { exact, onOneLine } from "../shared/escape.js";
import { openButton } from "../shared/nodes.js";
import { historyPanel, todosPanel } from "../shared/panels.js";
import { developer as t } from "../shared/texts.js";
import { backgroundPanel, tasksPanel, teamPanel } from "../shared/work.js";

const SHOWN = 300; // rows at a time
const TIMELINE_ROWS = 500; // asked for at a time
const IN_A_ROW = 200; // pieces of one text that are one row
const PAUSE = 500; // milliseconds between two drawings, where the page is drawn anyway
const LONGEST_PAUSE = 1000; // and where it is not
const LONGEST = 20_000; // characters of a frame that are drawn

export const panels = {
  frames, requests, tree, usage, timeline,
  todos: (element) => todosPanel(element, t),
  tasks: (element, page) => tasksPanel(element, page, t),
  team: (element, page) => teamPanel(element, page, t),
  background: (element, page) => backgroundPanel(element, page, t),
  history: (element, page) => historyPanel(element, page, t),
};

/** Show a terminal with a shell of the user. Its code is loaded only if the server offers terminals. */
export function terminal(element, page) {
  import("./terminal.js").then(({ showTerminal }) => showTerminal(element, page, t))
    .catch((error) => fill(element, h("p", { class: "problem", role: "alert" }, t.dialogFailed(error.message))));
  return {};
}

function frames(element, page) {
  let paused = false;
  let drawnFor = ""; // the words of the filter
  let due = 0;
  let drawnAt = 0;
  const filter = h("input", { type: "search", placeholder: t.frameFilter, "aria-label": t.frameFilter, on: { input: () => draw() } });
  const pause = h("button", {
    type: "button", class: "button quiet", on: { click: () => {
      paused = !paused;
      pause.textContent = paused ? t.resume : t.pause;
      draw();
    } },
  }, t.pause);
  const list = h("ol", { class: "frames" });
  const count = h("span", { class: "count" });
  fill(element, h("div", { class: "panel-tools" }, filter, count, pause), list);
  let last = null; // the newest frame that is drawn
  let rows = [];
  function draw() {
    clearTimeout(due);
    due = 0;
    drawnAt = performance.now();
    const words = filter.value.trim().toLowerCase();
    const every = page.conversation?.frames ?? [];
    const fits = (frame) => !words || frame.raw.toLowerCase().includes(words);
    const from = last && words === drawnFor ? every.lastIndexOf(last) + 1 : 0;
    drawnFor = words;
    const groups = inRows(every.slice(from).filter(fits), from ? rows.at(-1) : null);
    count.textContent = short(every.length);
    last = every.at(-1) ?? null;
    if (from && !groups.length) return;
    const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
    const fresh = groups.slice(-SHOWN).map((group) => new FrameRow(group));
    rows = [...(from ? rows : []), ...fresh].slice(-SHOWN);
    if (!from) fill(list);
    list.querySelector(".empty")?.remove();
    list.append(...fresh.map((each) => each.element));
    while (list.childElementCount > SHOWN) list.firstElementChild.remove();
    if (!list.childElementCount) fill(list, h("li", { class: "empty" }, t.noFrames));
    if (atEnd) list.scrollTop = list.scrollHeight;
  }
  draw();
  list.scrollTop = list.scrollHeight;
  return {
    frame: () => { if (!paused && !due) due = setTimeout(draw, LONGEST_PAUSE); },
    changed: () => { if (due && (!rows.length || performance.now() - drawnAt > PAUSE)) draw(); },
  };
}

/** Return frames as rows. Pieces of one text are one row; pieces that continue `last` are added to it. */
function inRows(frames, last) {
  const groups = [];
  let more = 0;
  for (const frame of frames) {
    const now = groups.at(-1) ?? last?.frames;
    const goesOn = now && now.length < IN_A_ROW && !frame.seq && frame.type === now[0].type
      && frame.way === now[0].way && PIECES.has(frame.type);
    if (!goesOn) groups.push([frame]);
    else {
      now.push(frame);
      if (!groups.length) more += 1;
    }
  }
  if (more) last.show();
  return groups;
}

const PIECES = new Set(["text_delta", "thinking_delta", "tool_progress"]);

class FrameRow {
  constructor(frames) {
    const [{ way, type, seq }] = frames;
    this.frames = frames;
    this.body = h("pre", { tabindex: "0" });
    this.times = h("span", { class: "times" });
    this.size = h("span", { class: "size" });
    this.fold = h("details", { on: { toggle: () => this.showBody() } },
      h("summary", {}, h("span", { class: "way" }, way === "in" ? "↓" : "↑",
        h("span", { class: "unseen" }, way === "in" ? t.framesIn : t.framesOut)), h("span", { class: "type" }, onOneLine(type ?? ""), this.times),
      h("span", { class: "seq" }, seq ? `#${seq}` : ""), this.size), this.body);
    this.element = h("li", { class: `frame frame-${way}` }, this.fold);
    this.show();
  }

  show() {
    const size = this.frames.reduce((sum, frame) => sum + frame.raw.length, 0);
    this.times.textContent = this.frames.length > 1 ? ` ×${this.frames.length}` : "";
    this.size.textContent = `${short(size)} B`;
    this.showBody();
  }

  showBody() {
    if (!this.fold.open) return;
    const text = this.frames.length > 1 ? this.frames.map((frame) => frame.raw).join("\n") : pretty(this.frames[0].raw);
    this.body.textContent = exact(text.slice(0, LONGEST));
  }
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** A panel that reads one report of the server, again after each turn. */
function report(element, page, part, draw) {
  let turn = -1;
  const begin = api.readings();
  const read = async () => {
    const isLast = begin();
    const shown = await api.get(api.of(page.conversation.id, part)).then(draw, (error) => h("p", { class: "problem", role: "alert" }, t.dialogFailed(error.message)));
    if (page.panelNow === panel && isLast()) fill(element, shown); // another panel may have the element by now
  };
  const panel = { changed: (screen) => {
    const now = `${screen.turn} ${screen.steps} ${screen.children.length}`;
    if (now !== turn) {
      turn = now;
      read();
    }
  } };
  return panel;
}

function requests(element, page) {
  const rows = new Map(); // by the number of its event: one that is open stays open
  return report(element, page, "requests", (found) => {
    if (!found.length) return h("p", { class: "empty" }, t.noRequests);
    return h("ol", { class: "rows" }, found.toReversed().map((each) => {
      const row = rows.get(each.seq) ?? request(each, page);
      rows.set(each.seq, row);
      row.load();
      return h("li", {}, row.element);
    }));
  });
}

function request(each, page) {
  const body = h("div", { class: "fold-body" });
  let isComplete = false;
  const load = async () => {
    if (isComplete || !element.open) return;
    try {
      const whole = await api.get(api.of(page.conversation.id, "requests", String(each.seq)));
      const part = (title, value) => value ? h("section", {}, h("h3", {}, title),
        h("pre", { class: "wire", tabindex: "0" }, exact(typeof value === "string" ? pretty(value) : JSON.stringify(value, null, 2)))) : null;
      isComplete = Boolean(whole.response);
      fill(body, part(t.requestBody, whole.request), part(t.responseBody, whole.response));
    } catch (error) {
      fill(body, h("p", { class: "problem" }, t.dialogFailed(error.message)));
    }
  };
  const element = h("details", { class: "fold", on: { toggle: load } },
    h("summary", {}, h("span", { class: "seq" }, `#${each.seq}`), h("span", { class: "subject" }, onOneLine(each.target ?? ""))), body);
  return { element, load };
}

function tree(element, page) {
  return report(element, page, "tree", (root) => h("ul", { class: "tree" }, node(root, page)));
}

function node(each, page) {
  const below = each.children ?? each.below ?? [];
  return h("li", {},
    h("div", { class: "node" }, h("span", { class: `stage stage-${GOOD.has(each.status) ? "done" : each.status}` }),
      h("strong", {}, openButton(each.session_id, onOneLine(each.agent || each.address), t.node.open([...new Set([onOneLine(each.agent || each.address), each.address])].join(", ")), (id) => page.open(id))), h("span", { class: "tag" }, each.status),
      h("p", {}, onOneLine(each.title ?? "")),
      h("p", { class: "sum" }, [`${each.steps} steps`, `${each.calls} calls`, duration(each.seconds ?? 0), dollars(each.cost)].filter(Boolean).join(" · ")),
      each.activity ? h("p", { class: "now" }, onOneLine(each.activity)) : null),
    below.length ? lazyList("ul", "", below, (child) => node(child, page)) : null);
}

/** Return a list that draws its first rows, and more when the user scrolls to their end. */
function lazyList(tag, name, rows, draw) {
  const end = h("li", { class: "list-end" });
  const list = h(tag, { class: name }, end);
  let drawn = 0;
  const more = () => {
    end.before(...rows.slice(drawn, drawn + SHOWN).map(draw));
    drawn += SHOWN;
    near.unobserve(end);
    if (drawn < rows.length) near.observe(end); // it is told again whether that is near
    else end.remove();
  };
  const near = new IntersectionObserver((found) => { if (found.at(-1).isIntersecting) more(); });
  more();
  return list;
}

const GOOD = new Set(["answered", "final", "plan_ready", "done"]);

function usage(element, page) {
  return report(element, page, "usage", (found) => [
    figures(found), table(t.byTurn, found.turns, "words"), table(t.byModel, found.models, "model"),
    table(t.byPurpose, found.purposes, "purpose"),
  ]);
}

function figures(sum) {
  const u = sum.usage ?? {};
  const parts = [["input", (u.fresh ?? 0) + (u.cached ?? 0) + (u.cache_write ?? 0)], ["cached", u.cached ?? 0], ["output", u.output ?? 0]];
  return h("dl", { class: "figures" }, parts.map(([name, count]) => h("div", {}, h("dt", {}, name), h("dd", {}, short(count)))),
    h("div", {}, h("dt", {}, t.cost), h("dd", {}, dollars(sum.cost) || t.costUnknown)));
}

function table(title, rows, name) {
  if (!rows.length) return null;
  return h("section", {}, h("h3", {}, title), h("table", { class: "figures-table" },
    h("thead", {}, h("tr", {}, ["", "in", "out", t.cost].map((label) => h("th", { scope: "col" }, label)))),
    h("tbody", {}, rows.map((each) => {
      const u = each.usage;
      return h("tr", {}, h("th", { scope: "row" }, onOneLine(each[name])),
        h("td", {}, short((u.fresh ?? 0) + (u.cached ?? 0) + (u.cache_write ?? 0))), h("td", {}, short(u.output ?? 0)),
        h("td", {}, dollars(each.cost)));
    }))));
}

/** Return the id of the session of a node, whose address is "root" or begins with it. */
const idOf = (node, page) => `${page.conversation.id}${node.slice("root".length)}`;

/** Show the timeline. Rows are read as the user scrolls; the last page is read again after each step. */
function timeline(element, page) {
  const end = h("li", { class: "list-end" });
  const list = h("ol", { class: "timeline" }, end);
  fill(element, list);
  let last = { address: `${api.of(page.conversation.id, "timeline")}?limit=${TIMELINE_ROWS}`, elements: [] };
  let [next, seen, first, until, reading, again] = ["", "", Infinity, 0, false, false];

  async function read(part) {
    if (reading) return;
    reading = true;
    try {
      const found = await api.getPage(part.address);
      last = part;
      ({ next } = found);
      for (const each of part.elements) each.remove();
      part.elements = found.body.map((each) => row(each));
      end.before(...part.elements);
      list.style.setProperty("--span", Math.max(until - first, 0.001));
      end.textContent = list.childElementCount > 1 ? "" : t.noFrames;
    } catch (error) {
      end.before(h("li", { class: "problem", role: "alert" }, t.dialogFailed(error.message)));
      next = "";
    }
    reading = false;
    near.unobserve(end); // it is told again whether that is near
    if (next) near.observe(end);
    else if (again) changed();
  }

  function changed() {
    again = reading;
    if (!reading && !next) read(last);
  }

  function row(each) {
    const bar = h("span", { class: `bar-of bar-${each.kind}` });
    first = Math.min(first, each.at);
    until = Math.max(until, each.at + (each.seconds ?? 0));
    bar.style.setProperty("--from", each.at - first);
    bar.style.setProperty("--took", each.seconds ?? 0);
    return h("li", {}, h("button", { type: "button", on: { click: () => page.goTo(each.seq, idOf(each.node, page)) } },
      h("span", { class: "what" }, h("strong", {}, onOneLine(each.name || each.kind)), " ", onOneLine(each.words ?? "")),
      h("span", { class: "time" }, each.seconds === null ? "…" : duration(each.seconds)), h("span", { class: "track" }, bar)));
  }

  const near = new IntersectionObserver((found) => {
    if (found.at(-1).isIntersecting && next) read({ address: next, elements: [] });
  }, { rootMargin: "600px 0px" });
  return { changed: (screen) => {
    until = Math.max(until, screen.done.items[screen.done.length - 1]?.at ?? 0); // the newest that is known
    const now = `${screen.turn} ${screen.steps} ${screen.children.length}`;
    if (now === seen) return;
    seen = now;
    changed();
  } };
}
