"""HTML made of elements, so that no text can become markup by mistake.

`Markup` is what is HTML already; every other text is escaped where it enters. Only names
that stand in our own source become tags and attributes.
"""

from html import escape

from refold.views.escape import on_one_line, visible


class Markup(str):
    """Text that is HTML."""

    __slots__ = ()


def text(words: str) -> Markup:
    """Any text as HTML: what nobody could see in it is written out."""
    return Markup(escape(visible(words), quote=True))


def element(tag: str, *content: str, **attributes: str) -> Markup:
    """`class_` and `for_` stand for the attributes of that name, `_` for a hyphen."""
    named = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(on_one_line(value), quote=True)}"'
        for name, value in attributes.items()
    )
    inner = "".join(each if isinstance(each, Markup) else text(each) for each in content)
    return Markup(f"<{tag}{named}>{inner}</{tag}>")


def joined(*content: str) -> Markup:
    """One after the other."""
    return Markup("".join(e if isinstance(e, Markup) else text(e) for e in content))
