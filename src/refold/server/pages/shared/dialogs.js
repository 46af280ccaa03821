// Dialogs over the page: a name, going back, and yes or no. Each is a native
// `dialog`, which keeps the focus inside, closes with Escape and gives the focus back.

import { h, iconButton } from "./dom.js";

/** Ask in a dialog. `submit` may throw: then what it says is shown, and the dialog stays. */
export function ask({ title, body, action, submit, texts, danger = false }) {
  return new Promise((resolve) => {
    const problem = h("p", { class: "problem", role: "alert", hidden: true });
    const go = h("button", { type: "submit", class: `button ${danger ? "danger" : "primary"}` }, action);
    const dialog = h("dialog", { class: "dialog", "aria-label": title, on: { close: () => done(null) } },
      h("form", {
        on: {
          submit: async (event) => {
            event.preventDefault();
            go.disabled = true;
            try {
              done(await submit());
            } catch (error) {
              problem.hidden = false;
              problem.textContent = texts.dialogFailed(error.message);
              go.disabled = false;
            }
          },
        },
      },
      h("header", {}, h("h2", {}, title), iconButton("close", texts.close, () => dialog.close())),
      h("div", { class: "dialog-body" }, body), problem,
      h("footer", { class: "actions" }, go,
        h("button", { type: "button", class: "button quiet", on: { click: () => dialog.close() } }, texts.cancel))));
    let over = false;
    const done = (value) => {
      if (over) return;
      over = true;
      dialog.close(); // gives the focus back
      dialog.remove();
      resolve(value);
    };
    document.body.append(dialog);
    dialog.showModal();
    dialog.querySelector("[autofocus]")?.focus();
  });
}

/** A labelled field. */
export function field(label, input, hint = "") {
  return h("label", { class: "field" }, h("span", {}, label), input, hint ? h("small", {}, hint) : null);
}

export function checkbox(label, name, checked = false) {
  return h("label", { class: "check" }, h("input", { type: "checkbox", name, checked }), h("span", {}, label));
}

/** A choice. `options` are pairs of value and label. */
export function choice(name, options, value = "") {
  return h("select", { name }, options.map(([key, label]) =>
    h("option", { value: key, selected: key === value }, label)));
}

/** Choose one of `offers`, or type another name. */
export function askChoice(texts, label, value, offers, submit) {
  const list = h("datalist", { id: "offers" }, offers.map((offer) => h("option", { value: offer.name }, offer.about)));
  const input = h("input", {
    type: "text", value, list: list.id, autocomplete: "off", spellcheck: "false", autofocus: true, required: true,
    on: { focus: () => input.select() },
  });
  return ask({
    title: label, texts, action: texts.save, body: [field(label, input), list],
    submit: async () => {
      await submit(input.value.trim());
      return true;
    },
  });
}

/** Go back to before a message. `submit` gets which of conversation and files, and what becomes of
 * files that others have changed. Resolves to the first, or null. */
export function askRewind(texts, submit, whats = Object.keys(texts.rewindWhat)) {
  const what = radios("what", Object.entries(texts.rewindWhat).filter(([name]) => whats.includes(name)));
  const drift = radios("drift", Object.entries(texts.rewindDrift));
  const others = h("fieldset", {}, h("legend", {}, texts.rewindOthers), drift.labels);
  const show = () => { others.hidden = what.value() === "conversation"; };
  return ask({
    title: texts.rewindTo, texts, action: texts.rewindTo,
    body: [h("fieldset", { on: { change: show } }, what.labels), others],
    submit: async () => {
      await submit(what.value(), { force: drift.value() === "overwrite", keep_others: drift.value() === "keep" });
      return what.value();
    },
  });
}

function radios(name, pairs) {
  const inputs = pairs.map(([value], n) => h("input", { type: "radio", name, value, checked: n === 0 }));
  return {
    labels: pairs.map(([, label], n) => h("label", { class: "option" }, inputs[n], h("span", {}, label))),
    value: () => inputs.find((input) => input.checked).value,
  };
}
