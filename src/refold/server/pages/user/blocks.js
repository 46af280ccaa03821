// How a block looks to a user who is not a programmer: what was said, what is done in plain
// words, and files as cards. What exactly was done can be unfolded.

import { copyButton } from "../shared/again.js";
import { runningTime, timeOf } from "../shared/clock.js";
import { diffView } from "../shared/diff.js";
import { dollars, duration, fill, h, icon, iconButton } from "../shared/dom.js";
import { exact, onOneLine } from "../shared/escape.js";
import { addressOf, commonFolder, downloadLink } from "../shared/files.js";
import { generatedLast } from "../shared/generated.js";
import { markdown } from "../shared/markdown.js";
import { messageText } from "../shared/message.js";
import { isNode, openChild } from "../shared/nodes.js";
import { user as t } from "../shared/texts.js";
import { previewButton } from "../shared/previews.js";
import { growing } from "../shared/transcript.js";

const SUBJECTS = ["command", "path", "file_path", "code", "pattern", "query", "url", "task", "name"];
const DRAWINGS = [
  [/^(read_|view_)/, "file"], [/^(search|find|list|tree|glob|grep)/, "search"], [/^(write|edit|multi|apply|notebook)/, "pencil"],
  [/^(bash|run|shell|python|rlm)/, "terminal"], [/^(web|fetch)/, "globe"], [/^(todo|enter_plan|exit_plan|plan)/, "list"],
  [/^(task|agent)/, "people"], [/^ask/, "question"],
];

const PROGRESS_CHARS = 100;
const MAX_NAMES = 3; // of files that steps were about

export function subject(args) {
  return SUBJECTS.find((name) => typeof args?.[name] === "string") ?? "";
}

/** Return the element of a block. `waits`: it is a message that was not delivered yet. */
export function renderBlock(block, context, waits = false) {
  return RENDER[block.kind](block, context, waits);
}

const RENDER = { heard, words, dropped, thought, called, steps, news, uploads, turn_over: turnOver };

function heard(block, context, waits) {
  const isTask = block.sender === "parent" && isNode(context.id());
  if (block.sender !== "person" && !isTask) return null; // reports of helpers are for the model
  const tools = context.readOnly() ? null : h("span", { class: "tools" }, waits
    ? block.later && iconButton("undo", t.editQueued, () => context.editQueued(block))
    : [timeOf(block.at), copyButton(t.again.copyMessage, block.said, t), iconButton("pencil", t.again.edit, () => context.editAgain(block)),
      iconButton("undo", t.rewindTo, () => context.rewind(block))]);
  return h("div", { class: "heard" }, h("div", { class: "bubble" }, messageText(block, context), pictures(block.images, context)),
    h("footer", {}, waits ? h("span", { class: "tag" }, block.later ? t.queued : t.notRead) : null,
      block.rewound ? h("span", { class: "tag" }, t.rewound) : null, tools));
}

function pictures(images, context) {
  if (!images?.length) return null;
  return h("ul", { class: "pictures" }, images.map((image) => h("li", {}, h("img", {
    src: `/api/conversations/${encodeURIComponent(context.id())}/blobs/${encodeURIComponent(image.blob)}`,
    alt: t.imageNamed(image.name), loading: "lazy",
  }))));
}

function words(block) {
  return h("div", { class: "words" }, h("div", { class: "prose" }, markdown(block.text, t.lines)),
    h("span", { class: "tools" }, copyButton(t.again.copyAnswer, block.text, t)));
}

function dropped() {
  return h("p", { class: "tag" }, t.dropped());
}

function thought(block, context) {
  return fold(context, `thought-${block.seq}`, "thought", [t.thought], () => h("div", { class: "text" }, exact(block.text)));
}

function fold(context, key, name, summary, body) {
  const inside = h("div", { class: "fold-body" });
  const draw = () => { if (!inside.hasChildNodes()) fill(inside, body()); };
  const open = context.folds.get(key) ?? false;
  if (open) draw();
  const head = h("summary", { on: { click: () => { context.folds.set(key, !made.open); draw(); } } }, summary);
  const made = h("details", { class: `fold ${name}`, open, on: { toggle: (event) => event.target.open && draw() } }, head, inside);
  return made;
}

function called(block, context) {
  const busy = ["called", "asked", "running"].includes(block.stage);
  const drawing = DRAWINGS.find(([name]) => name.test(block.tool))?.[1] ?? "more";
  const about = fileOf(block, context) || (busy ? progressOf(block) : "");
  const wrong = ["failed", "refused", "stopped", "unknown"].includes(block.stage);
  const summary = [h("span", { class: `mark mark-${busy ? "busy" : wrong ? "wrong" : "done"}` }, icon(wrong ? "close" : drawing)),
    h("span", { class: "did" }, t.activity(block.tool, block.stage)),
    about ? h("span", { class: "about" }, about) : null,
    block.stage === "running" && block.began ? runningTime(block.began) : null,
    wrong || block.stage === "asked" ? h("span", { class: "tag" }, t.stages[block.stage]) : null];
  return fold(context, block.id, "step", summary, () => details(block, context));
}

/** Return the kind of a step: steps of one kind that follow each other are shown as one. */
export const kindOf = (block) => t.activity(block.tool, "done");

function steps({ seq, blocks }, context) {
  const calls = blocks.filter((block) => block.kind === "called");
  const names = [...new Set(calls.map((block) => fileOf(block, context)).filter(Boolean))];
  const drawing = DRAWINGS.find(([name]) => name.test(calls[0].tool))?.[1] ?? "more";
  const summary = [h("span", { class: "mark mark-done" }, icon(drawing)), h("span", { class: "did" }, t.didSteps(kindOf(calls[0]), calls.length)),
    names.length ? h("span", { class: "about" }, t.someOf(names.slice(0, MAX_NAMES), names.length)) : null];
  return fold(context, `steps-${seq}`, "step", summary, () => h("ol", { class: "inner-steps" }, blocks.map((block) => h("li", {}, renderBlock(block, context)))));
}

function fileOf(block, context) {
  const path = block.args?.path ?? block.args?.file_path;
  return typeof path === "string" && path !== "." ? onOneLine(near(path, context).split("/").pop()) : "";
}

// Return the last line of the output of a call.
function progressOf(block) {
  return onOneLine(block.tail.trimEnd().split("\n").at(-1)).slice(0, PROGRESS_CHARS);
}

function near(path, context) {
  const here = context.directory();
  return here && path.startsWith(`${here}/`) ? path.slice(here.length + 1) : path;
}

function details(block, context) {
  const name = subject(block.args);
  const given = name ? String(block.args[name]) : JSON.stringify(block.args, null, 1);
  const text = block.text || block.tail;
  return [h("h3", {}, t.input), h("pre", { tabindex: "0" }, exact(given)),
    block.diffs.map((diff) => [h("p", {}, downloadLink(context.id(), near(diff.path, context), t)), diffView(diff.text, t.lines)]),
    text && !block.diffs.length ? [h("h3", {}, t.output), h("pre", { tabindex: "0" }, exact(text))] : null];
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
  const files = generatedLast(block.files.filter((f) => f.kind !== "deleted"));
  const gone = block.files.filter((f) => f.kind === "deleted");
  const sum = t.summary(block.counts ?? {}, block.files, duration(block.seconds ?? 0));
  if (!how && !block.files.length && !sum) return null;
  return h("div", { class: "over" },
    sum ? h("p", { class: "summary" }, sum) : null,
    how ? h("p", { class: `how is-${block.outcome}` }, block.outcome === "failed" ? t.whyFailed(block.reason) : how) : null,
    block.outcome === "failed" && block.reason ? fold(context, `why-${block.seq}`, "thought", [t.exactError], () => h("p", { class: "text" }, exact(block.reason))) : null,
    block.files.length ? h("section", { "aria-label": t.filesMade }, h("ul", { class: "made" },
      files.map((file) => h("li", {}, card(file, context), previewOf(file, context))),
      gone.map((file) => h("li", { class: "gone" }, icon("close"), h("span", {}, onOneLine(file.path.split("/").pop())), h("small", {}, t.deleted))))) : null);
}

function previewOf(file, context) {
  const path = near(file.path, context);
  return path.startsWith("/") ? null : previewButton(context.id(), path, t);
}

function card(file, context) {
  const name = file.path.split("/").pop();
  const path = near(file.path, context);
  const about = [h("span", { class: "made-name" }, onOneLine(name)), h("small", {}, t[file.kind])];
  if (path.startsWith("/")) { // outside of the folder: it is there, and is not downloaded
    return h("div", { class: "made-card" }, h("span", { class: "made-icon" }, icon("file")), about);
  }
  return h("a", { class: "made-card", href: addressOf(context.id(), path), download: name },
    h("span", { class: "made-icon" }, icon("file")), h("span", { class: "unseen" }, t.download), about, icon("down"));
}

export function renderComing(part) {
  if (part.kind === "call") {
    const did = h("span", { class: "did" });
    return { element: h("div", { class: "coming step" }, h("span", { class: "mark mark-busy" }, icon("more")), did),
      show: (now) => { did.textContent = t.activity(now.text); } };
  }
  if (part.kind === "thought") {
    return { element: h("div", { class: "coming step" }, h("span", { class: "mark mark-busy" }, icon("leaf")),
      h("span", { class: "did" }, t.doing.thinking)), show: () => {} };
  }
  const prose = h("div", { class: "words prose" });
  return { element: h("div", { class: "coming" }, prose), show: growing(prose, t.lines) };
}

export function labelOf(block) {
  switch (block.kind) {
    case "heard": return t.you;
    case "words": return t.product;
    case "thought": return t.thought;
    case "dropped": return t.dropped();
    case "called": return `${t.activity(block.tool, block.stage)}: ${t.stages[block.stage]}`;
    case "steps": return t.didSteps(kindOf(block.blocks[0]), block.blocks.filter((each) => each.kind === "called").length);
    case "uploads": return t.uploads(block.blocks.length, "");
    case "turn_over": return t.said.over;
    default: return t.news[block.what]?.(block.doc) ?? "";
  }
}

export function aboutPanel(element) {
  return { changed: (screen) => {
    const count = screen.usage.input + screen.usage.output;
    fill(element, h("dl", { class: "about-list" },
      h("div", {}, h("dt", {}, t.workspace), h("dd", {}, onOneLine(screen.directory || "…"))),
      h("div", {}, h("dt", {}, t.spent), h("dd", {}, dollars(screen.cost) || t.costUnknown)),
      h("div", {}, h("dt", {}, t.amount), h("dd", {}, t.tokensPlain(Math.round(count * 0.75).toLocaleString("en"))))));
  } };
}
