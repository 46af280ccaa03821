// The list of conversations: what each does, in groups, with search. Older ones load while one
// scrolls; what changes comes over a socket of its own, which works with every process.

import * as api from "./api.js";
import { shortTime } from "./clock.js";
import { activityOf, lineAfter, NO_LINE } from "./condition.js";
import { Connection } from "./connection.js";
import { fill, h, icon, iconButton } from "./dom.js";
import { onOneLine } from "./escape.js";

const FIRST = "/api/conversations?limit=40"; // more than a window shows; the others come while one scrolls
const SEARCH_PAUSE = 200; // milliseconds
const DRAW_PAUSE = 100;
const VIEW_KEY = "refold-list";
const NOTIFY_KEY = "refold-notify";
const DRAWINGS = { waiting: "question", running: "arc", done: "check", failed: "close", stopped: "stop", cut_off: "retry", unknown: "more" };
const DAY = 86_400_000;

export class ConversationList {
  /** `on` has open(id), current(): an id, changed(), say(text), loggedOut(). */
  constructor(texts, on) {
    this.texts = texts;
    this.on = on;
    this.cards = new Map(); // by id, as far as they are loaded
    this.activities = new Map(); // by id, also of those that are not shown
    this.archived = false; // are those shown?
    this.next = ""; // the address of the next page
    this.beginReading = api.readings();
    this.news = null; // what has changed since the reading began that is under way
    this.line = NO_LINE;
    this.ready = new Promise((resolve) => { this.isReady = resolve; }); // the first rows are there, or cannot be had
    this.search = h("input", {
      type: "search", placeholder: texts.searchHint, "aria-label": texts.searchConversations,
      on: { input: () => this.searchSoon() },
    });
    this.view = h("select", { "aria-label": texts.list.view, on: { change: () => this.viewed() } },
      Object.entries(texts.list.views).map(([name, label]) => h("option", { value: name }, label)));
    this.view.value = localStorage.getItem(VIEW_KEY) === "folder" ? "folder" : "day";
    this.bell = iconButton("bell", texts.list.notify, () => this.switchNotices(), { "aria-pressed": String(notifies()) });
    this.rows = h("div", { class: "cards", tabindex: "-1" });
    this.end = h("div", { class: "cards-end" });
    this.near = new IntersectionObserver((seen) => seen.at(-1).isIntersecting && this.more(), { root: this.rows, rootMargin: "600px 0px" });
    this.element = [h("div", { class: "search" }, icon("search"), this.search), h("div", { class: "list-tools" }, this.view, this.bell), this.rows];
  }

  start() {
    this.load().finally(this.isReady); // what has changed until the socket is there comes with it
    this.connection = new Connection("/api/conversations/ws", {
      document: (doc) => doc.type === "sessions_changed" && this.take(doc),
      state: (name, seconds) => this.setLine(name, seconds), lost: () => this.whyLost(),
    });
  }

  setLine(name, seconds) {
    const { lost } = this.line;
    this.line = lineAfter(this.line, name, seconds);
    if (name === "online") this.ready.then(() => this.load());
    else if (lost !== this.line.lost) this.draw();
  }

  async whyLost() {
    try {
      await api.get("/api/health");
    } catch (error) {
      if (error.status !== 401) return true;
      this.on.loggedOut();
      return false;
    }
    return true;
  }

  /** Load the first page, or the results of a search. */
  async load() {
    const isLast = this.beginReading();
    this.news = [];
    const words = this.search.value.trim();
    const address = words ? `/api/conversations?q=${encodeURIComponent(words)}` : this.first();
    const { body, next } = await api.getPage(address).catch((error) => {
      if (error.status === 401) this.on.loggedOut();
      return {};
    });
    if (!isLast()) return;
    const { news } = this; // it may be newer than the answer
    this.news = null;
    if (!body || words !== this.search.value.trim()) return;
    this.cards.clear();
    this.add(words ? bySession(body) : body);
    this.next = next;
    for (const each of news) this.takeCards(each);
    this.draw();
    this.on.changed();
  }

  first() {
    return `${FIRST}${this.archived ? "&archived=true" : ""}`;
  }

  async more() {
    const address = this.next;
    if (!address || this.loading) return;
    this.loading = true;
    const { body, next } = await api.getPage(address).catch(() => ({}));
    this.loading = false;
    if (!body || address !== this.next) return;
    this.next = next;
    this.add(body);
    this.draw();
  }

  add(cards) {
    for (const card of cards) {
      this.cards.set(card.id, card);
      if (card.activity) this.activities.set(card.id, card.activity);
    }
  }

  searchSoon() {
    clearTimeout(this.searching);
    this.searching = setTimeout(() => this.load(), SEARCH_PAUSE);
  }

  viewed() {
    const archived = this.archived;
    this.archived = this.view.value === "archived";
    if (!this.archived) localStorage.setItem(VIEW_KEY, this.view.value);
    if (archived !== this.archived) this.load();
    else this.draw();
  }

  take(news) {
    this.news?.push(news);
    const begins = ({ id, activity }) => activity === "waiting" && this.activities.get(id) !== "waiting";
    for (const card of news.changed.filter(begins)) this.tell(card);
    this.takeCards(news);
    this.on.changed();
    clearTimeout(this.drawing);
    this.drawing = setTimeout(() => this.draw(), DRAW_PAUSE);
  }

  takeCards({ changed, gone }) {
    for (const card of changed) this.takeCard(card);
    for (const id of gone) {
      this.cards.delete(id);
      this.activities.delete(id);
    }
  }

  takeCard(card) {
    this.activities.set(card.id, card.activity);
    if (this.search.value.trim()) return;
    const listed = isArchived(card) === this.archived;
    const last = this.next && this.sorted().at(-1); // what is older comes with its page
    if (!listed) this.cards.delete(card.id);
    else if (this.cards.has(card.id) || !last || order(card, last) < 0) this.cards.set(card.id, card);
  }

  /** Notify the user that a conversation which is not visible waits for an answer. */
  tell(card) {
    if (card.id === this.on.current() && document.visibilityState === "visible") return;
    const said = this.texts.list.waits(titleOf(card, this.texts));
    this.on.say(said);
    if (!notifies()) return;
    const notice = new Notification(this.texts.product, { body: said, tag: card.id });
    notice.onclick = () => {
      window.focus();
      this.on.open(card.id);
      notice.close();
    };
  }

  async switchNotices() {
    const on = !notifies() && (await globalThis.Notification?.requestPermission()) === "granted";
    localStorage.setItem(NOTIFY_KEY, on ? "on" : "");
    this.bell.setAttribute("aria-pressed", String(on));
    this.on.say(on ? this.texts.list.notifyOn : this.texts.list.notifyOff);
  }

  /** Return how many other conversations wait for the user. */
  waitElsewhere() {
    const current = this.on.current();
    return [...this.activities].filter(([id, activity]) => activity === "waiting" && id !== current).length;
  }

  sorted() {
    return [...this.cards.values()].sort(order);
  }

  draw() {
    const t = this.texts;
    const searched = Boolean(this.search.value.trim());
    const groups = new Map();
    for (const card of searched ? this.cards.values() : this.sorted()) {
      const name = searched ? "" : this.groupOf(card);
      groups.set(name, [...(groups.get(name) ?? []), card]);
    }
    const focused = this.rows.contains(document.activeElement) && document.activeElement.getAttribute("href");
    const empty = searched ? t.nothingFound : this.archived ? t.list.noneArchived : t.noConversations;
    fill(this.rows, [...groups].map(([name, cards]) => h("section", { "aria-label": name || null },
      name ? h("h2", { class: "card-group", title: name }, groupTitle(name)) : null,
      h("ul", {}, cards.map((card) => h("li", {}, this.row(card)))))),
    groups.size ? null : h("p", { class: "empty" }, empty), this.end);
    this.near.unobserve(this.end); // it says anew whether the end is near
    this.near.observe(this.end);
    if (focused) this.rows.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus();
  }

  groupOf(card) {
    const t = this.texts.list;
    if (isPinned(card)) return t.pinned;
    return this.view.value === "folder" ? onOneLine(card.directory || t.noFolder) : dayOf(card.changed, t);
  }

  row(card) {
    const t = this.texts;
    const folder = this.view.value === "folder" ? "" : onOneLine(card.directory?.split("/").at(-1) ?? "");
    return h("a", {
      class: "card", href: `?c=${encodeURIComponent(card.id)}`, "aria-current": card.id === this.on.current() ? "page" : null,
      on: { click: (event) => this.pick(event, card.id) },
    }, h("span", { class: "card-title" }, titleOf(card, t)),
    h("small", {}, card.activity ? activity(activityOf(card.activity, this.line), t) : null,
      card.snippet ? onOneLine(card.snippet) : h("span", {}, ago(card.changed)),
      folder ? h("span", { class: "card-folder", title: onOneLine(card.directory) }, folder) : null));
  }

  pick(event, id) {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    this.on.open(id);
  }
}

export const isPinned = (card) => Boolean(card.tags?.includes("pinned"));
export const isArchived = (card) => Boolean(card.tags?.includes("archived"));

/** Compare two conversations: pinned ones first, then the newest, as on the server. */
function order(a, b) {
  return isPinned(b) - isPinned(a) || b.changed - a.changed || (a.id < b.id ? 1 : -1);
}

export const titleOf = (card, t) => onOneLine(card.name || card.title || t.untitled);

// The sign of an activity, with words. If nothing runs, the words are only for hovering and screen readers.
function activity(name, t) {
  const words = t.list.activities[name];
  return h("span", { class: `card-activity is-${name}`, title: words }, h("span", { class: "sign" }, icon(DRAWINGS[name])),
    h("span", { class: name === "done" ? "unseen" : "" }, words));
}

function notifies() {
  return Boolean(localStorage.getItem(NOTIFY_KEY)) && globalThis.Notification?.permission === "granted";
}

function dayOf(seconds, t) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  const when = seconds * 1000;
  if (when >= midnight) return t.today;
  if (when >= midnight - DAY) return t.yesterday;
  if (when >= midnight - 7 * DAY) return t.week;
  return new Date(when).toLocaleDateString([], { month: "long", year: "numeric" });
}

/** Return the title of a group: the end of its path. */
function groupTitle(name) {
  const parts = name.split("/");
  return parts.length > 3 ? `…/${parts.slice(-2).join("/")}` : name;
}

/** Return the hits of a search as cards: each conversation once, with its best hit. */
function bySession(hits) {
  const cards = new Map();
  for (const hit of hits) {
    if (!cards.has(hit.session_id)) cards.set(hit.session_id, { ...hit, id: hit.session_id, snippet: hit.text });
  }
  return [...cards.values()];
}

function ago(seconds) {
  if (!seconds) return "";
  return shortTime(new Date(seconds * 1000));
}
