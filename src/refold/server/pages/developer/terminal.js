// Terminals in the page, one for each conversation: xterm.js, connected to a shell on the server by
// a WebSocket of its own. Loaded when the panel opens, and only where `refold serve --terminal`
// offers it. A terminal goes on while another panel or conversation is shown, and ends with the page.

import * as api from "../shared/api.js";
import { fill, h } from "../shared/dom.js";
import { onOneLine } from "../shared/escape.js";
import { FitAddon } from "../shared/vendor/xterm-fit.js";
import { Terminal } from "../shared/vendor/xterm.js";

const STYLES = ["../shared/vendor/xterm.css", "./terminal.css"];
const SCROLLBACK = 5000; // lines
const MOST_TYPED = 32_768; // bytes of a frame
const SHOWN_AT_ONCE = 32_768; // bytes, after which the server is told that they are shown
const READER_KEY = "refold-terminal-screen-reader";
const KEYS = { "Ctrl+C": "\x03", "Ctrl+D": "\x04", Tab: "\t", Esc: "\x1b", "↑": "\x1b[A", "↓": "\x1b[B", "←": "\x1b[D", "→": "\x1b[C" };
const terminals = new Map(); // by conversation
let styles = null;

/** Show the terminal of the conversation in a panel, or how to open one. */
export async function showTerminal(element, page, texts) {
  const { id } = page.conversation;
  await (styles ??= Promise.all(STYLES.map(loadStyle)));
  if (!element.isConnected) return;
  if (!terminals.has(id)) terminals.set(id, new PageTerminal(id, page, texts.terminal));
  terminals.get(id).show(element);
}

function loadStyle(path) {
  return new Promise((resolve, reject) => {
    const link = h("link", { rel: "stylesheet", href: new URL(path, import.meta.url).href, on: { load: resolve, error: reject } });
    document.head.append(link);
  });
}

class PageTerminal {
  constructor(id, page, texts) {
    this.id = id;
    this.page = page;
    this.t = texts;
    this.terminal = null;
    this.socket = null;
    const button = (label, click, props = {}) => h("button", { type: "button", class: "button quiet", on: { click }, ...props }, label);
    this.openButton = button(texts.open, () => this.open(), { class: "button primary" });
    this.anotherButton = button(texts.another, () => this.open());
    this.closeButton = button(texts.close, () => this.close());
    this.intro = h("div", { class: "terminal-intro" }, h("p", {}, texts.about(page.conversation.screen.directory)), h("p", {}, texts.recorded), this.openButton);
    this.reader = h("input", { type: "checkbox", checked: localStorage.getItem(READER_KEY) === "yes", on: { change: () => this.setReader() } });
    this.tools = h("div", { class: "terminal-tools", role: "toolbar", "aria-label": texts.tools, hidden: true },
      button(texts.share, () => this.share()), button(texts.copy, () => this.copy()),
      h("label", {}, this.reader, texts.screenReader), this.anotherButton, this.closeButton);
    this.keys = h("div", { class: "terminal-keys", role: "group", "aria-label": texts.keys, hidden: true },
      Object.entries(KEYS).map(([label, typed]) => button(label, () => this.press(typed), { "aria-label": texts.keyNames[label] ?? label })));
    this.state = h("p", { class: "terminal-state", role: "status" });
    this.screen = h("div", { class: "terminal-screen", hidden: true, on: { keydown: (event) => event.stopPropagation() } });
    this.help = h("p", { class: "terminal-help", hidden: true }, texts.help);
    this.element = h("div", { class: "terminal-panel" }, this.intro, this.tools, this.screen, this.keys, this.state, this.help);
    new ResizeObserver(() => this.fit()).observe(this.screen);
    new MutationObserver(() => this.colour()).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  }

  show(element) {
    fill(element, this.element);
    this.fit();
    if (this.socket) this.terminal.focus();
  }

  async open() {
    if (this.socket || this.opening) return;
    this.opening = true;
    this.say("");
    try {
      const { token } = await api.post(api.of(this.id, "terminals"));
      this.begin(token);
    } catch (error) {
      this.say(error.message);
    } finally {
      this.opening = false;
    }
  }

  begin(token) {
    this.terminal?.dispose();
    this.intro.hidden = true;
    for (const part of [this.tools, this.screen, this.keys, this.help]) part.hidden = false;
    this.terminal = new Terminal({
      scrollback: SCROLLBACK, fontSize: 13, fontFamily: css("--mono"), theme: colours(), minimumContrastRatio: 4.5,
      screenReaderMode: this.reader.checked, cursorBlink: false,
      linkHandler: { activate: () => {} }, // where a link of a program leads is not shown
    });
    this.fitter = new FitAddon();
    this.terminal.loadAddon(this.fitter);
    this.terminal.attachCustomKeyEventHandler((event) => this.key(event));
    fill(this.screen);
    this.terminal.open(this.screen);
    this.fitter.fit();
    this.connect(token);
    this.say("");
    this.terminal.focus();
  }

  connect(token) {
    const { terminal } = this;
    const socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}${api.of(this.id, "terminals", "ws")}`);
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    this.result = null;
    let shown = 0;
    const send = (frame) => { if (socket.readyState === WebSocket.OPEN) socket.send(frame); };
    const type = (bytes) => {
      for (let at = 0; at < bytes.length; at += MOST_TYPED) send(bytes.subarray(at, at + MOST_TYPED));
    };
    const tellShown = (count) => {
      shown += count;
      if (shown < SHOWN_AT_ONCE) return;
      send(JSON.stringify({ type: "shown", bytes: shown }));
      shown = 0;
    };
    socket.addEventListener("open", () => send(JSON.stringify({ type: "start", token, rows: terminal.rows, columns: terminal.cols })));
    socket.addEventListener("message", ({ data }) => {
      if (typeof data === "string") this.take(JSON.parse(data));
      else terminal.write(new Uint8Array(data), () => tellShown(data.byteLength));
    });
    socket.addEventListener("close", () => this.ended());
    terminal.onData((text) => type(new TextEncoder().encode(text)));
    terminal.onBinary((text) => type(Uint8Array.from(text, (c) => c.charCodeAt(0))));
    terminal.onResize(({ rows, cols }) => send(JSON.stringify({ type: "resize", rows, columns: cols })));
  }

  take(frame) {
    if (frame.type === "started") this.say(this.t.running(onOneLine(frame.shell), onOneLine(frame.directory)));
    else if (frame.type === "ended") this.result = frame;
  }

  ended() {
    const { t, result } = this;
    this.socket = null;
    this.terminal.options.disableStdin = true;
    this.terminal.options.cursorInactiveStyle = "none";
    this.help.hidden = this.keys.hidden = true;
    this.say(result ? t.ends[result.reason](result) : t.lost);
    if (this.screen.contains(document.activeElement) || document.activeElement === document.body) this.anotherButton.focus();
  }

  say(text) {
    this.state.textContent = text;
    this.anotherButton.hidden = Boolean(this.socket);
    this.closeButton.hidden = !this.socket;
  }

  /** Type a key for which the user pressed a button, because a phone does not have it. */
  press(typed) {
    const inApplication = this.terminal.modes.applicationCursorKeysMode;
    this.terminal.input(inApplication ? typed.replace("\x1b[", "\x1bO") : typed);
    this.terminal.focus();
  }

  close() {
    this.result = { reason: "closed" };
    this.socket?.close(1000);
  }

  fit() {
    if (this.terminal && this.screen.offsetParent) this.fitter.fit();
  }

  colour() {
    if (this.terminal) this.terminal.options.theme = colours();
  }

  setReader() {
    localStorage.setItem(READER_KEY, this.reader.checked ? "yes" : "no");
    if (this.terminal) this.terminal.options.screenReaderMode = this.reader.checked;
  }

  /** Handle the keys that no program in a terminal gets: leave, copy, paste. */
  key(event) {
    if (!event.ctrlKey || !event.shiftKey || event.altKey || event.metaKey) return true;
    const key = event.key.toLowerCase();
    if (key === "v") return false; // the browser pastes
    if (key !== "l" && key !== "c") return true;
    event.preventDefault();
    if (event.type === "keydown" && key === "l") this.tools.querySelector("button").focus();
    if (event.type === "keydown" && key === "c") this.copy();
    return false;
  }

  selection() {
    const text = this.terminal.getSelection();
    if (!text.trim()) this.say(this.t.selectFirst);
    return text;
  }

  async copy() {
    const text = this.selection();
    if (!text.trim()) return;
    await navigator.clipboard.writeText(text);
    this.say(this.t.copied);
  }

  async share() {
    const text = this.selection();
    if (!text.trim()) return;
    try {
      await api.post(api.of(this.id, "terminals", "output"), { text });
      this.say(this.t.shared);
    } catch (error) {
      this.say(error.message);
    }
  }
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function colours() {
  const dark = document.documentElement.dataset.theme !== "light";
  const names = ["red", "green", "yellow", "blue", "magenta", "cyan"];
  const plain = dark ? ["#f08a7d", "#58c08b", "#e0b457", "#7fbcf5", "#c7a5f0", "#6fd3bb"] : ["#b23a2b", "#2c7a4e", "#8a5c00", "#0b5cad", "#7b3fa0", "#0b6b56"];
  const theme = {
    background: css("--code"), foreground: css("--text"), cursor: css("--accent"), cursorAccent: css("--code"),
    selectionBackground: css("--selection"), black: dark ? "#242b31" : "#1c2429", white: dark ? "#dde3e8" : "#55626b",
    brightBlack: dark ? "#85919b" : "#5d6870", brightWhite: dark ? "#ffffff" : "#1c2429",
  };
  names.forEach((name, at) => {
    theme[name] = plain[at];
    theme[`bright${name[0].toUpperCase()}${name.slice(1)}`] = plain[at];
  });
  return theme;
}
