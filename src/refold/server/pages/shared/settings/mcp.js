// The section of MCP servers: their state and tools, tests, accepting changed tools, new ones.

import * as api from "../api.js";
import { checkbox, choice, field } from "../dialogs.js";
import { fill, h } from "../dom.js";
import { exact, onOneLine } from "../escape.js";
import { act, form, inFolder, lines, outcome, part, rows } from "./parts.js";

const PATH = "/api/settings/mcp";

export async function mcp(place, page) {
  const t = page.texts.settings.mcp;
  const { servers, notices } = await api.get(inFolder(PATH, page));
  const redraw = () => mcp(place, page);
  fill(place, h("p", { class: "settings-about" }, t.about),
    rows(servers.map((server) => one(server, redraw, page)), t.none),
    notices.map((notice) => h("p", { class: "warning" }, notice)), newServer(redraw, page));
}

function one(first, redraw, page) {
  const t = page.texts.settings.mcp;
  const into = outcome();
  const element = h("li", { class: "settings-row settings-server" });
  const address = `${PATH}/${encodeURIComponent(first.name)}`;
  const draw = (server) => {
    const test = act(t.test, async () => {
      const now = await api.post(inFolder(`${address}/test`, page));
      draw({ ...now, differences: now.differences ?? [] });
      if (now.state !== "connected") throw new Error(now.why);
      return t.works(now.tools.length);
    }, { into, page });
    const remove = server.own ? act(t.remove, async () => {
      const { left } = await api.remove(address);
      page.say(left ? t.left(left) : t.removed(server.name));
      await redraw();
    }, { into, page, kind: "quiet" }) : null;
    fill(element,
      h("div", { class: "settings-what" },
        h("strong", {}, onOneLine(server.name), " ", h("span", { class: `tag is-${server.state}` }, t.states[server.state] ?? server.state)),
        h("small", {}, onOneLine(server.target)), server.own ? null : h("small", {}, t.from(server.source)),
        server.why ? h("small", { class: "problem" }, onOneLine(server.why)) : null),
      h("div", { class: "settings-actions" }, server.state === "remote" ? null : test, remove),
      server.tools?.length ? h("details", { class: "settings-more" }, h("summary", {}, t.tools(server.tools.length)),
        h("dl", { class: "settings-list" }, server.tools.map((tool) => [h("dt", {}, onOneLine(tool.name)), h("dd", {}, onOneLine(tool.description))]))) : null,
      server.blocked?.length ? changed(server, address, draw, page) : null, into.element);
  };
  draw(first);
  return element;
}

function changed(server, address, draw, page) {
  const t = page.texts.settings.mcp;
  const into = outcome();
  return h("div", { class: "settings-changed" }, h("p", { class: "warning" }, t.blocked(server.blocked.map(onOneLine).join(", "))),
    h("pre", {}, server.differences.map(exact).join("\n")),
    act(t.accept, async () => draw(await api.post(inFolder(`${address}/accept`, page), { differences: server.differences })), { into, page }), into.element);
}

function newServer(redraw, page) {
  const t = page.texts.settings.mcp;
  const into = outcome();
  const input = (props = {}) => h("input", { type: "text", autocomplete: "off", spellcheck: "false", maxlength: "2000", ...props });
  const name = input({ required: true, maxlength: "60" });
  const kind = choice("kind", [["url", t.isAddress], ["command", t.isProgram]], "url");
  const url = input({ placeholder: "mcp.example.org/mcp" });
  const headers = h("textarea", { rows: "2", spellcheck: "false" });
  const command = h("textarea", { rows: "3", spellcheck: "false" });
  const env = h("textarea", { rows: "2", spellcheck: "false" });
  const hosts = input();
  const writes = checkbox(t.writes, "writes");
  const ofUrl = [field(t.url, url), field(t.headers, headers, t.headersHint)];
  const ofProgram = [field(t.command, command, t.commandHint), field(t.env, env, t.envHint), field(t.hosts, hosts, t.hostsHint), writes];
  const show = () => {
    for (const each of ofUrl) each.hidden = kind.value !== "url";
    for (const each of ofProgram) each.hidden = kind.value === "url";
  };
  kind.addEventListener("change", show);
  show();
  const body = () => (kind.value === "url"
    ? { name: name.value.trim(), url: url.value.trim(), headers: pairs(headers.value, ":") }
    : { name: name.value.trim(), command: lines(command.value), env: pairs(env.value, "="), hosts: hosts.value.split(/[\s,]+/).filter(Boolean), writes: writes.firstChild.checked });
  return part(t.add, form(t.addIt, [h("div", { class: "fields" }, field(t.name, name), field(t.kind, kind)), ofUrl, ofProgram], async () => {
    const made = body();
    await api.post(PATH, made);
    page.say(t.added(made.name));
    await redraw();
  }, { into, page }), into.element);
}

const pairs = (text, sign) => Object.fromEntries(lines(text).map((line) => {
  const at = line.indexOf(sign);
  return at < 0 ? [line, ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
}));
