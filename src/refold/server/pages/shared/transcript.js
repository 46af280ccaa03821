// The blocks of a conversation as elements, of which only those near the visible part exist:
// blocks stand in chunks, and a chunk that is far away is an empty box of the height that it
// had. What is older than the first block is asked for when that comes near. What is still open, and the response that is being written, stands below the chunks.

import { h } from "./dom.js";
import { GrowingMarkdown } from "./markdown.js";
import { PlainLog } from "./steps.js";

const CHUNK = 30; // blocks
const DRAWN = 90; // blocks at the end that are drawn at once
const NEAR = "1500px"; // from the visible part
const GUESS = 96; // pixels of a block that was never seen
const PARTS = "summary, button, a, input, [tabindex='0']"; // of a block, which can have the focus
const BOTTOM = 60; // pixels from the end that count as being there

export class Transcript {
  /**
   * `skin.renderBlock(block, context, waits)` gives an element or null, `skin.renderComing(part)`
   * an element with a function `show(part)`. `scroller` scrolls.
   */
  constructor(scroller, skin, context) {
    this.scroller = scroller;
    this.skin = skin;
    this.log = new PlainLog(skin.kindOf);
    this.context = context;
    this.chunks = [];
    this.items = null; // the list whose blocks are drawn
    this.drawn = 0;
    this.open = new Map(); // by key: {block, element}
    this.coming = [];
    this.past = h("div", { class: "past" });
    this.present = h("div", { class: "present" });
    this.waiting = h("div", { class: "waiting" }); // messages that were not read yet: below what is written
    this.feed = h("div", { class: "feed" }, this.past, this.present, this.waiting);
    this.older = h("button", {
      type: "button", class: "button quiet older", hidden: true, on: { click: () => context.readOlder() },
    }, skin.texts?.older);
    scroller.replaceChildren(this.older, this.feed);
    this.atStart = new IntersectionObserver((found) => {
      if (found.at(-1).isIntersecting && !this.older.hidden) context.readOlder();
    }, { root: scroller, rootMargin: `${NEAR} 0px` });
    this.near = new IntersectionObserver((found) => this.moved(found), {
      root: scroller, rootMargin: `${NEAR} 0px`,
    });
    this.atEnd = true;
    this.top = 0; // where it was scrolled to last
    scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.grown = new ResizeObserver(() => this.atEnd && this.toEnd());
    this.grown.observe(this.feed);
    this.grown.observe(scroller);
  }

  show(screen) {
    const focus = this.focusPlace();
    this.showDone(this.log.read(screen.done));
    this.showOlder(screen.older);
    this.showOpen(screen.open);
    this.showComing(screen.coming);
    this.feed.setAttribute("aria-busy", String(screen.coming.length > 0));
    if (screen.done.length) { // an empty feed is an error to screen readers
      this.feed.setAttribute("role", "feed");
      this.feed.setAttribute("aria-label", this.skin.texts.messages);
    }
    this.focusAgain(focus);
  }

  /** Return the block and the part of it that have the focus, to restore it when the block is drawn again. */
  focusPlace() {
    const block = this.feed.contains(document.activeElement) && document.activeElement.closest("article");
    return block ? { block, seq: block.dataset.seq, call: block.dataset.call, part: [...block.querySelectorAll(PARTS)].indexOf(document.activeElement) } : null;
  }

  focusAgain(place) {
    if (!place || place.block.isConnected) return;
    const { seq, call, part } = place;
    const blocks = [...this.feed.querySelectorAll(`article[data-seq="${seq}"]`)];
    const block = blocks.find((each) => each.dataset.call === call) ?? blocks[0];
    (block?.querySelectorAll(PARTS)[part] ?? block)?.focus({ preventScroll: true });
  }

  showOlder(older) {
    this.older.hidden = !older;
    this.atStart.unobserve(this.older);
    if (older) this.atStart.observe(this.older); // it is told again whether that is near
  }

  /** Show a screen whose first `added` blocks are new. The visible blocks do not move. */
  prepend(screen, added) {
    const { items, count } = this.log.prepend(screen.done, added);
    const chunks = [];
    for (let first = 0; first < count; first += CHUNK) {
      const blocks = items.slice(first, Math.min(first + CHUNK, count));
      chunks.push(this.makeChunk(first, blocks));
    }
    for (const chunk of this.chunks) {
      chunk.first += count;
      chunk.elements.forEach((each, n) => each.setAttribute("aria-posinset", chunk.first + n + 1));
    }
    this.chunks.unshift(...chunks);
    this.drawn += count;
    this.items = items;
    this.inPlace(() => {
      this.past.prepend(...chunks.map((chunk) => chunk.element));
      for (const chunk of chunks) {
        this.guess(chunk);
        this.near.observe(chunk.element);
      }
      this.showOlder(screen.older);
    });
  }

  /** Change blocks outside of the visible part, which does not move. */
  inPlace(change) {
    const top = this.scroller.getBoundingClientRect().top;
    const fixed = this.atEnd ? null : [...this.feed.querySelectorAll("article")]
      .find((each) => each.getBoundingClientRect().bottom > top);
    const before = fixed?.getBoundingClientRect().top;
    change();
    if (fixed?.isConnected) this.scroller.scrollTop += fixed.getBoundingClientRect().top - before;
  }

  showDone(log) {
    if (log.items !== this.items) this.replaced(log);
    this.items = log.items;
    while (this.drawn < log.length) {
      let chunk = this.chunks.at(-1);
      if (!chunk || chunk.blocks.length >= CHUNK) chunk = this.newChunk(log.length - this.drawn <= DRAWN);
      const block = log.items[this.drawn];
      chunk.blocks.push(block);
      if (chunk.element.dataset.mounted) this.add(chunk, block, this.drawn);
      else this.guess(chunk);
      this.drawn += 1;
    }
  }

  // The list is another one: draw only the blocks that differ.
  replaced(log) {
    if (this.drawn > log.length) this.clear();
    for (const chunk of this.chunks) {
      for (let n = 0; n < chunk.blocks.length; n += 1) {
        const at = chunk.first + n;
        if (chunk.blocks[n] === log.items[at]) continue;
        chunk.blocks[n] = log.items[at];
        if (chunk.element.dataset.mounted) {
          chunk.elements[n].replaceWith(chunk.elements[n] = this.article(log.items[at], at));
        }
      }
    }
  }

  clear() {
    for (const chunk of this.chunks) this.near.unobserve(chunk.element);
    this.chunks = [];
    this.log.clear();
    this.drawn = 0;
    this.items = null;
    this.showOlder(null);
    this.past.replaceChildren();
    this.present.replaceChildren();
    this.waiting.replaceChildren();
    this.feed.removeAttribute("role");
    this.feed.removeAttribute("aria-label");
    this.open.clear();
    this.coming = [];
  }

  makeChunk(first, blocks) {
    const element = h("div", { class: "chunk" });
    element.chunk = { element, blocks, elements: [], first };
    return element.chunk;
  }

  newChunk(draw) {
    const chunk = this.makeChunk(this.drawn, []);
    const before = this.chunks.at(-2);
    this.chunks.push(chunk);
    this.past.append(chunk.element);
    // The last chunk is drawn at once; an older one only if it is near the visible part.
    if (draw) this.mount(chunk);
    if (before) this.near.observe(before.element);
    return chunk;
  }

  guess(chunk) {
    chunk.element.style.height = `${Math.max(1, chunk.blocks.length) * GUESS}px`;
  }

  mount(chunk) {
    if (chunk.element.dataset.mounted) return;
    chunk.element.dataset.mounted = "yes";
    chunk.element.style.height = "";
    chunk.elements = [];
    chunk.blocks.forEach((block, n) => this.add(chunk, block, chunk.first + n));
  }

  unmount(chunk) {
    if (!chunk.element.dataset.mounted || chunk.element.contains(document.activeElement)) return;
    const height = chunk.element.getBoundingClientRect().height;
    delete chunk.element.dataset.mounted;
    chunk.elements = [];
    chunk.element.replaceChildren();
    chunk.element.style.height = `${height}px`;
  }

  moved(found) {
    this.inPlace(() => {
      for (const { target, isIntersecting } of found) {
        if (isIntersecting) this.mount(target.chunk);
        else this.unmount(target.chunk);
      }
    });
  }

  add(chunk, block, at) {
    const made = this.article(block, at);
    chunk.elements.push(made);
    chunk.element.append(made);
  }

  article(block, at, waits = false) {
    const inner = this.skin.renderBlock(block, this.context, waits);
    if (!inner) return h("div", { hidden: true });
    return h("article", {
      class: `block block-${block.kind}${block.rewound ? " is-rewound" : ""}`, tabindex: "-1",
      "aria-posinset": at + 1, "aria-setsize": -1, "aria-label": this.skin.labelOf(block),
      data: { seq: block.seq, ...(block.id && { call: block.id }) },
    }, inner);
  }

  showOpen(open) {
    const keys = new Set();
    const last = new Map(); // by place
    for (const block of open) {
      const place = block.kind === "heard" ? this.waiting : this.present;
      const before = last.get(place) ?? null;
      const key = block.id ?? `message-${block.seq}`;
      keys.add(key);
      const known = this.open.get(key);
      let element = known?.element;
      if (!known || known.block !== block) {
        const fresh = this.article(block, this.drawn + keys.size - 1, true);
        if (element) element.replaceWith(fresh);
        element = fresh;
        this.open.set(key, { block, element });
      }
      if (element.parentNode !== place || element.previousSibling !== before) {
        place.insertBefore(element, before ? before.nextSibling : place.firstChild);
      }
      last.set(place, element);
    }
    for (const [key, { element }] of this.open) {
      if (!keys.has(key)) {
        element.remove();
        this.open.delete(key);
      }
    }
  }

  showComing(parts) {
    const goesOn = parts.length >= this.coming.length
      && this.coming.every((c, n) => c.kind === parts[n].kind);
    if (!goesOn) {
      for (const { element } of this.coming) element.remove();
      this.coming = [];
    }
    parts.forEach((part, n) => {
      if (!this.coming[n]) {
        const made = this.skin.renderComing(part, this.context);
        this.coming[n] = { kind: part.kind, ...made };
        this.present.append(made.element);
      }
      this.coming[n].show(part);
    });
  }

  scrolled() {
    const { scrollTop, clientHeight, scrollHeight } = this.scroller;
    const atEnd = scrollHeight - scrollTop - clientHeight < BOTTOM;
    const up = scrollTop < this.top;
    this.top = scrollTop;
    // If the end moves away without scrolling, as when a request is shown, scroll to it.
    if (atEnd === this.atEnd || (this.atEnd && !up)) return;
    this.atEnd = atEnd;
    this.context.onAtEnd?.(atEnd);
  }

  toEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
    if (!this.atEnd) {
      this.atEnd = true;
      this.context.onAtEnd?.(true);
    }
  }

  /** Scroll to the block of an event, and put the focus there. */
  goTo(seq) {
    const at = this.chunks.findLastIndex((c) => c.blocks.length && c.blocks[0].seq <= seq);
    const chunk = this.chunks[Math.max(at, 0)];
    if (!chunk) return;
    this.atEnd = false;
    this.mount(chunk);
    const n = Math.max(0, chunk.blocks.findLastIndex((b) => b.seq <= seq));
    chunk.elements[n]?.scrollIntoView({ block: "center" });
    chunk.elements[n]?.focus({ preventScroll: true });
    this.context.onAtEnd?.(false);
  }

  /** Move the focus to the next block, or to the previous one. */
  step(way) {
    const every = [...this.feed.querySelectorAll("article")];
    const at = every.indexOf(document.activeElement?.closest("article"));
    const next = at < 0 ? every.at(-1) : every[Math.min(every.length - 1, Math.max(0, at + way))];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  }
}

/** Show a growing text as Markdown in `element`. */
export function growing(element, labels) {
  const inside = new GrowingMarkdown(element, labels);
  return (part) => inside.show(part.text);
}
