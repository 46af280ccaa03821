// What waits for a person, as cards above the message box: a call to approve, questions of the
// model, a plan, changed instructions of the folder. A card shows the whole of what would be done. It is one per request: an answer
// is about the hash that was shown, and a card goes when anybody has answered. Which key answers
// says `question_keys.js`; keys in a field or on a button are those of every page.

import { approval, changeView, decidedTogether, onEnter, Together } from "./approval.js";
import { fill, h, icon, isTyping } from "./dom.js";
import { exact, hiddenIn, onOneLine } from "./escape.js";
import { markdown } from "./markdown.js";
import { CALM_SECONDS, newMenu, pressKey, typeText } from "./question_keys.js";
import { waiting } from "./reducer.js";
import { serverForm } from "./server_form.js";

let number = 0;
const newId = () => `request-${(number += 1)}`;
const CALM = CALM_SECONDS * 1000; // milliseconds
const KEYS = { Enter: "enter", Escape: "esc", ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right" };
const FIELDS = "input:not([type=radio]):not([type=checkbox]), textarea, select";

export class Requests {
  /**
   * `send(order)` is a promise; `say(text)` tells a screen reader; `stop()` stops the turn;
   * `composer` has the draft, which gets what is typed and answers nothing.
   */
  constructor(element, texts, { send, say, directory, subject, stop, composer }) {
    this.element = element;
    this.texts = texts;
    this.send = send;
    this.say = say;
    this.directory = directory;
    this.subject = subject; // the words of a call that a person reads first
    this.stop = stop;
    this.composer = composer;
    this.cards = new Map();
    this.together = new Together(this);
    element.append(this.together.element); // for good: an element that is moved loses the focus
    this.lastKey = this.keyBefore = -Infinity; // but for arrows
    document.addEventListener("keydown", (event) => this.noteKey(event), true);
  }

  noteKey(event) {
    if (event.key.startsWith("Arrow") || ["Shift", "Control", "Alt", "Meta"].includes(event.key)) return;
    [this.keyBefore, this.lastKey] = [this.lastKey, performance.now()];
  }

  show(screen, readOnly) {
    const { requests, plan, instructions } = waiting(screen);
    const wanted = new Map(requests.map((r) => [`${r.call_id} ${r.hash}`, r]));
    if (plan) wanted.set(`plan ${plan.seq}`, { type: "plan", ...plan });
    if (instructions) wanted.set(`instructions ${instructions.hash}`, { type: "instructions", ...instructions });
    for (const [key, card] of this.cards) {
      if (!wanted.has(key)) this.remove(key, card);
    }
    this.element.hidden = !wanted.size; // what is hidden cannot have the focus
    const fresh = [...wanted].filter(([key]) => !this.cards.has(key)).map(([key, request]) => {
      const card = this.card(request, readOnly);
      this.cards.set(key, card);
      this.together.element.before(card.element);
      return card;
    });
    if (!readOnly) this.showTogether();
    for (const card of fresh) {
      this.say(card.said);
      this.focusWhenCalm(card);
    }
  }

  // The bar that decides several requests stands below them.
  showTogether() {
    const cards = [...this.cards.values()];
    const group = (card) => decidedTogether(card.request, cards.map(({ request }) => request));
    for (const card of cards) this.refresh(card, group(card).length);
    const first = cards.map(group).find((requests) => requests.length > 1) ?? [];
    const focused = this.together.element.contains(document.activeElement);
    this.together.show(cards.filter((card) => first.includes(card.request)));
    if (focused && this.together.element.hidden) this.focusFirst();
  }

  /** Update the choices that can be taken. */
  refresh(card, count = card.count) {
    card.count = count;
    card.refresh?.(count);
    card.choices = card.every.filter(({ button }) => !button.hidden);
    const ids = card.choices.map(({ id, widens = false }) => ({ id, widens }));
    if (JSON.stringify(ids) !== JSON.stringify(card.menu?.choices)) card.menu = newMenu(ids, card.menu);
    this.mark(card);
  }

  // The focus moves to a card only when the user is not typing: a typed key could answer it.
  focusWhenCalm(card) {
    if (!card.element.isConnected || this.element.contains(document.activeElement)) return;
    const at = document.activeElement;
    const free = at === document.body || at === null || (at.id === "message" && !isTyping());
    const [first] = this.cards.values();
    if (free && performance.now() - this.lastKey >= CALM) {
      first.element.focus({ preventScroll: true });
      first.element.scrollIntoView({ block: "nearest" });
    }
    else if (free || isTyping()) setTimeout(() => this.focusWhenCalm(card), CALM / 2);
  }

  remove(key, card) {
    this.cards.delete(key);
    if (!card.mine) this.say(this.texts.answeredElsewhere);
    const focused = card.element.contains(document.activeElement);
    card.element.remove();
    if (focused) this.focusFirst();
  }

  /** The element with the focus is gone. A key that was meant for it must not answer the next card. */
  focusFirst() {
    const [first] = this.cards.values();
    if (first) first.shownAt = performance.now();
    (first?.element ?? document.getElementById("message"))?.focus();
  }

  clear() {
    this.cards.clear();
    this.together.show([]);
    this.element.replaceChildren(this.together.element);
    this.element.hidden = true;
  }

  card(request, readOnly) {
    const card = { request, count: 1, mine: false, shownAt: performance.now() };
    const id = newId();
    const made = {
      plan: () => this.plan(request, card), question: () => this.question(request, card),
      tool_approval_request: () => approval(request, card, this), instructions: () => this.instructions(request, card),
    }[request.type]();
    card.said = made.said;
    card.problem = h("p", { class: "problem", role: "alert", hidden: true });
    card.actions = made.actions;
    card.every = made.choices;
    card.leave = made.leave; // what Esc does
    card.menu = newMenu([], made.menu);
    this.refresh(card);
    if (readOnly) for (const button of made.actions.querySelectorAll("button")) button.disabled = true;
    card.element = h("section", {
      class: `request request-${request.type}`, role: "dialog", "aria-labelledby": id, tabindex: "-1",
      data: { call: request.call_id ?? `${request.type}-${request.seq ?? request.hash}` },
      on: { keydown: (event) => this.key(event, card) },
    },
    h("header", { class: "request-head" }, icon(made.icon), h("h2", { id }, made.title)),
    h("div", { class: "request-body", tabindex: "0" }, made.body), made.rule, card.problem, made.actions);
    return card;
  }

  key(event, card) {
    if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches(FIELDS) || (event.target.matches("button, input") && [" ", "Enter"].includes(event.key))) return;
    const named = KEYS[event.key];
    if (!named && [...event.key].length !== 1) return;
    const state = {
      typed: Boolean(this.composer.text.value),
      calm: performance.now() - Math.max(this.keyBefore, card.shownAt) >= CALM,
    };
    const done = named ? pressKey(card.menu, named, state) : typeText(card.menu, event.key, state);
    card.menu = done.menu;
    this.mark(card);
    if (done.action !== "edit") event.preventDefault();
    this.carryOut(card, done);
  }

  carryOut(card, { action, value }) {
    if (action === "answer") (card.choices.find((choice) => choice.id === value) ?? card.choices[0])?.take();
    else if (action === "draft") {
      this.composer.insert(value);
      this.focusWhenCalm(card); // once it is sent or deleted
    }
    else if (action === "write") write(card.element.querySelector("input[type=text]"), value);
    else if (action === "send") this.composer.send();
    else if (action === "leave") card.leave();
  }

  /** On a narrow screen some choices are hidden until the user opens them. */
  showRare(card) {
    card.actions.classList.add("is-whole");
    card.choices.find(({ button }) => button.matches(".is-rare"))?.button.focus();
  }

  /** Show which choice Enter would take, and the digit of each. */
  mark(card) {
    for (const [n, choice] of card.choices.entries()) {
      choice.button.classList.toggle("is-chosen", n === card.menu.selected && !card.menu.writing);
      choice.button.dataset.digit = card.menu.choices.length ? n + 1 : "";
      if (choice.button.matches(".is-chosen.is-rare")) card.actions.classList.add("is-whole");
    }
  }

  /** Return true if the answer was accepted; false if another client was first, or the error is shown. */
  async answer(card, order) {
    card.mine = true;
    const buttons = [...card.actions.querySelectorAll("button")];
    for (const button of buttons) button.disabled = true;
    try {
      await this.send(order);
      return true;
    } catch (error) {
      if (error.kind === "AlreadyAnswered") return false;
      card.mine = false;
      for (const button of buttons) button.disabled = false;
      card.problem.hidden = false;
      card.problem.textContent = this.texts.sentFailed(error.message);
      return false;
    }
  }

  // A plan.

  plan(plan, card) {
    const t = this.texts.plan;
    const shown = h("div", { class: "plan-text prose", tabindex: "0" }, markdown(plan.text, this.texts.lines));
    const text = h("textarea", {
      class: "plan-edit", rows: "14", "aria-label": this.texts.planText, hidden: true, value: plan.text,
    });
    const edit = h("button", { type: "button", class: "button quiet" }, this.texts.editPlan);
    edit.addEventListener("click", () => {
      text.hidden = !text.hidden;
      shown.hidden = !text.hidden;
      edit.textContent = text.hidden ? this.texts.editPlan : this.texts.showPlan;
      if (text.hidden) fill(shown, markdown(text.value, this.texts.lines));
      else text.focus();
    });
    const mode = h("select", { "aria-label": t.mode },
      h("option", { value: "" }, t.modeBefore), h("option", { value: "default" }, t.modeDefault),
      h("option", { value: "accept-edits" }, t.modeEdits));
    const feedback = h("input", {
      type: "text", class: "why", placeholder: t.feedback, "aria-label": t.feedback, on: { keydown: onEnter(() => judge(false)) },
    });
    const judge = (approved) => this.answer(card, {
      type: "plan_approval", plan: plan.seq, approved, feedback: approved ? "" : feedback.value,
      text: approved && text.value !== plan.text ? text.value : "", mode: approved ? mode.value : "",
    });
    const approve = h("button", { type: "button", class: "button primary", on: { click: () => judge(true) } }, t.approve);
    const reject = h("button", { type: "button", class: "button", on: { click: () => judge(false) } }, t.reject);
    const actions = h("div", { class: "actions" }, approve, edit, h("label", { class: "mode" }, `${t.mode} `, mode),
      h("span", { class: "refuse" }, feedback, reject));
    return {
      title: t.title(onOneLine(plan.title)), icon: "list", body: [shown, text], actions,
      said: this.texts.said.plan, leave: () => this.composer.text.focus(), choices: [
        { id: "y", button: approve, take: () => judge(true) },
        { id: "e", button: edit, take: () => edit.click() },
        { id: "n", button: reject, take: () => feedback.focus() },
      ],
    };
  }

  // Changed instructions of the folder, in the words of the server.

  instructions({ hash, question, use, keep, changes }, card) {
    const choices = [["n", keep, false], ["y", use, true]].map(([id, label, yes]) => {
      const take = () => this.answer(card, { type: "instructions_response", hash, use: yes });
      return { id, take, button: h("button", { type: "button", class: "button", on: { click: take } }, label) };
    });
    const body = changes.map(({ said, change }) => changeView(change, onOneLine(said), this.texts));
    const hidden = hiddenIn(changes.map(({ change }) => change.text).join("").replaceAll("\n", ""));
    return {
      title: question, icon: "shield", actions: h("div", { class: "actions" }, choices.map((choice) => choice.button)),
      body: [
        h("p", { class: "reason" }, this.texts.trustedMeanwhile), ...body,
        hidden ? h("p", { class: "warning", role: "alert" }, this.texts.hidden(hidden)) : null,
      ],
      said: `${question} ${changes.map(({ said }) => said).join(". ")}`,
      choices, leave: () => this.composer.text.focus(),
    };
  }

  // Questions of the model.

  question(request, card) {
    const { form } = request.questions[0] ?? {};
    if (form) return this.serverForm(request, form, card);
    const t = this.texts.question;
    const fields = request.questions.map((asked) => this.field(asked));
    const respond = (skip) => this.answer(card, {
      type: "question_response", call_id: request.call_id, hash: request.hash,
      answers: fields.map((field) => (skip ? "" : field.value())),
    });
    const send = h("button", { type: "button", class: "button primary", on: { click: () => respond(false) } }, t.send);
    const actions = h("div", { class: "actions" }, send,
      h("button", { type: "button", class: "button quiet", on: { click: () => respond(true) } }, t.skip));
    const who = request.who ? h("p", { class: "who" }, this.texts.asks(onOneLine(request.who))) : null;
    return {
      title: t.title, icon: "question", body: [who, ...fields.map((f) => f.element)], actions,
      said: `${this.texts.said.question} ${request.questions[0]?.question ?? ""}`,
      menu: { free_text: true }, choices: [], leave: () => respond(true),
    };
  }

  // A form of an MCP server. Closing it does not decline it.
  serverForm(request, form, card) {
    const t = this.texts.form;
    const { body, read } = serverForm(form, t);
    const respond = (action, content = {}) => this.answer(card, {
      type: "question_response", call_id: request.call_id, hash: request.hash,
      answers: [JSON.stringify({ action, ...(action === "accept" && { content }) })],
    });
    const send = () => {
      const content = read();
      if (content) respond("accept", content);
    };
    const button = (label, click, kind = "") => h("button", { type: "button", class: `button ${kind}`, on: { click } }, label);
    const accept = form.problem ? null : button(form.url ? t.opened : t.send, send, "primary");
    const decline = button(t.decline, () => respond("decline"));
    const cancel = button(t.cancel, () => respond("cancel"), "quiet");
    const who = request.who ? h("p", { class: "who" }, this.texts.asks(onOneLine(request.who))) : null;
    const title = (form.url ? t.page : t.title)(onOneLine(form.server));
    return {
      title, icon: "question", body: [who, ...body], actions: h("div", { class: "actions" }, accept, decline, cancel),
      said: `${title} ${form.message}`, choices: [], leave: () => respond("cancel"),
    };
  }

  field(asked) {
    const name = newId();
    const other = h("input", {
      type: "text", class: "other", "aria-label": asked.options.length ? this.texts.answerOther : asked.question,
      placeholder: asked.options.length ? this.texts.answerOther : this.texts.yourAnswer,
    });
    const boxes = asked.options.map((option) => h("input", {
      type: asked.many ? "checkbox" : "radio", name, value: option.label,
    }));
    const element = h("fieldset", {}, h("legend", {}, exact(asked.question)),
      asked.options.map((option, n) => h("label", { class: "option" }, boxes[n],
        h("span", {}, h("strong", {}, exact(option.label)), option.about ? h("small", {}, exact(option.about)) : null))),
      other);
    const value = () => [...boxes.filter((b) => b.checked).map((b) => b.value), other.value.trim()]
      .filter(Boolean).join(", ");
    return { element, value };
  }
}

function write(field, text) {
  if (!field) return;
  field.focus();
  field.setRangeText(text, field.selectionStart, field.selectionEnd, "end");
}
