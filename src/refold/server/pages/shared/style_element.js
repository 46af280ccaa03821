// A style sheet for code that writes its styles into a style element, which the policy of the
// pages refuses: the text becomes a sheet of the document, and goes with the element.

export function styleElement() {
  const sheet = new CSSStyleSheet();
  const element = document.createElement("span");
  const remove = element.remove.bind(element);
  element.hidden = true;
  document.adoptedStyleSheets.push(sheet);
  Object.defineProperty(element, "textContent", { set: (text) => sheet.replaceSync(text) });
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((each) => each !== sheet);
    remove();
  };
  return element;
}
