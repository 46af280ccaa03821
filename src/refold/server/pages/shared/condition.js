// What a page says of a conversation at this moment, in one place: it joins what its documents
// fold to with its connection. A server that does not answer, a device without a network, a disk
// that is full and a turn that was cut off look different, and none of them like work.

import { fill, h } from "./dom.js";
import { waiting } from "./reducer.js";

/** The connection of no conversation. */
export const NO_LINE = { name: "none", seconds: 0, why: "", hasNetwork: true, lost: false };

/**
 * A line has name: "none", "connecting", "online", "offline" or "reading"; seconds until it is
 * tried again; why, if the server said it; hasNetwork; and lost, from when it broke until it is there again: what is shown
 * meanwhile is what was known before.
 */
export function lineAfter(before, name, seconds = 0, hasNetwork = navigator.onLine) {
  return { name, seconds, hasNetwork, lost: name === "offline" || (name === "connecting" && before.lost) };
}

/** Return what a conversation of the list does; "unknown" if it ran when the connection was lost. */
export const activityOf = (activity, line) => (line.lost && activity === "running" ? "unknown" : activity);

/**
 * The condition has name, words for what is done now, and works: is it
 * at work, and can be stopped?
 */
export function conditionOf(screen, line, t) {
  const { requests, plan } = waiting(screen);
  const still = (name) => ({ name, words: "", works: false, asks: false, seconds: line.seconds, reason: screen.problem });
  if (line.lost) return { ...still(line.hasNetwork ? "no_server" : "no_network"), reason: line.why };
  if (screen.cutOff) return still("cut_off");
  if (screen.turn && screen.problem) return still("problem");
  const asks = Boolean(requests.length || plan);
  return {
    ...still(screen.turn ? "at_work" : "at_rest"), asks, works: Boolean(screen.turn),
    words: asks ? t.doing.asked : statusWords(screen, t.doing),
  };
}

/** The line above the message box that says what is wrong, and what can be done about it. */
export class ConditionBar {
  /** `goOn()` continues the turn. */
  constructor(texts, goOn) {
    this.texts = texts;
    this.goOn = h("button", { type: "button", class: "button primary", on: { click: goOn } }, texts.continue);
    this.words = h("p", { role: "status" });
    this.when = h("span", { class: "when-again" });
    this.element = h("div", { class: "notice condition", hidden: true }, this.words, this.when, this.goOn);
  }

  show({ name, seconds, reason }, readOnly) {
    const t = this.texts.conditions;
    const words = { no_server: reason ? t.serverSays(reason) : t.noServer, no_network: t.noNetwork, cut_off: this.texts.crashed, problem: t.problem(reason) }[name] ?? "";
    this.element.hidden = !words || (readOnly && name === "cut_off");
    this.element.dataset.name = name;
    if (this.words.textContent !== words) fill(this.words, words);
    this.when.textContent = name.startsWith("no_") ? t.again(seconds) : "";
    this.goOn.hidden = readOnly || !["cut_off", "problem"].includes(name);
  }
}

/** Return what the conversation does now, in words. */
function statusWords(screen, t) {
  if (!screen.turn && !screen.status.doing.startsWith("requesting")) return "";
  const { doing, reason, seconds, tries, attempt, attempts } = screen.status;
  if (screen.stopped) return t.stopping ?? "";
  if (doing === "waiting") return t.retry(reason, seconds, attempt || tries + 1, attempts);
  if (doing.startsWith("writing a call of ")) return t.coming(doing.slice(18));
  if (doing.startsWith("requesting a ")) return t.purpose(doing.slice(13));
  if (doing === "running") {
    const call = screen.open.findLast((b) => b.stage === "running");
    return call && t.coming ? (t.runningTool?.(call.tool) ?? t.running) : t.running;
  }
  if (doing) return t[doing] ?? doing;
  return screen.coming.length ? t.answering : t.thinking;
}
