// A form that an MCP server asks a person to fill in, or an address that it asks them to open. The
// values are checked here as `values/forms.py` checks them, and once more by refold. `requests.js`
// shows the card. An address is opened only by a click on it.

import { h } from "./dom.js";
import { exact, onOneLine } from "./escape.js";

let number = 0;
const TYPES = { integer: "number", number: "number", text: "text" };
const FORMATS = { email: "email", uri: "url", date: "date", "date-time": "datetime-local" };

/** What stands in the card, and `read()`: the content, or null where something does not fit. */
export function serverForm(form, texts) {
  if (form.problem) {
    const problem = h("p", { class: "warning", role: "alert" }, texts.unshown(exact(form.problem)));
    return { body: [h("p", {}, exact(form.message)), problem], read: () => null };
  }
  if (form.url) return { body: address(form, texts), read: () => ({}) };
  const fields = (form.fields ?? []).map((field) => fieldOf(field, texts));
  const read = () => {
    const wrong = fields.filter((field) => !field.check());
    wrong[0]?.focus();
    if (wrong.length) return null;
    return Object.fromEntries(fields.map((field) => [field.name, field.value()]).filter(([, value]) => value !== undefined));
  };
  const needed = (form.fields ?? []).some((field) => field.required);
  const body = [
    h("p", {}, exact(form.message)), ...fields.map((field) => field.element),
    needed ? h("p", { class: "note" }, texts.needed) : null,
  ];
  return { body, read };
}

function address({ message, url }, texts) {
  const { host } = new URL(url);
  const odd = host.split(".").some((part) => part.startsWith("xn--"));
  return [
    h("p", {}, exact(message)),
    h("p", { class: "address" }, h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, exact(url))),
    h("p", { class: "note" }, texts.at, " ", h("strong", {}, host)),
    odd ? h("p", { class: "warning", role: "alert" }, texts.oddHost) : null,
  ];
}

function fieldOf(field, texts) {
  const id = `form-field-${(number += 1)}`;
  const input = { boolean, choice, choices }[field.kind]?.(field, id, texts) ?? text(field, id);
  const problem = h("p", { class: "problem", role: "alert", id: `${id}-problem`, hidden: true });
  const hint = [field.about ?? "", texts.takes(field)].filter(Boolean).join(" · ");
  const about = hint ? h("small", { id: `${id}-about` }, exact(hint)) : null;
  const label = [onOneLine(field.title || field.name), field.required ? " *" : ""];
  const element = input.several
    ? h("fieldset", { class: "form-field" }, h("legend", {}, label), about, input.element, problem)
    : h("div", { class: "form-field" }, h("label", { for: id }, label), about, input.element, problem);
  input.control.setAttribute("aria-describedby", [about ? `${id}-about` : "", `${id}-problem`].filter(Boolean).join(" "));
  const check = () => {
    const value = input.value();
    const said = input.bad?.() || (value === undefined ? (field.required ? texts.isNeeded : "") : wrongIn(field, value, texts));
    problem.hidden = !said;
    problem.textContent = said;
    input.control.setAttribute("aria-invalid", String(Boolean(said)));
    return !said;
  };
  input.control.addEventListener("change", () => check());
  return { name: field.name, element, value: input.value, check, focus: () => input.control.focus() };
}

function text(field, id) {
  const type = FORMATS[field.format] ?? TYPES[field.kind];
  const first = field.default === undefined ? "" : String(field.default);
  const control = h("input", {
    id, type, step: type === "number" ? (field.kind === "integer" ? "1" : "any") : null,
    value: type === "datetime-local" ? local(first) : first,
  });
  const value = () => {
    const typed = control.value.trim();
    if (!typed) return undefined;
    if (field.kind !== "text") return Number(typed);
    return type === "datetime-local" ? new Date(typed).toISOString() : typed;
  };
  return { element: control, control, value, bad: () => (control.validity.badInput ? control.validationMessage : "") };
}

function boolean(field, id, texts) {
  const options = [["", texts.none], ["yes", texts.yes], ["no", texts.no]];
  const first = field.default === undefined ? "" : field.default ? "yes" : "no";
  const control = select(id, options, first);
  return { element: control, control, value: () => (control.value ? control.value === "yes" : undefined) };
}

function choice(field, id, texts) {
  const options = field.options.map(({ value, title }, n) => [String(n), title || value]);
  const first = field.options.findIndex(({ value }) => value === field.default);
  const control = select(id, [["", texts.none], ...options], first < 0 ? "" : String(first));
  return { element: control, control, value: () => (control.value ? field.options[Number(control.value)].value : undefined) };
}

function choices(field, id) {
  const boxes = field.options.map(({ value, title }, n) => [value, title || value, h("input", {
    type: "checkbox", id: n ? null : id, checked: (field.default ?? []).includes(value),
  })]);
  const element = h("div", { class: "form-choices" }, boxes.map(([, name, box]) => h("label", { class: "option" }, box, h("span", {}, exact(name)))));
  const value = () => {
    const chosen = boxes.filter(([, , box]) => box.checked).map(([each]) => each);
    return chosen.length ? chosen : undefined;
  };
  return { element, control: boxes[0][2], value, several: true };
}

function select(id, options, first) {
  return h("select", { id }, options.map(([value, name]) => h("option", { value, selected: value === first }, onOneLine(name))));
}

/** Return what is wrong with a value; "" if it is valid. */
function wrongIn(field, value, texts) {
  const size = typeof value === "number" ? value : value.length;
  const bounded = field.kind !== "choice" && field.kind !== "boolean";
  if (field.kind === "integer" && !Number.isInteger(value)) return texts.give(texts.takes(field));
  if (bounded && (size < (field.low ?? -Infinity) || size > (field.high ?? Infinity))) return texts.give(texts.takes(field));
  if (field.format === "email" && !/^[^@\s]+@[^@\s]+$/u.test(value)) return texts.give(texts.takes(field));
  if (field.format === "uri" && !(URL.canParse(value) && !value.includes(" "))) return texts.give(texts.takes(field));
  return "";
}

/** Return a moment as its control expects it: in the local time zone, without seconds. */
function local(moment) {
  const at = new Date(moment);
  if (Number.isNaN(at.valueOf())) return "";
  return new Date(at.valueOf() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
