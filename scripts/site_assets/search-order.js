// Order of the search results. The build adds this to the search worker of Zensical, which wants all words of a query in
// one section; here it finds sections with any of them, and pages are ranked by BM25: rare words count more, titles
// more than text, and words such as "how" and "the" not at all. Each page comes once, with its best section.
(() => {
  const RESULTS = 20, SATURATION = 1.2, LENGTH_SHARE = 0.75;
  const STOP_WORDS = new Set(
    ("a an the i my me we our you your it its is are be was were am do does did how what where when which who why can " +
    "could should would may might will of in on at to from for with by and or not no as into over under that this these " +
    "those there here so if then than").split(" "));
  const ENTITIES = { "&lt;": "<", "&gt;": ">", "&amp;": "&", "&quot;": '"', "&#39;": "'" };

  function stem(word) {
    const suffix = ["ing", "ed", "es", "s"].find((end) => word.endsWith(end) && word.length >= end.length + 3);
    const rest = suffix ? word.slice(0, -suffix.length) : word;
    return rest.endsWith("e") && rest.length > 4 ? rest.slice(0, -1) : rest;
  }

  function words(html) {
    const text = html.replace(/<[^>]+>/g, " ").replace(/&(lt|gt|amp|quot|#39);/g, (entity) => ENTITIES[entity]);
    const all = text.toLowerCase().match(/[\p{L}\p{N}]+/gu) || [];
    return all.filter((word) => !STOP_WORDS.has(word)).map(stem);
  }

  function ranking(documents) {
    const counts = documents.map((terms) => {
      const count = new Map();
      for (const term of terms) count.set(term, (count.get(term) || 0) + 1);
      return count;
    });
    const holders = new Map();
    for (const count of counts) for (const term of count.keys()) holders.set(term, (holders.get(term) || 0) + 1);
    const average = documents.reduce((sum, terms) => sum + terms.length, 0) / documents.length;
    return (number, query) => query.reduce((sum, term) => {
      const frequency = counts[number].get(term) || 0;
      const rarity = Math.log(1 + (documents.length - holders.get(term) + 0.5) / (holders.get(term) + 0.5));
      const length = SATURATION * (1 - LENGTH_SHARE + (LENGTH_SHARE * documents[number].length) / average);
      return frequency ? sum + (rarity * frequency * (SATURATION + 1)) / (frequency + length) : sum;
    }, 0);
  }

  const times = (count, terms) => Array(count).fill(terms).flat();

  function weight(page) {
    if (/^(guides|start)\//.test(page)) return 1.15;
    if (/^(reference\/(rest|journal)|files)\//.test(page)) return 0.8;
    return page.startsWith("course/") ? 0.9 : 1;
  }

  function buildOrder(items) {
    const pageOf = items.map((item) => item.location.split("#")[0]);
    const pages = new Map();
    pageOf.forEach((page, number) => pages.set(page, [...(pages.get(page) || []), number]));
    const names = [...pages.keys()];
    const sectionScore = ranking(items.map((item) => [...times(3, words(item.title)), ...words(item.text)]));
    const pageScore = ranking(names.map((page) => [
      ...times(4, words(items[pages.get(page)[0]].title)), ...times(2, words(page.replace(/[/-]/g, " "))),
      ...pages.get(page).flatMap((number) => [...times(2, words(items[number].title)), ...words(items[number].text)]),
    ]));
    return (results, input) => {
      const query = words(input);
      const score = new Map(results.map((item) => [item.id, sectionScore(item.id, query)]));
      const best = new Map();
      for (const item of results) {
        const known = best.get(pageOf[item.id]);
        if (!known || score.get(item.id) > score.get(known.id)) best.set(pageOf[item.id], item);
      }
      const total = (item) => weight(pageOf[item.id])
        * (pageScore(names.indexOf(pageOf[item.id]), query) + score.get(item.id));
      return [...best.values()].map((item) => [total(item), item]).sort((a, b) => b[0] - a[0])
        .slice(0, RESULTS).map(([, item]) => item);
    };
  }

  const answer = self.onmessage, send = self.postMessage.bind(self);
  let order = null, input = "";
  self.postMessage = (message) => {
    if (message.type === 3 && order && words(input).length) {
      const items = order(message.data.items, input);
      message = { type: 3, data: { ...message.data, items, pagination: { total: items.length } } };
    }
    send(message);
  };
  self.onmessage = (event) => {
    if (event.data.type === 0) order = buildOrder(event.data.data.items);
    if (event.data.type === 2) input = typeof event.data.data.input === "string" ? event.data.data.input : "";
    answer(event);
  };
})();
