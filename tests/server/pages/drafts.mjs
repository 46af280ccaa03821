// Drafts in a storage of limited size: what is there after each step.
import { readFileSync } from "node:fs";

const { module, steps, room } = JSON.parse(readFileSync(0, "utf8"));
const { Drafts } = await import(module);

const values = new Map();
const storage = {
  getItem: (key) => values.get(key) ?? null,
  setItem: (key, value) => {
    if (value.length > room) throw new Error("QuotaExceededError");
    values.set(key, value);
  },
};
console.log(JSON.stringify(steps.map(([method, ...given]) => new Drafts(storage)[method](...given) ?? null)));
