// How a block of the conversation looks to a developer: everything that is known of it, folded
// where it is long.

import { copyButton } from "../shared/again.js";
import { timeOf } from "../shared/clock.js";
import { diffCount, diffView } from "../shared/diff.js";
import { dollars, duration, fill, h, iconButton, short } from "../shared/dom.js";
import { exact, onOneLine } from "../shared/escape.js";
import { commonFolder, downloadLink } from "../shared/files.js";
import { generatedLast } from "../shared/generated.js";
import { markdown } from "../shared/markdown.js";
import { messageText } from "../shared/message.js";
import { openChild } from "../shared/nodes.js";
import { growing } from "../shared/transcript.js";
import { previewButton } from "../shared/previews.js";
import { developer as t } from "../shared/texts.js";

const OPEN_LINES = 24; // of an output that is shown unfolded
// The arguments that say most about a call, in this order, for all tools.
const SUBJECTS = ["command", "code", "path", "file_path", "pattern", "query", "url", "prompt", "task", "plan", "name"];

/** Return the name of the argument that the user reads first; "" if there is none. */
export function subject(args) {
  return SUBJECTS.find((name) => typeof args?.[name] === "string") ?? "";
}

/** Return the element of a block. `waits`: it is a message that was not delivered yet. */
export function renderBlock(block, context, waits = false) {
  return RENDER[block.kind](block, context, waits);
}

const RENDER = { heard, words, dropped, thought, called, news, uploads, turn_over: turnOver };

function heard(block, context, waits) {
  const tools = block.sender === "person" && !context.readOnly() ? h("span", { class: "tools" },
    waits ? block.later && iconButton("undo", t.editQueued, () => context.editQueued(block))
      : [copyButton(t.again.copyMessage, block.said, t), iconButton("pencil", t.again.edit, () => context.editAgain(block)),
        iconButton("undo", t.rewindTo, () => context.rewind(block))],
    iconButton("people", t.fork, () => context.fork(block.seq))) : null;
  return h("div", { class: "heard" },
    h("header", {}, h("span", { class: "who" }, block.sender === "person" ? t.you : onOneLine(block.sender)),
      h("span", { class: "seq" }, `#${block.seq}`), timeOf(block.at), block.rewound ? h("span", { class: "tag" }, t.rewound) : null,
      waits ? h("span", { class: "tag" }, block.later ? t.queued : t.notRead) : null, tools),
    h("div", { class: "text" }, messageText(block, context)), pictures(block, context));
}

function pictures(block, context) {
  if (!block.images?.length) return null;
  return h("ul", { class: "pictures" }, block.images.map((image) => h("li", {}, h("img", {
    src: `/api/conversations/${encodeURIComponent(context.id())}/blobs/${encodeURIComponent(image.blob)}`,
    alt: t.imageNamed(image.name), loading: "lazy",
  }))));
}

function words(block) {
  return h("div", { class: "words" }, h("div", { class: "prose" }, markdown(block.text, t.lines)),
    block.partial ? h("p", { class: "tag" }, t.cutOff) : null,
    h("span", { class: "tools" }, copyButton(t.again.copyAnswer, block.text, t)));
}

function dropped(block) {
  return h("div", { class: "words" }, block.text.trim() ? h("div", { class: "prose" }, markdown(block.text, t.lines)) : null,
    h("p", { class: "tag" }, onOneLine(t.dropped(block.reason))));
}

function thought(block, context) {
  return fold(context, `thought-${block.seq}`, "thought", [t.thought], () => h("div", { class: "text" }, exact(block.text)));
}

// Whether a fold is open is remembered while its block has no element.
function fold(context, key, name, summary, body, open = false) {
  const is = context.folds.get(key) ?? open;
  const inside = h("div", { class: "fold-body" });
  const draw = () => { if (!inside.hasChildNodes()) fill(inside, body()); };
  if (is) draw();
  // Only folds by the user are remembered: an element that is created open sends a toggle event, too.
  const head = h("summary", { on: { click: () => { context.folds.set(key, !made.open); draw(); } } }, summary);
  const made = h("details", {
    class: `fold ${name}`, open: is, on: { toggle: (event) => event.target.open && draw() },
  }, head, inside);
  return made;
}

function called(block, context) {
  const name = subject(block.args);
  const questions = questionsOf(block);
  const line = onOneLine(name ? String(block.args[name]) : questions ? questions.map((each) => each.question).join(" ") : compact(block.args));
  const counts = block.diffs.map((d) => diffCount(d.text));
  const sum = (what) => counts.reduce((all, each) => all + each[what], 0);
  const running = ["called", "asked", "running"].includes(block.stage);
  const summary = [
    h("span", { class: `stage stage-${block.stage}` }, h("span", { class: "unseen" }, t.stages[block.stage])),
    h("span", { class: "tool" }, onOneLine(block.tool)), h("span", { class: "subject" }, line),
    counts.length ? h("span", { class: "counts" }, h("span", { class: "plus" }, `+${sum("added")}`), " ",
      h("span", { class: "minus" }, `−${sum("gone")}`)) : null,
    block.stage !== "done" ? h("span", { class: "tag" }, t.stages[block.stage]) : null,
    block.began && block.ended ? h("span", { class: "time" }, duration(block.ended - block.began)) : null,
  ];
  const unfolded = (running && !questions) || block.stage === "failed" || block.diffs.length > 0;
  const element = fold(context, block.id, `call${block.within ? " is-within" : ""}`, summary, () => inside(block, name, context), unfolded);
  return element;
}

/** Return the questions of a call that asks the user. While they wait, their card shows them. */
function questionsOf({ args }) {
  return Array.isArray(args?.questions) && args.questions.every((each) => typeof each?.question === "string") ? args.questions : null;
}

function inside(block, name, context) {
  const rest = typeof block.args === "object" && block.args !== null
    ? Object.entries(block.args).filter(([key]) => key !== name) : [];
  const tail = block.stage === "running" ? block.tail : "";
  const text = block.text || tail;
  return [
    block.within ? h("p", { class: "note" }, `${t.within} (${block.within})`) : null,
    block.reason || block.answered ? h("p", { class: "note" }, [block.reason, block.answered].filter(Boolean).map(exact).join(": ")) : null,
    name && (String(block.args[name]).includes("\n") || String(block.args[name]).length > 80)
      ? section(t.input, h("pre", { tabindex: "0" }, exact(String(block.args[name])))) : null,
    rest.length && !block.diffs.length ? h("dl", { class: "arguments" }, rest.map(([key, value]) => [h("dt", {}, onOneLine(key)),
      h("dd", {}, h("pre", {}, exact(typeof value === "string" ? value : compact(value))))])) : null,
    block.diffs.map((diff) => section([downloadLink(context.id(), near(diff.path, context), t), ` ${t[diff.kind]}`],
      diffView(diff.text, t.lines))),
    text && !(block.diffs.length && block.stage === "done") ? section(t.output, output(text)) : null,
    pictures({ images: block.images.map((blob) => ({ blob, name: "" })) }, context),
    block.whole ? h("p", {}, h("a", {
      href: `/api/conversations/${encodeURIComponent(context.id())}/blobs/${block.whole}`, download: `${block.id}.txt`,
    }, t.wholeOutput)) : null,
  ];
}

function near(path, context) {
  const here = context.directory();
  return here && path.startsWith(`${here}/`) ? path.slice(here.length + 1) : path;
}

const section = (title, body) => h("section", {}, h("h3", {}, title), body);

function output(text) {
  const pre = h("pre", { class: "output", tabindex: "0" }, exact(text));
  if (text.split("\n").length > OPEN_LINES) pre.classList.add("is-long");
  return pre;
}

function compact(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function news(block, context) {
  const said = t.news[block.what]?.(block.doc);
  return said ? h("p", { class: "news" }, exact(said), openChild(block, context, t)) : null;
}

function uploads({ seq, blocks }, context) {
  const paths = blocks.map((block) => onOneLine(near(block.doc.path, context)));
  return fold(context, `uploads-${seq}`, "news", [t.uploads(paths.length, commonFolder(paths))], () => h("ul", {}, paths.map((path) => h("li", {}, path))));
}

function turnOver(block, context) {
  const how = t.turnOver[block.outcome];
  const used = block.usage ? t.tokens(short(block.usage.fresh + block.usage.cached + block.usage.cache_write),
    short(block.usage.output), block.usage.cached ? short(block.usage.cached) : "") : "";
  const parts = [duration(block.seconds), used, dollars(block.cost)].filter(Boolean).join(" · ");
  return h("div", { class: `over over-${block.outcome}` },
    how ? h("p", { class: "how" }, [how, block.reason].filter(Boolean).map(exact).join(": ")) : null,
    block.warnings.map((w) => h("p", { class: "warning" }, exact(w))),
    block.files.length ? h("section", { class: "made", "aria-label": t.filesChanged(block.files.length) },
      h("h3", {}, t.filesChanged(block.files.length)), h("ul", {}, generatedLast(block.files).map((file) => h("li", {}, madeFile(file, context))))) : null,
    h("p", { class: "sum" }, parts));
}

function madeFile(file, context) {
  const path = near(file.path, context);
  const there = file.kind !== "deleted" && !path.startsWith("/");
  return [there ? downloadLink(context.id(), path, t) : h("span", { class: "file-link" }, onOneLine(path)),
    h("span", { class: "tag" }, t[file.kind]), there ? previewButton(context.id(), path, t) : null];
}

export function renderComing(part) {
  if (part.kind === "call") {
    const name = h("span", { class: "tool" });
    return {
      element: h("div", { class: "coming call-coming" }, h("span", { class: "stage stage-called" }), name),
      show: (now) => { name.textContent = onOneLine(now.text); },
    };
  }
  if (part.kind === "thought") {
    const text = h("div", { class: "text" });
    return {
      element: h("div", { class: "coming thought-coming" }, h("h3", {}, t.thought), text),
      show: (now) => { text.textContent = exact(now.text.slice(-2000)); },
    };
  }
  const prose = h("div", { class: "prose" });
  return { element: h("div", { class: "coming words" }, prose), show: growing(prose, t.lines) };
}

/** Return the name of a block for screen readers. */
export function labelOf(block) {
  switch (block.kind) {
    case "heard": return block.sender === "person" ? t.you : block.sender;
    case "words": return t.product;
    case "thought": return t.thought;
    case "dropped": return t.dropped(block.reason);
    case "called": return `${block.tool} ${t.stages[block.stage]}`;
    case "uploads": return t.uploads(block.blocks.length, "");
    case "turn_over": return t.said.over;
    default: return t.news[block.what]?.(block.doc) ?? block.what;
  }
}
