// API tokens of a person: the page makes one and shows it once. A terminal joins with it, and
// programs send it.

import { copyButton } from "./again.js";
import * as api from "./api.js";
import { ask, field } from "./dialogs.js";
import { h } from "./dom.js";

export function tokenButton(t) {
  return h("button", { type: "button", class: "button api-token", on: { click: () => makeToken(t) } }, t.token.title);
}

async function makeToken(t) {
  const label = h("input", { type: "text", required: true, maxlength: "100", autocomplete: "off", autofocus: true });
  const made = await ask({
    title: t.token.title, texts: t, action: t.token.make, body: field(t.token.label, label, t.token.about),
    submit: () => api.post("/api/tokens", { label: label.value.trim() }),
  });
  if (!made) return;
  const shown = h("input", { type: "text", readonly: true, value: made.token, spellcheck: "false", autofocus: true });
  await ask({
    title: t.token.title, texts: t, action: t.token.done, submit: () => true,
    body: [field(t.token.once, shown, t.token.command(location.href)), copyButton(t.token.copy, made.token, t)],
  });
}
