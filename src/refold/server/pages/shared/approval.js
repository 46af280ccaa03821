// The card of a call that needs approval: the whole of what it would do, how it would run, the rule
// that a yes may grant, and the choices, in the order of the terminal. Which rules and which mode
// are offered says the server; whether a rule that a person writes covers the call, too.

import { diffCount, diffView } from "./diff.js";
import { fill, h } from "./dom.js";
import { exact, hiddenIn, onOneLine } from "./escape.js";

/** `page` has what the cards of a page share: see `Requests`. */
export function approval(request, card, page) {
  const t = page.texts.request;
  const changes = request.changes ?? [];
  const args = request.arguments ?? {};
  const why = h("input", {
    type: "text", class: "why", placeholder: t.why, "aria-label": t.why, on: { keydown: onEnter(() => respond(false)) },
  });
  const rules = new GrantedRules(request, page.texts, () => page.refresh(card));
  const respond = async (allowed, grant = "", mode = "") => {
    const words = why.value.trim();
    const done = await page.answer(card, {
      type: "tool_approval_response", call_id: request.call_id, hash: request.hash, allowed, grant,
      reason: allowed ? "" : words, ...(grant && { rule_set: rules.value() }),
    });
    if (done && mode) await page.send({ type: "set_mode", mode });
    if (done && allowed && words && !request.who) await page.send({ type: "user_message", text: words, when: "now" });
  };
  const choice = (id, label, take, { kind = "", widens = true } = {}) => ({
    id, widens, take, button: h("button", { type: "button", class: `button ${kind}`, on: { click: take } }, label),
  });
  const once = choice("y", t.allow, () => respond(true), { kind: "primary", widens: false });
  const session = choice("s", t.allowSession, () => respond(true, "session"));
  const always = choice("a", t.allowAlways, () => respond(true, "always"));
  const written = choice("w", t.writeRule, () => rules.edit(), { kind: "quiet" });
  const easier = choice("e", t.easier[request.easier_mode], () => respond(true, "", request.easier_mode));
  const refused = choice("n", t.deny, () => respond(false), { kind: "danger", widens: false });
  const together = choice("o", "", () => page.together.focus(), { kind: "quiet", widens: false });
  refused.take = () => why.focus(); // a key asks for the reason first
  card.refresh = (count) => {
    session.button.hidden = always.button.hidden = !rules.there;
    written.button.hidden = request.once;
    easier.button.hidden = !request.easier_mode;
    together.button.hidden = count < 2;
    together.button.textContent = t.decideAll(count);
    more.hidden = [written, easier, together].every(({ button }) => button.hidden);
  };
  const choices = [once, session, always, written, easier, refused, together];
  const [, , , , , no, all] = choices.map(({ button }) => button);
  const more = h("button", { type: "button", class: "button quiet more-choices", on: { click: () => page.showRare(card) } }, t.moreChoices);
  for (const { button } of [written, easier, together]) button.classList.add("is-rare");
  const actions = h("div", { class: "actions" }, choices.slice(0, 5).map(({ button }) => button), more,
    h("span", { class: "refuse" }, why, no), all);
  const hidden = hiddenIn(JSON.stringify([args, changes]).replace(/\\[nrt]/g, ""));
  const asked = t.reasonOf(request.reason);
  const title = headline(request, page);
  return {
    title, icon: "shield", actions, choices, leave: () => page.stop(), said: `${page.texts.said.asks} ${title}`,
    body: [
      request.who ? h("p", { class: "who" }, page.texts.asks(onOneLine(request.who))) : null,
      t.exactly ? h("p", { class: "exactly" }, t.exactly) : null,
      ...shown(request, page),
      conditions(request.conditions, page),
      hidden ? h("p", { class: "warning", role: "alert" }, page.texts.hidden(hidden)) : null,
      asked ? h("p", { class: "reason" }, exact(asked)) : null,
    ],
    rule: request.once ? h("p", { class: "reason" }, t.once) : rules.element,
  };
}

/** The rules that a yes grants: a set that was offered, or those that a person writes, one on a line. */
class GrantedRules {
  constructor(request, texts, changed) {
    Object.assign(this, { texts, changed });
    const sets = [...request.rules.map((rule) => [rule]), ...(request.rule_set ? [request.rule_set] : [])];
    this.sets = request.once ? [] : sets;
    this.rules = this.sets[0] ?? [];
    this.start = `${request.tool ?? ""}(`;
    this.element = h("div", { class: "rule" });
    this.draw();
  }

  get there() {
    return this.value().length > 0;
  }

  value() {
    return this.field ? this.field.value.split("\n").map((line) => line.trim()).filter((line) => line && line !== this.start) : this.rules;
  }

  draw() {
    const t = this.texts.request;
    this.element.hidden = !this.rules.length;
    if (!this.rules.length) return;
    const sets = h("select", { "aria-label": t.rule, on: { change: () => { this.rules = this.sets[sets.selectedIndex]; } } },
      this.sets.map((rules) => h("option", {}, onOneLine(rules.join(", ")))));
    if (this.sets.length > 1) fill(this.element, h("label", {}, t.saved, " ", sets));
    else if (this.rules.length > 1) fill(this.element, t.savedAll, h("ul", {}, this.rules.map((rule) => h("li", {}, h("code", {}, exact(rule))))));
    else fill(this.element, t.saved, " ", h("code", {}, exact(this.rules[0])));
  }

  /** Let the user write the rules in a field. They are granted only with the answer. */
  edit() {
    if (!this.field) {
      const rows = Math.max(1, this.rules.length);
      this.field = h("textarea", {
        class: "rule-edit", rows, spellcheck: "false", autocomplete: "off", "aria-label": this.texts.request.rule,
        value: this.rules.join("\n") || this.start, on: { input: () => this.changed() },
      });
      fill(this.element, h("label", {}, this.texts.request.written, this.field));
      this.element.hidden = false;
      this.changed();
    }
    this.field.focus();
    this.field.style.height = `${this.field.scrollHeight + 2}px`; // a long rule takes several lines
    this.field.scrollTop = 0;
  }
}

/** The bar with which the requests above it are decided by one answer. */
export class Together {
  constructor(page) {
    this.page = page;
    const t = page.texts.request;
    this.why = h("input", { type: "text", class: "why", placeholder: t.whyAll, "aria-label": t.whyAll });
    this.yes = h("button", { type: "button", class: "button", on: { click: () => this.answer(true) } });
    this.no = h("button", { type: "button", class: "button danger", on: { click: () => this.answer(false) } });
    this.element = h("section", { class: "together actions", hidden: true, "aria-label": t.all },
      this.yes, h("span", { class: "refuse" }, this.why, this.no));
    this.cards = [];
  }

  /** `cards` are those of the requests that one answer may decide. */
  show(cards) {
    this.cards = cards.length > 1 ? cards : [];
    this.element.hidden = !this.cards.length;
    const t = this.page.texts.request;
    this.yes.textContent = t.allowAll(cards.length);
    this.no.textContent = t.denyAll(cards.length);
  }

  focus() {
    this.element.scrollIntoView({ block: "end" });
    this.yes.focus();
  }

  async answer(allowed) {
    const reason = allowed ? "" : this.why.value.trim();
    this.why.value = "";
    for (const card of this.cards) {
      const { call_id, hash } = card.request;
      await this.page.answer(card, { type: "tool_approval_response", call_id, hash, allowed, reason });
    }
  }
}

/** Return the requests that one answer may decide with this one: of the same agent, and not `once`. */
export function decidedTogether(request, requests) {
  if (request.type !== "tool_approval_request" || request.once) return [request];
  return requests.filter((other) => other.type === request.type && !other.once && (other.who ?? "") === (request.who ?? ""));
}

export function changeView({ text }, head, texts) {
  const { added, gone } = diffCount(text);
  return h("div", { class: "change" },
    h("p", { class: "change-head" }, h("span", { class: "path" }, head),
      h("span", { class: "plus" }, `+${added}`), h("span", { class: "minus" }, `−${gone}`)),
    diffView(text, texts.lines));
}

/** Return a handler that calls `act` at Enter, unless an input method composes the line. */
export function onEnter(act) {
  return (event) => {
    if (event.key !== "Enter" || event.isComposing) return;
    event.preventDefault();
    act();
  };
}

function headline({ tool = "", changes = [] }, page) {
  const t = page.texts.request;
  if (changes.length > 1) return t.several(changes.length);
  if (!changes.length) return t.title(onOneLine(tool));
  return { created: t.create, changed: t.edit, deleted: t.remove }[changes[0].kind](near(changes[0].path, page));
}

function near(path, page) {
  const here = page.directory();
  return onOneLine(here && path.startsWith(`${here}/`) ? path.slice(here.length + 1) : path);
}

// Show the whole call: its changes to files, or its arguments, the most important first.
function shown({ changes = [], arguments: args = {} }, page) {
  if (changes.length) return changes.map((change) => changeView(change, near(change.path, page), page.texts));
  if (typeof args !== "object" || args === null) return [h("pre", { class: "whole" }, exact(String(args)))];
  const main = page.subject(args);
  const rest = Object.entries(args).filter(([key]) => key !== main);
  return [
    main ? h("pre", { class: "whole", tabindex: "0" }, exact(String(args[main]))) : null,
    rest.length ? h("dl", { class: "arguments" }, rest.map(([key, value]) => [
      h("dt", {}, onOneLine(key)),
      h("dd", {}, exact(typeof value === "string" ? value : JSON.stringify(value, null, 1)))])) : null,
  ];
}

/** Show how a command would run: its sandbox, the hosts it can reach, and protected files it may change. */
function conditions(how, page) {
  if (!how) return null;
  const t = page.texts.request.conditions;
  const reach = !how.network ? t.offline : how.hosts ? t.hosts(onOneLine(how.hosts)) : t.everyHost;
  const danger = !how.sandboxed || (how.network && !how.hosts);
  return h("ul", { class: "conditions" },
    h("li", { class: danger ? "warning" : "" }, how.sandboxed ? `${t.sandboxed}${reach}` : t.unsandboxed),
    how.opened.map((path) => h("li", { class: "warning" }, t.mayWrite(near(path, page)))),
    how.shown.map((path) => h("li", { class: "warning" }, t.mayRead(near(path, page)))));
}
