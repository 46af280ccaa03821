// The log of a conversation as it is shown: steps of one kind that follow each other are one block, with
// the thoughts between them, and so are uploads. The end of a turn has what was done in it. The skin says
// what is of one kind. Pure: no DOM. A block that did not change stays the same object.

/** Whether this step is finished, so that it can be shown together with steps of its kind. */
const isDone = (block) => block.kind === "called" && block.stage === "done";

/** Return the kind of a notice; "": it is shown alone. */
const kindOfNews = (block) => (block.what === "file_uploaded" ? block.what : "");

export class PlainLog {
  /** Steps for which `kindOf` returns the same text are of one kind; "": the step is shown alone. */
  constructor(kindOf = () => "") {
    this.kindOf = kindOf;
    this.ends = new WeakMap(); // of each turn: its block, with what was done
    this.clear();
  }

  clear() {
    this.source = null; // the list that was read, up to `length`
    this.length = 0;
    this.items = [];
    this.counts = {}; // the steps of the turn, by kind
  }

  /** Return the log that is shown for this log. */
  read(log) {
    if (log.items !== this.source || log.length < this.length) {
      const before = this.items;
      this.clear();
      this.source = log.items;
      this.append(log);
      before.slice(0, this.items.length).forEach((block, n) => {
        if (isSame(block, this.items[n])) this.items[n] = block;
      });
    } else this.append(log);
    return { items: this.items, length: this.items.length };
  }

  /** Return how many blocks are shown for the first `count` blocks of this log, which are new. */
  prepend(log, count) {
    const older = new PlainLog(this.kindOf);
    older.ends = this.ends;
    older.read({ items: log.items, length: count });
    this.items = [...older.items, ...this.items];
    this.source = log.items;
    this.length = log.length;
    return { items: this.items, count: older.items.length };
  }

  append(log) {
    for (; this.length < log.length; this.length += 1) this.add(log.items[this.length]);
  }

  add(block) {
    const last = this.items.at(-1);
    if (isDone(block)) this.counts[this.kindOf(block)] = (this.counts[this.kindOf(block)] ?? 0) + 1;
    if (last && this.isOneMore(last, block)) this.items = [...this.items.slice(0, -1), run(last, block)];
    else this.items.push(block.kind === "turn_over" ? this.end(block) : block);
  }

  isOneMore(last, block) {
    const first = stepsOf(last)[0];
    const kind = this.kind(first);
    if (!kind || Boolean(first.rewound) !== Boolean(block.rewound)) return false;
    return block.kind === "thought" ? isDone(first) : this.kind(block) === kind;
  }

  kind(block) {
    if (block.kind === "news") return kindOfNews(block);
    return isDone(block) ? this.kindOf(block) : "";
  }

  end(block) {
    const { counts } = this;
    this.counts = {};
    if (!this.ends.has(block)) this.ends.set(block, { ...block, counts });
    return this.ends.get(block);
  }
}

const stepsOf = (block) => block.blocks ?? [block];

// Calls that ran at the same time end in any order. They are shown in the order of their begin.
const run = (last, block) => ({
  kind: block.kind === "news" ? "uploads" : "steps", seq: last.seq, at: last.at, rewound: last.rewound, blocks: [...stepsOf(last), block].sort(inOrder),
});
const inOrder = (a, b) => a.seq - b.seq || (a.id ?? "").localeCompare(b.id ?? "", "en", { numeric: true });

const isSame = (one, other) => one === other || (one.blocks && other.blocks
  && one.blocks.length === other.blocks.length && one.blocks.every((block, n) => block === other.blocks[n]));
