// Parts of the sections of the settings: rows with buttons, forms, and what went wrong.

import { h } from "../dom.js";

/** A titled part. */
export function part(title, ...children) {
  return h("section", { class: "settings-part", "aria-label": title }, h("h3", {}, title), children);
}

/** A row: what it is, a line about it, and buttons. */
export function row(title, about, ...buttons) {
  return h("li", { class: "settings-row" },
    h("div", { class: "settings-what" }, h("strong", {}, title), about ? h("small", {}, about) : null),
    h("div", { class: "settings-actions" }, buttons));
}

export const rows = (items, empty) => (items.length ? h("ul", { class: "settings-rows" }, items) : h("p", { class: "empty" }, empty));

/** Where a part says what became of what was done. */
export function outcome() {
  const element = h("p", { class: "settings-outcome", role: "status", hidden: true });
  return {
    element,
    show(text, kind = "") {
      element.className = `settings-outcome ${kind}`;
      element.hidden = !text;
      element.textContent = text;
    },
  };
}

/** A button that works once at a time. What goes wrong is shown in `into`. */
export function act(label, work, { into, page, kind = "" }) {
  const button = h("button", { type: "button", class: `button ${kind}`, on: { click: () => run(button, work, into, page) } }, label);
  return button;
}

/** A form with one button. `submit` gets the form. */
export function form(label, fields, submit, { into, page }) {
  const button = h("button", { type: "submit", class: "button primary" }, label);
  const made = h("form", { class: "settings-form", on: { submit: (event) => {
    event.preventDefault();
    run(button, () => submit(made), into, page);
  } } }, fields, button);
  return made;
}

async function run(button, work, into, page) {
  button.disabled = true;
  into.show(page.texts.settings.working);
  try {
    into.show((await work()) ?? "", "good");
  } catch (error) {
    into.show(error.message, "problem");
  }
  button.disabled = false;
  // A button that was disabled has lost the focus; the section may have been drawn again, without it.
  const at = document.activeElement;
  if (at === document.body || at?.matches("dialog")) (button.isConnected ? button : document.querySelector("#settings-body"))?.focus();
}

/** An address for the folder of the open conversation; without one, for that of the server. */
export function inFolder(address, page) {
  const folder = page.folder();
  if (!folder) return address;
  return `${address}${address.includes("?") ? "&" : "?"}folder=${encodeURIComponent(folder)}`;
}

export const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
