// Which links mislead, of [text, target] pairs.
import { readFileSync } from "node:fs";

const { module, links } = JSON.parse(readFileSync(0, "utf8"));
const { misleads } = await import(module);

console.log(JSON.stringify(links.map(([textContent, target]) => misleads({ textContent, href: new URL(target).href }))));
