// A link to a section that was moved to another page leads there. `moved-sections.js` says which.
(() => {
  const site = new URL("..", document.currentScript.src);
  const page = location.href.slice(site.href.length).replace(/(index\.html)?([?#].*)?$/, "");
  const follow = () => {
    const anchor = decodeURIComponent(location.hash.slice(1));
    const sections = window.refoldMovedSections[page.replace(/\/$/, "")] || {};
    if (!(anchor in sections) || document.getElementById(anchor)) return;
    const [target, section] = sections[anchor].split("#");
    const file = location.protocol === "file:" ? "index.html" : "";
    location.replace(new URL(`${target}/${file}${section ? `#${section}` : ""}`, site));
  };
  follow();
  addEventListener("hashchange", follow);
})();
