// What a conversation has cost, and how full its context is: in the bar beside the title.

import { dollars, fill, h } from "./dom.js";

const NEARLY_FULL_PERCENT = 80;

export class Meter {
  /** `open()` shows more of it. */
  constructor(texts, open) {
    this.texts = texts;
    this.ring = h("span", { class: "ring", "aria-hidden": "true" });
    this.percent = h("span", { class: "percent" });
    this.cost = h("span", {});
    this.element = h("button", { type: "button", class: "meter", hidden: true, on: { click: open } }, this.ring, this.percent, this.cost);
  }

  clear() {
    this.element.hidden = true;
    this.key = "";
  }

  show({ context, cost, usage }) {
    const t = this.texts.meter;
    const percent = context.window && context.tokens ? Math.min(100, Math.max(1, Math.round((100 * context.tokens) / context.window))) : 0;
    const spent = usage.input + usage.output ? dollars(cost) : "";
    const key = `${percent} ${spent}`;
    if (key === this.key) return;
    this.key = key;
    this.element.hidden = !percent && !spent;
    const label = [percent && t.full(percent), spent && t.cost(spent)].filter(Boolean).join(" ");
    this.element.title = label;
    this.element.setAttribute("aria-label", label);
    this.ring.hidden = !percent;
    this.ring.style.setProperty("--full", `${percent}%`);
    this.ring.classList.toggle("is-full", percent >= NEARLY_FULL_PERCENT);
    fill(this.percent, percent ? `${percent} %` : "");
    fill(this.cost, spent);
  }
}
