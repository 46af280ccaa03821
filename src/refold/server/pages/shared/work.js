// Panels of what works beside a conversation: the task board of the project, helpers with the
// mail of the team, and commands in the background. What no document says, which is what other
// processes do on the board and what a running command prints, is read while a panel is open.

import * as api from "./api.js";
import { dollars, duration, fill, h } from "./dom.js";
import { exact, onOneLine } from "./escape.js";
import { openButton, rootOf } from "./nodes.js";

const AGAIN = 1500; // milliseconds between two looks
const TASK = 160; // characters of a helper's task that are shown
const MAIL = 30; // messages of the team that are shown

export function tasksPanel(element, page, t) {
  const root = fill(element, h("div", { class: "work" })).firstChild;
  let before = ""; // what is drawn
  let board = -1;
  async function read() {
    const { id } = page.conversation;
    let drawn;
    try {
      const tasks = await api.get(api.of(rootOf(id), "tasks"));
      const names = owners(page.conversation.screen, id, t);
      drawn = [JSON.stringify([tasks, [...names]]), () => taskList(tasks, names, t)];
    } catch (error) {
      drawn = [error.message, () => problem(error, t)];
    }
    if (drawn[0] === before || !root.isConnected) return;
    [before] = drawn;
    const open = new Set([...root.querySelectorAll("details[open]")].map((each) => each.dataset.id));
    fill(root, drawn[1]());
    for (const each of root.querySelectorAll("details")) each.open = open.has(each.dataset.id);
  }
  again(root, page, read);
  return { changed: (screen) => {
    const now = `${screen.board} ${screen.children.length}`;
    if (now === board) return;
    board = now;
    read();
  } };
}

/** Return the names of the conversation and its subagents, by which a task names its owner. */
function owners(screen, id, t) {
  const helpers = screen.children.map((c) => [`${id}/${c.name}`, c.teammate || c.name]);
  return new Map([...helpers, [id, t.work.self]]);
}

function taskList(tasks, names, t) {
  if (!tasks.length) return h("p", { class: "empty" }, t.work.noTasks);
  const open = (task) => task.status === "pending" || task.status === "in_progress";
  const order = [...tasks.filter(open), ...tasks.filter((task) => !open(task))];
  const count = (status) => tasks.filter((task) => task.status === status).length;
  return [
    h("p", { class: "sum" }, t.work.counts(count("pending"), count("in_progress"), count("done"))),
    h("ul", { class: "todos" }, order.map((task) => h("li", { class: `todo todo-${task.status}` },
      h("span", { class: "mark", "aria-hidden": "true" }), taskText(task, names, t)))),
  ];
}

function taskText(task, names, t) {
  const owner = task.owner ? onOneLine(names.get(task.owner) ?? task.owner) : "";
  const waits = task.waits_for.length ? t.work.waits(task.waits_for.map((id) => `#${id}`).join(", ")) : "";
  const head = [h("span", { class: "seq" }, `#${task.id}`), " ", h("span", { class: "task-subject" }, onOneLine(task.subject)),
    h("span", { class: "unseen" }, `: ${t.todo[task.status]}`), owner ? h("span", { class: "tag" }, owner) : null,
    waits ? h("small", { class: "waits" }, waits) : null];
  if (!task.description) return h("div", { class: "task" }, head);
  return h("details", { class: "task", data: { id: String(task.id) } }, h("summary", {}, head),
    h("p", { class: "more" }, exact(task.description)));
}

export function teamPanel(element, page, t) {
  const root = fill(element, h("div", { class: "work" })).firstChild;
  const stopping = new Set();
  const tick = () => { for (const each of root.querySelectorAll("[data-since]")) showTime(each); };
  again(root, page, tick);
  let drawn = [];
  return { changed: (screen) => {
    const now = [screen.children, screen.mail, screen.moved];
    if (now.every((each, n) => each === drawn[n])) return;
    drawn = now;
    const focus = root.contains(document.activeElement) ? document.activeElement.dataset.stops : "";
    if (!screen.children.length) return void fill(root, h("p", { class: "empty" }, t.work.noTeam));
    fill(root, h("ul", { class: "beside" }, [...screen.children].sort((a, b) => b.running - a.running)
      .map((child) => helper(child, screen, page, t, stopping))), mailList(screen.mail, t));
    tick();
    if (focus) root.querySelector(`[data-stops="${CSS.escape(focus)}"]`)?.focus();
  } };
}

function helper(child, screen, page, t, stopping) {
  const state = child.foreign ? "foreign" : !child.running ? child.status
    : child.stopped || stopping.has(child.name) ? "stopping" : child.idle ? "idle" : "works";
  const now = screen.moved.findLast((m) => m.node === child.name || m.node.startsWith(`${child.name}/`));
  const name = onOneLine(child.teammate || t.work.helper(child.name));
  const stop = child.running && state !== "stopping" ? stopButton(name, child.name, t, (button) => {
    stopping.add(child.name);
    button.disabled = true;
    page.tried(page.order({ type: "stop_child", child: child.name }));
  }) : null;
  return h("li", { class: "worker" },
    h("div", { class: "worker-head" }, dot(state), h("strong", {}, child.foreign ? name
      : openButton(`${page.conversation.id}/${child.name}`, name, t.node.open(name), (id) => page.open(id))),
      t.work.showAgents ? h("span", { class: "tag" }, onOneLine(child.agent)) : null,
      h("span", { class: "state" }, t.work.states[state] ?? state), time(child),
      h("span", { class: "time" }, dollars((child.running ? now : child)?.cost)), stop),
    h("p", { class: "about-one" }, brief(child.task)),
    child.running && now?.label ? h("p", { class: "now" }, onOneLine(now.label)) : null,
    child.reason ? h("p", { class: "why-ended" }, onOneLine(child.reason)) : null);
}

/** Return the beginning of a task, on one line. */
function brief(text) {
  const plain = text.replace(/\s+/g, " ").trim();
  return onOneLine(plain.length > TASK ? `${plain.slice(0, TASK)}…` : plain);
}

function mailList(mail, t) {
  if (!mail.length) return null;
  return h("section", { class: "mails" }, h("h3", {}, t.work.mail),
    h("ol", {}, mail.slice(-MAIL).toReversed().map((each) => h("li", {},
      h("p", { class: "mail-head" }, t.work.fromTo(onOneLine(who(each.sender, t)), onOneLine(who(each.to, t)))),
      h("p", { class: "more" }, exact(each.text))))));
}

const who = (name, t) => (name === "lead" ? t.work.self : name);

export function backgroundPanel(element, page, t) {
  const root = fill(element, h("div", { class: "work" })).firstChild;
  const empty = h("p", { class: "empty" }, t.work.noBackground);
  const list = h("ul", { class: "beside" });
  const rows = new Map();
  const ports = new Ports(page, t);
  const move = h("button", { type: "button", class: "button", hidden: true, on: { click: () => {
    page.tried(page.order({ type: "move_to_background", call_id: move.dataset.call }));
  } } }, t.work.moveHere);
  fill(root, ports.element, move, empty, list);
  again(root, page, () => { for (const each of rows.values()) each.look(); });
  let drawn = null;
  return { changed: (screen) => {
    const running = screen.open.find((b) => b.tool === "bash" && b.stage === "running");
    move.hidden = !running || page.conversation.readOnly;
    move.dataset.call = running?.id ?? "";
    ports.show(screen);
    if (screen.background === drawn) return;
    drawn = screen.background;
    empty.hidden = drawn.length > 0;
    for (const command of drawn) {
      if (!rows.has(command.name)) {
        rows.set(command.name, new Command(page, t));
        list.prepend(rows.get(command.name).element); // others keep the focus and their place
      }
      rows.get(command.name).show(command);
    }
  } };
}

/** Show the ports of a workspace elsewhere. A click forwards one to this computer. */
class Ports {
  constructor(page, t) {
    Object.assign(this, { page, t });
    this.list = h("ul", { class: "beside" });
    this.element = h("section", { class: "ports", hidden: true }, h("h3", {}, t.work.servers), this.list);
  }

  show(screen) {
    const now = `${screen.address} ${screen.ports}`;
    if (now === this.drawn) return;
    this.drawn = now;
    if (screen.address && !api.hasPeople()) this.read(); // they would be opened on the machine of the node
    else this.element.hidden = true;
  }

  async read() {
    try {
      this.draw(await api.get(api.of(this.page.conversation.id, "ports")));
    } catch (error) {
      fill(this.list, problem(error, this.t));
      this.element.hidden = false;
    }
  }

  draw(ports) {
    const focus = this.list.contains(document.activeElement) ? document.activeElement.closest("li")?.dataset.port : "";
    fill(this.list, ports.map((each) => this.row(each)));
    this.element.hidden = !ports.length;
    if (focus) this.list.querySelector(`[data-port="${focus}"] :is(a, button)`)?.focus();
  }

  row({ port, link }) {
    const { t } = this;
    const open = link ? h("a", { class: "file-link", href: link, target: "_blank", rel: "noopener noreferrer" }, t.work.visit(port))
      : h("button", { type: "button", class: "button", on: { click: () => this.open(port) } }, t.work.openPort(port));
    return h("li", { class: "worker", data: { port: String(port) } }, h("div", { class: "worker-head" }, open));
  }

  async open(port) {
    await this.page.tried(api.post(api.of(this.page.conversation.id, "ports", String(port))));
    await this.read();
  }
}

class Command {
  constructor(page, t) {
    Object.assign(this, { page, t });
    this.head = h("div", { class: "worker-head" });
    this.pre = h("pre", { tabindex: "0", role: "region", "aria-label": t.work.showOutput });
    this.more = h("p", {});
    this.details = h("details", { on: { toggle: () => this.look() } },
      h("summary", {}, t.work.showOutput), this.pre, this.more);
    this.words = h("p", { class: "about-one command" });
    this.element = h("li", { class: "worker" }, this.head, this.words, this.details);
  }

  show(command) {
    const { t, page } = this;
    if (this.command === command) return;
    this.command = command;
    const state = command.foreign ? "foreign" : command.running ? "running" : command.outcome;
    const name = onOneLine(t.work.program(command.name));
    const code = command.code ? t.work.code(command.code) : "";
    const stop = command.running ? stopButton(name, command.name, t, (button) => {
      button.disabled = true;
      page.tried(page.order({ type: "stop_background", name: command.name }))
        .then(() => { if (this.command.running) button.disabled = false; });
    }) : null;
    fill(this.head, dot(state), h("strong", {}, name),
      h("span", { class: "state" }, [t.work.states[state] ?? state, code].filter(Boolean).join(", ")), time(command), stop);
    this.words.textContent = onOneLine(command.command);
    this.look();
  }

  /** Return the part of the output that is shown. */
  async look() {
    const { command, page, t } = this;
    for (const each of this.head.querySelectorAll("[data-since]")) showTime(each);
    if (!this.details.open || this.looking) return;
    if (!command.running) {
      this.print(command.text);
      const address = command.whole && api.of(page.conversation.id, "blobs", command.whole);
      fill(this.more, address ? h("a", { class: "file-link", href: address, download: `${command.name}.txt` }, t.wholeOutput) : null);
      return;
    }
    this.looking = true;
    try {
      const found = await api.get(api.of(page.conversation.id, "background", command.name));
      if (this.command.running) this.print(found.text);
      fill(this.more);
    } catch (error) {
      fill(this.more, problem(error, t));
    } finally {
      this.looking = false;
    }
    if (!this.command.running) this.look();
  }

  /** Scroll to new output, unless the user has scrolled up. */
  print(text) {
    const { pre } = this;
    const words = text ? exact(text) : this.t.work.noOutput;
    if (pre.textContent === words) return;
    const atEnd = pre.scrollHeight - pre.scrollTop - pre.clientHeight < 40;
    pre.textContent = words;
    if (atEnd) pre.scrollTop = pre.scrollHeight;
  }
}

/** Call `look` again and again while the panel is visible and the server answers. */
function again(root, page, look) {
  const timer = setInterval(() => {
    if (!root.isConnected) clearInterval(timer);
    else if (page.conversation && page.app.dataset.lost !== "yes" && page.app.dataset.panel === "open" && document.visibilityState === "visible") look();
  }, AGAIN);
}

const problem = (error, t) => h("p", { class: "problem", role: "alert" }, t.dialogFailed(error.message));

const DOTS = { works: "running", partial: "stopped", lost: "stopped", stopping: "stopped", idle: "idle", foreign: "idle" };
const dot = (state) => h("span", { class: `stage stage-${DOTS[state] ?? state}`, "aria-hidden": "true" });

function stopButton(label, name, t, stop) {
  return h("button", {
    type: "button", class: "button stop-one", "aria-label": t.work.stopIt(label), data: { stops: name },
    on: { click: (event) => stop(event.currentTarget) },
  }, t.stop);
}

function time(each) {
  const element = h("span", { class: "time", data: each.running ? { since: String(each.at) } : {} });
  if (each.running) showTime(element);
  else if (each.endedAt > each.at && each.at) element.textContent = duration(each.endedAt - each.at);
  return element;
}

function showTime(element) {
  const since = Number(element.dataset.since);
  element.textContent = since ? duration(Math.max(0, Date.now() / 1000 - since)) : "";
}
