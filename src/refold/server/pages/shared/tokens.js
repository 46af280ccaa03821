// API tokens of a person: the page lists and revokes them, makes one and shows it once. A terminal
// joins with it, and programs send it.

import { copyButton } from "./again.js";
import * as api from "./api.js";
import { ask, field } from "./dialogs.js";
import { fill, h } from "./dom.js";
import { onOneLine } from "./escape.js";
import { row, rows } from "./settings/parts.js";

export function tokenButton(t) {
  return h("button", { type: "button", class: "button api-token", on: { click: () => makeToken(t) } }, t.token.title);
}

async function makeToken(t) {
  const label = h("input", { type: "text", required: true, maxlength: "100", autocomplete: "off", autofocus: true });
  const valid = h("div", { class: "field" });
  listTokens(valid, t);
  const made = await ask({
    title: t.token.title, texts: t, action: t.token.make, body: [field(t.token.label, label, t.token.about), valid],
    submit: () => api.post("/api/tokens", { label: label.value.trim() }),
  });
  if (!made) return;
  const shown = h("input", { type: "text", readonly: true, value: made.token, spellcheck: "false", autofocus: true });
  await ask({
    title: t.token.title, texts: t, action: t.token.done, submit: () => true,
    body: [field(t.token.once, shown, t.token.command(location.href)), copyButton(t.token.copy, made.token, t)],
  });
}

/** Show in `place` the tokens that the person has made and that are valid, each with a button to revoke it. */
async function listTokens(place, t) {
  let tokens;
  try {
    tokens = await api.get("/api/tokens");
  } catch (error) {
    fill(place, h("p", { class: "problem", role: "alert" }, t.dialogFailed(error.message)));
    return;
  }
  const valid = tokens.filter((token) => Date.parse(token.expires) > Date.now());
  fill(place, h("span", {}, t.token.valid), rows(valid.map((token) => tokenRow(token, place, t)), t.token.none));
}

function tokenRow(token, place, t) {
  const name = onOneLine(token.label);
  const revoke = async () => {
    const revoked = await ask({
      title: t.token.revoke, texts: t, action: t.token.revoke, danger: true, body: h("p", {}, t.token.revokeQuestion(name)),
      submit: () => api.remove(`/api/tokens/${encodeURIComponent(token.id)}`).then(() => true),
    });
    if (revoked) await listTokens(place, t);
  };
  const button = h("button", { type: "button", class: "button quiet", "aria-label": t.token.revokeNamed(name), on: { click: revoke } }, t.token.revoke);
  return row(name, t.token.dates(day(token.created), day(token.expires)), button);
}

const day = (date) => new Date(date).toLocaleDateString();
