// Makes elements. Text is always a text node, so nothing that a model or a file says becomes
// markup; the one place where markup is made of text is `markdown.js`.

/** An element: `h("button", {class: "send", on: {click}}, "Send")`. */
export function h(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    } else if (name === "data") Object.assign(made.dataset, value);
    else if (name in PROPERTIES) made[name] = value;
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...flat(children));
  return made;
}

const PROPERTIES = { value: 1, checked: 1, disabled: 1, hidden: 1, open: 1, selected: 1 };

function flat(children) {
  return children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false)
    .map((c) => (c instanceof Node ? c : String(c)));
}

/** Replace what is in an element. */
export function fill(element, ...children) {
  element.replaceChildren(...flat(children));
  return element;
}

const ICONS = {
  menu: "M4 7h16M4 12h16M4 17h16",
  plus: "M12 5v14M5 12h14",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  close: "M6 6l12 12M18 6L6 18",
  diff: "M12 4v9M7.500 8.500h9M7.500 19h9",
  panel: "M4 5h16v14H4zM14 5v14",
  file: "M7 3h7l4 4v14H7zM14 3v4h4",
  folder: "M3 7h6l2 2h10v10H3z",
  server: "M4 4h16v7H4zM4 13h16v7H4zM7.500 7.500h1M7.500 16.500h1",
  down: "M12 5v13M6 12l6 6 6-6",
  more: "M6 12h.01M12 12h.01M18 12h.01",
  clip: "M20 11l-8.5 8.5a5 5 0 0 1-7-7L13 4a3.4 3.4 0 0 1 5 5l-8.5 8.5a1.7 1.7 0 0 1-2.500-2.500L15 7",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16 16l4 4",
  check: "M5 12.500l4.500 4.500L19 7.500",
  arc: "M12 4a8 8 0 1 1-8 8",
  bell: "M6 17h12l-1.500-2.500V11a4.500 4.500 0 0 0-9 0v3.500zM10 20h4",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  retry: "M20 11A8 8 0 1 0 18 17M20 4v7h-7",
  undo: "M9 7L4 12l5 5M4 12h10a6 6 0 0 1 6 6",
  shield: "M12 3l7 3v5c0 5-3 8-7 10-4-2-7-5-7-10V6z",
  question: "M9 9a3 3 0 1 1 4.200 2.800c-.8.4-1.200 1-1.200 2M12 17.500h.01",
  list: "M9 6h11M9 12h11M9 18h11M4 6h.01M4 12h.01M4 18h.01",
  terminal: "M5 7l5 5-5 5M12 17h7",
  globe: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM3 12h18M12 3c3 3 3 15 0 18M12 3c-3 3-3 15 0 18",
  pencil: "M4 20l1-4L16 5l3 3L8 19z",
  people: "M9 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM3 20c0-4 3-6 6-6s6 2 6 6M16 5.500a3 3 0 0 1 0 5M17 14.500c2.500.5 4 2.500 4 5.500",
  gear: "M12 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM19 12l2-1.500-2-3.500-2.400 1-1.600-1L14.500 4h-5L9 7l-1.600 1L5 7 3 10.500 5 12l-2 1.500L5 17l2.400-1L9 17l.5 3h5l.5-3 1.600-1 2.400 1 2-3.500z",
  leaf: "M5 19C4 10 9 4 20 4c0 11-6 16-13 14M5 21c1-5 4-9 9-11",
};

/** A drawing that says nothing to a screen reader: words stand beside it. */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [key, value] of Object.entries({
    viewBox: "0 0 24 24", class: `icon icon-${name}`, "aria-hidden": "true", focusable: "false",
  })) svg.setAttribute(key, value);
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** A button with a drawing; `label` is its name, and shown on hovering. */
export function iconButton(name, label, click, props = {}) {
  return h("button", {
    type: "button", class: "icon-button", "aria-label": label, title: label, on: { click }, ...props,
  }, icon(name));
}

/** Does the user type there, so that the focus must stay? */
export function isTyping() {
  const at = document.activeElement;
  return Boolean(at?.matches?.("textarea, input:not([type=radio]):not([type=checkbox]), select")
    && (at.value ?? "") !== "");
}

const COUNTS = new Intl.NumberFormat("en");

/** Counts as people read them: 1,234, 56.7k. */
export function short(count) {
  if (count < 10_000) return COUNTS.format(count);
  return count < 1_000_000 ? `${(count / 1000).toFixed(1)}k` : `${(count / 1e6).toFixed(2)}M`;
}

export function dollars(cost) {
  if (cost === null || cost === undefined) return "";
  return cost > 0 && cost < 0.01 ? "<$0.01" : `$${cost.toFixed(2)}`;
}

export function duration(seconds) {
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}
