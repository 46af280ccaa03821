// The page around a conversation, for both skins: the list of conversations, the bar, the
// transcript, what waits for a person, the message box and the panels. A skin gives texts,
// how a block looks, and its panels.

import { Again } from "./again.js";
import * as api from "./api.js";
import { CommandOutput } from "./commands.js";
import { Composer } from "./composer.js";
import { ConditionBar, conditionOf, lineAfter, NO_LINE } from "./condition.js";
import { LEFT } from "./connection.js";
import { Conversation } from "./conversation.js";
import { ask, askChoice, field } from "./dialogs.js";
import { fill, h, icon, iconButton } from "./dom.js";
import { NEW } from "./drafts.js";
import { onOneLine } from "./escape.js";
import { FilesPanel, listFolder } from "./files.js";
import { ConversationList, isArchived, isPinned, titleOf } from "./list.js";
import { askNewChat } from "./new_chat.js";
import { askOptions } from "./options.js";
import { Meter } from "./meter.js";
import { isNode, NodeBar, rootOf } from "./nodes.js";
import { Outbox } from "./outbox.js";
import { Requests } from "./requests.js";
import { Review } from "./review.js";
import { Settings } from "./settings/dialog.js";
import { tokenButton } from "./tokens.js";
import { Transcript } from "./transcript.js";
import { ordersOf, TYPED_ORDERS } from "./typed_orders.js";

const SAY_EVERY = 400; // milliseconds between two announcements
const COMMAND = /^\/([^\s/]+)(?: ([\s\S]*))?$/; // as `command_in` of the commands
const FIRST = ["new", "plan", "options", "settings"]; // commands that need no conversation
const BESIDE = { list: "(min-width: 800px)", panel: "(min-width: 1100px)" }; // in a narrower window they cover the conversation
const TYPED = "input, textarea, select, [contenteditable]"; // what takes keys
const EFFORTS = ["low", "medium", "high", "max"];
const SAID = 600; // characters of an answer that a screen reader is told

export function startPage(skin) {
  const page = new Page(skin);
  page.start();
  return page;
}

class Page {
  constructor(skin) {
    this.skin = skin;
    this.texts = skin.texts;
    this.conversation = null;
    this.offers = {};
    this.before = null; // the screen that was shown last
    this.toSay = [];
    this.sides = { list: "open", panel: skin.panelFirst ? "open" : "closed" }; // while the window was wide
    this.build();
  }

  build() {
    const t = this.texts;
    this.said = h("div", { class: "unseen", role: "status", "aria-live": "polite" });
    this.list = new ConversationList(t, {
      open: (id) => this.pick(id), current: () => rootOf(this.conversation?.id ?? ""), changed: () => this.listChanged(),
      say: (text) => this.say(text), loggedOut: () => location.reload(),
    });
    this.nav = h("nav", { class: "side list", "aria-label": t.conversations },
      h("div", { class: "brand" }, this.skin.brand(), iconButton("close", t.closeList, () => this.toggle("list", false), { class: "icon-button only-narrow" })),
      h("button", { type: "button", class: "button primary new", on: { click: () => this.newChat() } }, icon("plus"), t.newChat),
      this.list.element,
      h("div", { class: "side-foot" }, this.themes(), api.hasPeople() ? this.person() : iconButton("gear", t.settings.title, () => this.settings.open()), h("a", { class: "other-page", href: this.skin.otherPage, on: { click: (e) => this.otherPage(e) } }, t.otherPage)));
    this.title = h("h1", { class: "title" }, t.welcome);
    this.light = h("span", { class: "light", data: { state: "none" } });
    this.menu = h("details", { class: "menu", hidden: true },
      h("summary", { "aria-label": t.conversationMenu, title: t.conversationMenu }, icon("more")), h("div", { class: "menu-list" }));
    this.panelButton = iconButton("panel", t.openPanel, () => this.toggle("panel"), { "aria-expanded": "false", "aria-controls": "panel" });
    this.meter = new Meter(t, () => this.openPanel(this.skin.meterPanel));
    this.bar = h("header", { class: "bar" },
      iconButton("menu", t.openList, () => this.toggle("list"), { "aria-controls": "list" }),
      this.title, this.meter.element, this.light,
      iconButton("diff", t.review.title, () => this.review.open(), { class: "icon-button needs-conversation not-narrow" }), this.menu, this.panelButton);
    this.scroller = h("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": t.messages });
    this.latest = h("button", { type: "button", class: "latest", hidden: true, on: { click: () => this.transcript.toEnd() } }, icon("down"), t.latest);
    this.notice = h("div", { class: "notice", hidden: true });
    this.line = NO_LINE;
    this.conditionBar = new ConditionBar(t, () => this.tried(this.order({ type: "continue" })));
    this.outbox = new Outbox(t, (message) => this.takeBack(message));
    this.requestsElement = h("div", { class: "requests", hidden: true });
    this.status = h("div", { class: "status" });
    this.chips = h("div", { class: "chips" });
    this.output = new CommandOutput(t, (id) => this.open(id));
    this.composer = new Composer(t, {
      send: (message) => this.send(message), stop: () => this.stop(), upload: (files) => this.uploadFiles(files), uploadFolder: (folder) => this.uploadFolder(folder), say: (text) => this.say(text),
      commands: () => this.commands(), files: (folder) => this.filesIn(folder), command: (text) => this.command(text), completions: (before) => this.completions(before),
    });
    this.tabs = h("div", { class: "tabs", role: "tablist", "aria-label": t.panelsLabel });
    this.panelBody = h("div", { class: "panel-body", role: "tabpanel", tabindex: "0", id: "panel-body" });
    this.panel = h("aside", { class: "side panel", id: "panel", "aria-label": t.panelsLabel },
      h("div", { class: "panel-head" }, this.tabs, iconButton("close", t.closePanel, () => this.toggle("panel", false))), this.panelBody);
    this.nav.id = "list";
    this.nodeBar = new NodeBar(this, t);
    this.main = h("main", { class: "main" }, h("div", {}, this.bar, this.nodeBar.element), h("div", { class: "reading" }, this.scroller, this.latest),
      h("div", { class: "dock" }, this.outbox.element, this.notice, this.conditionBar.element, this.requestsElement, this.output.element, this.status, this.composer.element, this.chips));
    this.app = h("div", { class: "app" }, this.nav, this.main, this.panel,
      h("div", { class: "shade", on: { click: () => { this.toggle("list", false); this.toggle("panel", false); } } }));
    document.title = t.title;
    fill(document.body, h("a", { class: "skip", href: "#message" }, t.skip), this.app, this.said);
    this.requests = new Requests(this.requestsElement, t, {
      send: (order) => this.order(order), say: (text) => this.say(text),
      directory: () => this.conversation?.screen.directory ?? "", subject: (args) => this.skin.subject(args),
      stop: () => this.stop(), composer: this.composer,
    });
    this.again = new Again(this, t);
    this.review = new Review(this, t);
    this.settings = new Settings({
      texts: t, say: (text) => this.say(text), folder: () => this.conversation?.screen.directory ?? "", modelsChanged: () => { this.composer.complain(""); return this.offerModels(); },
    });
    this.transcript = new Transcript(this.scroller, this.skin, this.context());
    this.scroller.append(this.again.element);
    this.makeTabs();
    document.addEventListener("keydown", (event) => this.key(event));
    this.scroller.addEventListener("click", (event) => { if (event.target === this.scroller) this.menu.open = false; });
    document.addEventListener("click", (event) => { if (!this.menu.contains(event.target)) this.menu.open = false; });
  }

  // Light or dark: as chosen for this page, or as the system has it.
  themes() {
    const key = `refold-theme${location.pathname}`;
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const chosen = h("select", { "aria-label": this.texts.theme, on: { change: () => {
      localStorage.setItem(key, chosen.value);
      apply();
    } } }, Object.entries(this.texts.themes).map(([name, label]) => h("option", { value: name }, label)));
    const apply = () => {
      const system = dark.matches ? "dark" : "light";
      document.documentElement.dataset.theme = chosen.value === "system" ? system : chosen.value;
    };
    chosen.value = localStorage.getItem(key) ?? this.skin.theme;
    dark.addEventListener("change", apply);
    apply();
    return chosen;
  }

  /** Return what the blocks of a skin may use. */
  context() {
    return {
      texts: this.texts, folds: new Map(),
      directory: () => this.conversation?.screen.directory ?? "",
      id: () => this.conversation?.id ?? "",
      rewind: (block) => this.tried(this.again.rewind(block)), fork: (seq) => this.fork(seq),
      editAgain: (block) => this.tried(this.again.edit(block)),
      editQueued: (block) => this.tried(this.editQueued(block)),
      readOlder: () => this.tried(this.conversation.readOlder()),
      onAtEnd: (atEnd) => { this.latest.hidden = atEnd || !this.conversation; },
      readOnly: () => this.conversation?.readOnly ?? true,
      showFiles: () => this.openPanel("files"),
      openChild: (name) => this.open(`${this.conversation.id}/${name}`),
    };
  }

  start() {
    this.app.dataset.list = isBeside("list") ? "open" : "closed";
    this.app.dataset.panel = isBeside("panel") && this.skin.panelFirst ? "open" : "closed";
    for (const side of Object.keys(BESIDE)) matchMedia(BESIDE[side]).addEventListener("change", ({ matches }) => this.resized(side, matches));
    this.panelButton.setAttribute("aria-expanded", String(this.app.dataset.panel === "open"));
    addEventListener("popstate", () => this.fromAddress());
    this.fromAddress();
    this.list.start();
  }

  fromAddress() {
    const id = new URLSearchParams(location.search).get("c");
    if (id) this.open(id, false);
    else this.leave(false);
  }

  /** Show who is logged in, their tokens, and the logout. */
  person() {
    const button = h("button", { type: "button", class: "button log-out", on: { click: async () => {
      await api.post("/auth/logout").catch(() => {});
      location.reload();
    } } }, this.texts.logOut);
    api.get("/api/me").then(({ name, subject }) => { button.title = name || subject; button.append(` (${name || subject})`); }).catch(() => {});
    return [tokenButton(this.texts), button];
  }

  otherPage(event) {
    event.preventDefault();
    location.href = `${this.skin.otherPage}${location.search}`;
  }

  // One text after the other: a screen reader reads the element when its text changes.
  say(text) {
    this.toSay.push(text);
    if (this.toSay.length > 1) return;
    const next = () => {
      fill(this.said, this.toSay[0]);
      setTimeout(() => {
        this.toSay.shift();
        if (this.toSay.length) next();
      }, SAY_EVERY);
    };
    next();
  }

  toggle(side, to) {
    const open = to ?? this.app.dataset[side] !== "open";
    this.setSide(side, open);
    const other = side === "list" ? "panel" : "list";
    if (open && !isBeside(other)) this.setSide(other, false); // one of them covers the conversation
    if (side === "list" && open) this.list.search.focus();
  }

  setSide(side, open) {
    if (this.app.dataset[side] === (open ? "open" : "closed")) return;
    const focused = this.sideElement(side).contains(document.activeElement);
    this.app.dataset[side] = open ? "open" : "closed";
    if (!open && focused) (side === "panel" ? this.panelButton : this.bar.querySelector("button")).focus();
    if (side === "list") return;
    this.panelButton.setAttribute("aria-expanded", String(open));
    if (open) this.showPanel();
  }

  sideElement(side) {
    return side === "list" ? this.nav : this.panel;
  }

  /**
   * The window has become narrower or wider: what stood beside the conversation does not cover it, unless
   * the user types there, whose keys would reach the page.
   */
  resized(side, beside) {
    if (beside) return this.setSide(side, this.sides[side] === "open");
    this.sides[side] = this.app.dataset[side];
    return this.setSide(side, this.sideElement(side).contains(document.activeElement) && document.activeElement.matches(TYPED));
  }

  // Conversations.

  pick(id) {
    this.open(id);
    this.closeListOverPage();
  }

  /** On a small screen the list covers the conversation. */
  closeListOverPage() {
    if (!isBeside("list")) this.toggle("list", false);
  }

  listChanged() {
    if (this.conversation && !this.menu.open) this.makeMenu();
    this.nodeBar.open(this.conversation?.id ?? "");
    this.setTitle();
  }

  open(id, push = true) {
    if (id === this.conversation?.id) return;
    this.drop();
    if (push) history.pushState(null, "", `?c=${encodeURIComponent(id)}`);
    this.app.dataset.at = id;
    this.app.dataset.node = isNode(id) ? "yes" : "no";
    this.nodeBar.open(id);
    this.composer.setConversation(id);
    this.conversation = new Conversation(id, {
      changed: (screen) => this.changed(screen), state: (name, seconds, why) => this.setLine(name, seconds, why),
      unsent: (messages) => this.outbox.show(messages),
      gone: () => this.gone(), held: (by) => this.held(by),
      frame: this.skin.panels.frames && (() => this.panelNow?.frame?.()),
      forked: (made) => this.forked(made), joined: () => this.joined(), older: (screen, count) => this.older(screen, count),
    });
    this.list.draw();
    this.makeMenu();
    this.showPanel();
    if (isBeside("list")) (isNode(id) ? this.scroller : this.composer.text).focus();
  }

  /** Show the conversations whose process ended in the middle of a turn, so that the user can continue one. */
  async offerCutOff(welcome) {
    const t = this.texts;
    await this.list.ready; // it has the newest of them, too
    const cards = await api.get("/api/conversations?cut_off=true&limit=20").catch(() => []);
    if (!cards.length || !welcome.isConnected) return;
    welcome.append(h("section", { class: "cut-off", "aria-label": t.cutOffOnes },
      h("h3", {}, t.cutOffOnes), h("ul", {}, cards.map((card) => h("li", {},
        h("button", { type: "button", on: { click: () => this.open(card.id) } },
          titleOf(card, t)))))));
  }

  /** If no model is set up, show how to set one up. */
  async offerModels() {
    if (api.hasPeople()) return;
    await this.list.ready; // the list is what one looks for first
    const { problem } = await api.get("/api/settings/model").catch(() => ({}));
    this.noModel?.remove();
    if (!problem || !this.welcome?.isConnected) return;
    const t = this.texts.settings.models;
    this.noModel = h("section", { class: "no-model", "aria-label": t.noneTitle }, h("h3", {}, t.noneTitle), h("p", {}, t.noneAbout),
      h("button", { type: "button", class: "button primary", on: { click: () => this.settings.open("models") } }, t.setUp));
    this.welcome.querySelector("p").after(this.noModel);
  }

  /** Show the folder of a new conversation. A click opens the choice of folders. */
  async offerFolder() {
    await this.list.ready;
    const { usual } = api.hasPeople() ? {} : await api.get("/api/folders").catch(() => ({}));
    if (!usual || this.conversation) return;
    fill(this.chips, h("button", {
      type: "button", class: "chip", title: onOneLine(usual), "aria-label": this.texts.folders.usual(onOneLine(usual)), on: { click: () => this.newChat() },
    }, icon("folder"), onOneLine(usual.split("/").pop() || usual)));
  }

  forked(made) {
    this.open(made);
    this.again.opened();
  }

  drop() {
    this.conversation?.close();
    this.conversation = null;
    this.goal = 0;
    delete this.app.dataset.at;
    this.app.dataset.node = "no";
    this.nodeBar.open("");
    this.meter.clear();
    this.before = null;
    this.offers = {};
    this.transcript.clear();
    this.transcript.atEnd = true;
    this.latest.hidden = true;
    this.again.clear();
    this.requests.clear();
    this.output.close();
    this.notice.hidden = true;
    this.outbox.show([]);
    this.line = NO_LINE;
    this.conditionBar.show({ name: "at_rest" }, false);
    for (const element of [this.status, this.chips]) {
      fill(element);
      delete element.dataset.key;
    }
    this.menu.hidden = true;
    this.welcome?.remove();
    this.composer.setRunning(false);
  }

  leave(push = true) {
    this.drop();
    this.composer.setConversation(NEW);
    if (push) history.pushState(null, "", location.pathname);
    this.title.textContent = this.texts.untitled;
    this.setTitle();
    this.setLine("none");
    this.welcome = this.skin.welcome({ use: (text) => this.composer.add(text) });
    this.scroller.append(this.welcome);
    this.transcript.atEnd = false; // it is read from its beginning
    this.scroller.scrollTop = 0;
    this.offerCutOff(this.welcome);
    this.offerModels();
    this.offerFolder();
    this.list.draw();
    this.showPanel();
    this.composer.text.focus();
  }

  gone() {
    const { id, unsent } = this.conversation;
    if (isNode(id)) this.open(rootOf(id));
    else this.leave();
    for (const { text } of unsent) this.composer.putBack(text);
    this.showNotice(this.texts.notThere);
  }

  held(by) {
    this.showNotice(this.texts.readOnly(by));
    this.composer.setRunning(false, false);
  }

  joined() {
    this.notice.hidden = true;
    this.composer.setRunning(Boolean(this.conversation.screen.turn));
  }

  showNotice(text, action = null) {
    this.notice.hidden = false;
    fill(this.notice, h("p", { role: "status" }, text), action);
  }

  setLine(name, seconds = 0, why = "") {
    const t = this.texts;
    this.line = { ...lineAfter(this.line, name, seconds), why };
    this.app.dataset.lost = this.line.lost ? "yes" : "no";
    this.light.dataset.state = name;
    fill(this.light, h("span", { class: "dot", "aria-hidden": "true" }), h("span", { class: "light-text" }, t.light[name] ?? ""));
    this.light.title = t.light[name] ?? "";
    if (this.conversation) this.showCondition(this.conversation.screen);
  }

  async newChat() {
    const offers = { presets: [], agents: [], models: [] };
    await Promise.all(Object.keys(offers).map(async (kind) => {
      try {
        offers[kind] = named(await api.get(`/api/${kind}`));
      } catch {
        offers[kind] = []; // the choice is only that of the settings
      }
    }));
    const made = await askNewChat(this.texts, offers, (wanted) => api.post("/api/conversations", wanted), this.skin.allFields);
    if (made) {
      this.pick(made.id);
      this.tell(made.notices);
    }
  }

  tell(notices) {
    if (notices?.length && this.skin.showNotices) this.showNotice(notices.join(" "));
  }

  // Orders.

  order(order) {
    if (!this.conversation) return Promise.reject(new Error(this.texts.notThere));
    return this.conversation.send(order);
  }

  /** Begin a conversation, unless one is open. */
  async begin(wanted = {}) {
    if (this.conversation) return;
    const made = await api.post("/api/conversations", wanted).catch((error) => {
      if (error.kind !== "NoModel" || api.hasPeople()) throw error;
      this.settings.open("models");
      throw new Error(this.texts.settings.models.noneYet);
    });
    this.composer.began(made.id);
    this.open(made.id);
    this.tell(made.notices);
  }

  async send({ text, images, when }) {
    await this.begin();
    this.output.close();
    this.transcript.toEnd();
    if (when === "instead" && !images.length) return this.order({ type: "interrupt", instead: text });
    if (when === "instead") await this.order({ type: "interrupt", reason: "interrupted" }); // it takes no pictures along
    const order = { type: "user_message", text, when: when === "now" ? "now" : "next", ...(images.length ? { images } : {}) };
    return this.order(order);
  }

  /** A message that waits comes back into the box, before what was typed since. */
  async editQueued(block) {
    await this.order({ type: "withdraw_message", message: block.seq });
    this.composer.putBack(block.said);
  }

  stop() {
    this.say(this.texts.stopped);
    this.tried(this.order({ type: "interrupt", reason: "interrupted" }));
  }

  async plan(rest) {
    await this.begin({ mode: "plan" });
    if (rest) await this.send({ text: rest, images: [], when: "start" });
  }

  tried(promise) {
    return promise.catch((error) => {
      if (error.kind !== LEFT) this.composer.complain(this.texts.dialogFailed(error.message));
    });
  }

  fork(seq) {
    this.tried(this.order(seq > 1 ? { type: "fork", at: seq - 1 } : { type: "fork" }));
  }

  async rename() {
    const input = h("input", { type: "text", value: this.conversation.screen.title, autofocus: true, maxlength: "200" });
    await ask({
      title: this.texts.rename, texts: this.texts, action: this.texts.save, body: field(this.texts.renamePrompt, input),
      submit: () => api.patch(api.of(this.conversation.id), { name: input.value.trim() }).then(() => true),
    });
  }

  /** Choose a model, an agent or an effort from a list; the draft stays as it is. */
  async choose(kind, label, value) {
    const offers = kind === "effort" ? EFFORTS.map((name) => ({ name, about: "" }))
      : await api.get(`/api/${kind}s`).then(named).catch(() => []);
    await askChoice(this.texts, label, value, offers, (name) => this.order({ type: `set_${kind}`, [kind]: name }));
    this.composer.text.focus();
  }

  options() {
    return askOptions(this.texts, this.conversation.screen, { limits: this.skin.limits, send: (order) => this.order(order) });
  }

  async deleteIt() {
    const id = this.conversation.id;
    const done = await ask({
      title: this.texts.delete, texts: this.texts, action: this.texts.delete, danger: true,
      body: h("p", {}, this.texts.deleteQuestion), submit: () => api.remove(api.of(id)).then(() => true),
    });
    if (done) {
      this.composer.forget(id);
      this.list.take({ changed: [], gone: [id] });
      this.leave();
    }
  }

  /** Show the menu once everything that its dialogs show is known. */
  makeMenu() {
    const t = this.texts;
    this.menu.hidden = isNode(this.conversation.id) || !this.conversation.caughtUp;
    if (this.menu.hidden) return;
    const item = (label, click) => h("button", { type: "button", on: { click: () => { this.menu.open = false; click(); } } }, label);
    const card = this.list.cards.get(this.conversation.id) ?? {};
    const mark = (what, on) => this.tried(api.patch(api.of(this.conversation.id), { [what]: on }).then(() => this.list.load()));
    fill(this.menu.querySelector(".menu-list"), item(t.rename, () => this.rename()),
      item(isPinned(card) ? t.list.unpin : t.list.pin, () => mark("pinned", !isPinned(card))),
      item(isArchived(card) ? t.list.unarchive : t.list.archive, () => mark("archived", !isArchived(card))),
      item(t.options.title, () => this.options()), item(t.review.title, () => this.review.open()), item(t.fork, () => this.fork(0)),
      Object.entries(t.exportForms).map(([form, label]) => h("a", {
        href: `${api.of(this.conversation.id, "export")}?form=${form}`, download: "", on: { click: () => { this.menu.open = false; } },
      }, `${t.export}: ${label}`)),
      item(t.delete, () => this.deleteIt()));
  }

  uploadFiles(files) {
    return this.uploading(async (id) => {
      for (const file of files) {
        const { path } = await api.putBeside(api.of(id, "files", file.name), await file.arrayBuffer());
        if (path !== file.name) this.say(this.texts.uploaded(path, file.name));
        this.composer.attachments.add({ name: path, path, size: file.size }, id);
      }
    });
  }

  /** Upload a folder under its name, or under a free name if that exists. */
  uploadFolder({ name, files }) {
    return this.uploading(async (id) => {
      const taken = new Set((await listFolder(id, "")).map((row) => row.name));
      let free = name;
      for (let n = 1; taken.has(free); n += 1) free = `${name}-${n}`;
      for (const { file, path } of files) {
        await api.putBeside(api.of(id, "files", `${free}${path.slice(name.length)}`), await file.arrayBuffer());
      }
      this.composer.attachments.add({ name: free, path: `${free}/`, files: files.length }, id);
    });
  }

  /** Return the id of the conversation that has the files now; "" if they could not be uploaded. */
  async uploading(upload) {
    try {
      await this.begin();
      const { id } = this.conversation;
      await upload(id);
      this.panelNow?.filesChanged?.();
      return id;
    } catch (error) {
      this.composer.complain(this.texts.dialogFailed(error.message));
      return "";
    }
  }

  // Suggestions and commands.

  async commands() {
    const orders = api.hasPeople() && this.conversation ? Object.keys(TYPED_ORDERS).map((name) => [name, this.texts.people.orders[name]]) : [];
    const own = Object.entries({ ...this.texts.commands, ...Object.fromEntries(orders) }).map(([name, about]) => ({ name, about }))
      .filter((c) => (this.conversation || FIRST.includes(c.name)) && (c.name !== "settings" || !api.hasPeople()));
    const there = (await this.offered("commands")).map((c) => ({ ...c, name: c.name.replace(/^\//, "") }));
    const known = new Set(own.map((c) => c.name));
    const fits = (c) => !c.group || (this.conversation && this.skin.allCommands);
    return [...own, ...there.filter((c) => !known.has(c.name) && fits(c))];
  }

  completions(before) {
    if (api.hasPeople()) return []; // they are of the folder and the settings of a machine
    return api.get(`${this.address("completions")}?before=${encodeURIComponent(before)}`).catch(() => []);
  }

  async offered(kind) {
    const { offers } = this;
    if (kind === "commands" && api.hasPeople()) return [];
    offers[kind] ??= api.get(this.address(kind)).then(named).catch(() => {
      delete offers[kind]; // it is asked again
      return [];
    });
    return offers[kind];
  }

  /** Return the commands of the conversation, or of a new one in the usual folder. */
  address(kind) {
    return this.conversation ? api.of(this.conversation.id, kind) : `/api/${kind}`;
  }

  async filesIn(folder) {
    if (!this.conversation) return [];
    return listFolder(this.conversation.id, folder.replace(/\/$/, "")).catch(() => []);
  }

  /** Return true if the text was run as a command; false if it is a message. Rejects if it cannot be run. */
  async command(text) {
    const [, name, rest] = COMMAND.exec(text) ?? [];
    if (!name) return false;
    const own = {
      new: () => this.newChat(), settings: !api.hasPeople() && (() => this.settings.open()), stop: () => this.stop(), options: () => (this.conversation ? this.options() : this.newChat()),
      rename: this.conversation && !rest && (() => this.rename()),
      export: this.conversation && (() => { this.menu.open = true; this.menu.querySelector("a").focus(); }),
      plan: !this.conversation && (() => this.tried(this.plan(rest))),
    }[name];
    if (own) {
      own();
      return true;
    }
    if (api.hasPeople()) return this.orderTyped(name, rest?.trim() ?? "");
    if (!this.conversation) {
      const { group, problem } = await api.get(`/api/commands/${encodeURIComponent(name)}`);
      if (problem) throw new Error(problem);
      if (group) throw new Error(this.texts.noConversation(name));
      await this.begin(); // a template or a skill is a message
    }
    const shown = await this.output.run(this.conversation.id, text);
    this.say(shown.slice(0, SAID));
    return true;
  }

  /** Send the orders of a command. Rejects if it has none, or if arguments are missing. */
  async orderTyped(name, words) {
    const orders = ordersOf(name, words);
    if (!orders) throw new Error(name in TYPED_ORDERS ? this.texts.people.example(`/${name} ${TYPED_ORDERS[name]}`) : this.texts.people.notHere(name));
    if (!this.conversation) throw new Error(this.texts.noConversation(name));
    for (const order of orders) await this.order(order);
    return true;
  }

  // What the screen shows.

  changed(screen) {
    const before = this.before;
    this.before = screen;
    if (this.menu.hidden) this.makeMenu();
    this.transcript.show(screen);
    this.requests.show(screen, this.conversation.readOnly);
    this.nodeBar.show(screen);
    this.meter.show(screen);
    if (!before || screen.title !== before.title || this.title.textContent === this.texts.untitled) this.showTitle(screen);
    this.showCondition(screen);
    this.again.show(screen);
    if (this.goal) {
      const { goal } = this;
      this.goal = 0;
      this.goTo(goal);
    }
    this.skin.showChips(this.chips, screen, this);
    this.panelNow?.changed?.(screen);
    this.showHolder(screen, before);
    if (this.conversation.caughtUp && before) this.tellChanges(before, screen);
  }

  /** Show a screen whose first blocks were loaded later. They are older, so nothing is announced. */
  older(screen, count) {
    if (!this.before) return;
    this.before = screen;
    this.transcript.prepend(screen, count);
    this.panelNow?.changed?.(screen);
  }

  /** Scroll to the block of an event, also to one that has to be read first, or of a subagent. */
  async goTo(seq, id = this.conversation.id) {
    if (id !== this.conversation.id) {
      this.open(id);
      this.goal = seq; // until the other one has loaded
      return;
    }
    const { conversation } = this;
    if (seq <= (conversation.screen.older?.seq ?? 0)) await this.tried(conversation.readAll());
    if (conversation === this.conversation) this.transcript.goTo(seq);
  }

  /** Show which other process has the conversation open and runs its turns. */
  showHolder(screen, before) {
    if (screen.heldBy && screen.heldBy !== before?.heldBy) this.showNotice(this.texts.alsoOpen(screen.heldBy));
    else if (!screen.heldBy && before?.heldBy) this.notice.hidden = true;
  }

  showTitle(screen) {
    const first = screen.done.items.find((b) => b.kind === "heard");
    this.title.textContent = onOneLine(screen.title || first?.said?.slice(0, 80).replace(/\s+/g, " ") || this.texts.untitled);
  }

  showCondition(screen) {
    const condition = conditionOf(screen, this.line, this.texts);
    const { readOnly } = this.conversation;
    this.conditionBar.show(condition, readOnly);
    this.app.dataset.still = condition.works ? "no" : "yes";
    if (!readOnly) this.composer.setRunning(condition.works);
    this.skin.showStatus(this.status, condition.works ? screen : { ...screen, turn: 0 }, condition.words);
    this.setTitle(condition.asks ? "(!) " : condition.works ? "… " : "");
  }

  /** Set the title of the tab: how many other conversations wait, and the state of this one. */
  setTitle(mark = this.mark ?? "") {
    this.mark = this.conversation ? mark : "";
    const elsewhere = this.list.waitElsewhere();
    const name = this.conversation ? `${this.title.textContent} · ${this.texts.product}` : this.texts.title;
    const title = `${elsewhere ? `(${elsewhere}) ` : ""}${this.mark}${name}`;
    if (title !== document.title) document.title = title;
  }

  takeBack(message) {
    this.conversation.takeBack(message.key);
    this.composer.putBack(message.text);
  }

  tellChanges(before, screen) {
    const news = screen.done.items.slice(before.done.length, screen.done.length);
    const words = news.filter((b) => b.kind === "words").at(-1);
    const over = news.find((b) => b.kind === "turn_over");
    if (words) this.say(`${this.texts.said.answer} ${spoken(words.text).slice(0, SAID)}`);
    else if (over) this.say(`${this.texts.said.over} ${this.texts.turnOver[over.outcome] ?? ""}`.trim());
    if (over || news.some((b) => b.diffs?.length)) {
      this.panelNow?.filesChanged?.();
      this.review.filesChanged();
    }
  }

  // Panels.

  makeTabs() {
    const names = Object.keys(this.texts.panels);
    this.tab = names[0];
    fill(this.tabs, names.map((name) => h("button", {
      type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "panel-body", on: { click: () => this.openPanel(name) },
    }, this.texts.panels[name])));
    this.tabs.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      this.openPanel(names[(names.indexOf(this.tab) + step + names.length) % names.length]);
      this.tabs.querySelector("[aria-selected=true]").focus();
    });
    this.markTab();
  }

  markTab() {
    for (const button of this.tabs.children) {
      const here = button.id === `tab-${this.tab}`;
      button.setAttribute("aria-selected", String(here));
      button.tabIndex = here ? 0 : -1;
      if (here) button.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
    this.panelBody.setAttribute("aria-labelledby", `tab-${this.tab}`);
  }

  openPanel(name) {
    this.tab = name;
    this.markTab();
    if (this.app.dataset.panel !== "open") this.toggle("panel", true);
    else this.showPanel();
  }

  showPanel() {
    this.panelNow = null;
    fill(this.panelBody);
    if (!this.conversation || this.app.dataset.panel !== "open") return;
    this.panelNow = this.tab === "files" ? this.filesPanel() : this.skin.panels[this.tab](this.panelBody, this);
    this.panelNow?.changed?.(this.conversation.screen);
  }

  filesPanel() {
    const panel = new FilesPanel(this.panelBody, this.texts, this.conversation.id, (text) => this.say(text));
    return { filesChanged: () => panel.show() };
  }

  // Keys for everything: they do nothing while the user types.

  key(event) {
    if (event.ctrlKey && event.key === ".") this.stop();
    else if ((event.ctrlKey || event.metaKey) && event.key === "k") {
      event.preventDefault();
      this.toggle("list", true);
    } else if (event.target.closest("textarea, input, select, dialog, .request, summary") || event.ctrlKey || event.metaKey
      || event.altKey) return;
    else if (event.key === "j") this.transcript.step(1);
    else if (event.key === "k") this.transcript.step(-1);
    else if (event.key === "G" || event.key === "End") this.transcript.toEnd();
    else if (event.key === "/" || event.key === "i") {
      event.preventDefault();
      this.composer.text.focus();
    } else if (event.key === "p") this.toggle("panel");
  }
}

/** Return Markdown as it is read aloud: without signs, and with commas between the cells of a table. */
function spoken(text) {
  const rows = text.replace(/^[ |:-]*-[ |:-]*\n/gm, "").replace(/^ *\| *| *\| *$/gm, "");
  return rows.replace(/ *\| */g, ", ").replace(/[*`]+|^#+ /gm, "");
}

const isBeside = (side) => matchMedia(BESIDE[side]).matches;

/** Return what can be chosen, each with a line about it. */
const named = (rows) => rows.map((row) => ({ name: row.name, about: row.description ?? "", group: row.group ?? "" }));
