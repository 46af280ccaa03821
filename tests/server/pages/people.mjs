// Commands and changes of a page of people, without a browser.

const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const { module, call, args } = JSON.parse(Buffer.concat(chunks).toString());
const found = (await import(module))[call](...args);
console.log(JSON.stringify(found instanceof Map ? [...found.values()] : found));
