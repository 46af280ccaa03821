// Reads a log block by block, and at once, as the user page does. In: {module, items}.
let text = "";
for await (const part of process.stdin) text += part;
const { module, items } = JSON.parse(text);
const { PlainLog } = await import(module);
const kindOf = (block) => block.tool;
const growing = new PlainLog(kindOf);
const shown = items.map((_, n) => growing.read({ items, length: n + 1 }).items);
const whole = new PlainLog(kindOf).read({ items, length: items.length }).items;
const half = Math.floor(items.length / 2);
const later = new PlainLog(kindOf);
later.read({ items: items.slice(half), length: items.length - half });
const { count, items: joined } = later.prepend({ items, length: items.length }, half);
const blocks = (list) => list.flatMap((block) => block.blocks ?? [block]).map((block) => block.seq);
console.log(JSON.stringify({
  whole, growing: shown.at(-1) ?? [], order: blocks(whole), joined: blocks(joined), count,
  kept: shown.every((list, n) => !n || shown[n - 1].slice(0, -1).every((block, at) => block === list[at])),
}));
