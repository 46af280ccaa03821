"""Read a page of HTML and say what a keyboard or a screen reader cannot use.

    python3 check_page.py page.html

Colours that are written as numbers instead of tokens are reported, too. The exit code is 0
if nothing is wrong. The script cannot check how the page looks.
"""

import argparse
import re
import sys
from html.parser import HTMLParser

EMPTY = frozenset(
    (
        "area",
        "base",
        "br",
        "col",
        "embed",
        "hr",
        "img",
        "input",
        "link",
        "meta",
        "source",
        "track",
        "wbr",
    )
)
LABELLED = frozenset(("input", "select", "textarea"))
UNLABELLED = frozenset(("hidden", "submit", "button", "reset", "image"))


class PageParser(HTMLParser):
    """Collects the elements that functions below check, and findings as (line, sentence)."""

    def __init__(self):
        super().__init__()
        self.found, self.open = [], []
        self.ids, self.labels, self.fields = {}, set(), []
        self.level, self.headings = 0, 0
        self.texts, self.styles = {}, []
        self.lang = self.viewport = self.main = False

    def say(self, what):
        self.found.append((self.getpos()[0], what))

    def handle_starttag(self, tag, attributes):
        """Check an element, and record it: `open` has [tag, attributes, text, line]."""
        values = dict(attributes)
        if tag not in EMPTY:
            self.open.append([tag, values, "", self.getpos()[0]])
        self.check_ids(tag, values)
        self.check_document(tag, values)
        self.check_use(tag, values)
        if tag in LABELLED and values.get("type") not in UNLABELLED:
            inside = any(each[0] == "label" for each in self.open)
            named = (
                inside
                or values.get("aria-label")
                or values.get("aria-labelledby")
                or values.get("title")
            )
            self.fields.append((self.getpos()[0], tag, values.get("id", ""), bool(named)))
        if tag in ("img", "svg") and self.open:
            for each in self.open:
                each[2] += values.get("alt") or values.get("aria-label") or ""

    def check_ids(self, tag, values):
        """Report an id that occurs twice, and record the ids that labels name."""
        if id_ := values.get("id"):
            if id_ in self.ids:
                self.say(f"the id {id_!r} stands on line {self.ids[id_]} already")
            self.ids[id_] = self.getpos()[0]
        if tag == "label" and values.get("for"):
            self.labels.add(values["for"])

    def check_document(self, tag, values):
        """Record language, main and viewport, and report headings that skip a level."""
        self.lang |= tag == "html" and bool(values.get("lang"))
        self.main |= tag == "main"
        if tag == "meta" and values.get("name") == "viewport":
            self.viewport = True
            if re.search(
                r"user-scalable\s*=\s*no|maximum-scale\s*=\s*1\b",
                values.get("content") or "",
            ):
                self.say("the viewport forbids to enlarge")
        if re.fullmatch("h[1-6]", tag):
            here = int(tag[1])
            self.headings += here == 1
            if here > self.level + 1:
                self.say(
                    f"{tag} comes below h{self.level}: a level is skipped"
                    if self.level
                    else f"the first heading is {tag}"
                )
            self.level = here

    def check_use(self, tag, values):
        """Report what some users cannot read or reach by keyboard, and record a style."""
        if tag == "img" and "alt" not in values:
            self.say('a picture without alt (alt="" if it only decorates)')
        if "onclick" in values and tag not in ("a", "button", "input", "summary"):
            self.say(f"<{tag} onclick> cannot be reached by keyboard: use a button")
        if tag == "a" and not values.get("href"):
            self.say("a link without href: use a button")
        if (values.get("tabindex") or "").isdigit() and int(values["tabindex"]) > 0:
            self.say("tabindex above 0 changes the order for keyboards")
        if "style" in values:
            self.styles.append((self.getpos()[0], values["style"] or ""))

    def handle_data(self, data):
        """Add the text to that of each open element."""
        for each in self.open:
            each[2] += data

    def handle_endtag(self, tag):
        """Close the innermost open element of this tag, and all elements inside of it."""
        if not any(each[0] == tag for each in self.open):
            self.say(f"</{tag}> closes nothing")
            return
        while self.open:
            name, values, text, line = self.open.pop()
            self.check_closed(name, values, text, line)
            if name == tag:
                return

    def check_closed(self, tag, values, text, line):
        """Record the text of a style or title; report a link or heading without a name."""
        if tag == "style":
            self.styles.append((line, text))
        elif tag == "title":
            self.texts["title"] = text.strip()
        elif tag in ("a", "button", *(f"h{n}" for n in range(1, 7))):
            named = (
                text.strip()
                or values.get("aria-label")
                or values.get("title")
                or values.get("aria-labelledby")
            )
            if not named:
                self.found.append((line, f"<{tag}> has no name to be read out"))


def main(arguments):
    """Print what is wrong with a page. Return the exit code: 1 if something is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file")
    options = parser.parse_args(arguments)
    try:
        with open(options.file, encoding="utf-8-sig") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"{options.file} cannot be read: {error}")
    page = PageParser()
    page.feed(text)
    page.close()
    wrong = sorted(
        {*page.found, *check_whole(page), *check_fields(page), *check_styles(page)}
    )
    for line, what in wrong:
        sys.stdout.write(f"{options.file}:{line}: {what}\n")
    sys.stdout.write(f"{len(page.fields)} fields, {len(wrong)} wrong\n")
    return 1 if wrong else 0


def check_whole(page):
    """Report what the page as a whole lacks, and elements that are never closed."""
    if not page.lang:
        yield 1, '<html> does not say its language: lang="en"'
    if not page.viewport:
        yield 1, "there is no viewport: telephones show it tiny"
    if not page.texts.get("title"):
        yield 1, "there is no title"
    if not page.main:
        yield 1, "there is no <main>"
    if page.headings != 1:
        yield 1, f"there are {page.headings} h1: one says what the page is"
    for tag, _, _, line in page.open:
        if tag not in ("p", "li", "html", "body", "td", "tr", "th", "dt", "dd", "option"):
            yield line, f"<{tag}> is never closed"


def check_fields(page):
    """Report fields that have no name of their own and no label."""
    for line, tag, id_, named in page.fields:
        if not named and id_ not in page.labels:
            yield line, f"<{tag}> has no label"


def check_styles(page):
    """Report colors, focus and motion in the styles. `page.styles` are (line, CSS) pairs."""
    whole = "".join(text for _, text in page.styles)
    for line, text in page.styles:
        colours = re.findall(r"(?<!&)#(?:[0-9a-fA-F]{3}){1,2}\b|\brgba?\(|\bhsla?\(", text)
        for colour in sorted(set(colours)):
            yield line, f"the colour {colour} is no token"
        if re.search(r"outline\s*:\s*(none|0)", text) and ":focus-visible" not in whole:
            yield line, "the focus is made invisible"
    moves = re.search(r"\b(animation|transition)\s*:", whole)
    if moves and "prefers-reduced-motion" not in whole:
        yield 1, "things move, and nothing heeds prefers-reduced-motion"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
