"""Shows a form of an MCP server as rows: number, value and accepted input of each field. Pure.

`console.form_prompt` reads what the user types. Web pages and editors draw forms themselves.
"""

from collections.abc import Iterator, Mapping

from refold.values.display import Form, FormField, FormValue
from refold.values.forms import field_hint, host_of, host_warning, shown_value
from refold.values.printable_names import shorten
from refold.views.escape import escape_to_one_line, visible
from refold.views.styled import Line, Piece, Style, line, plain_text
from refold.views.wrap import cells, expand_tabs, wrap_words

_HINT_INDENT = " " * 5  # puts a hint below the label of its field
_OPTION_INDENT_CELLS = 9  # before the label of an option
_MAX_INLINE_CHARS = 200  # longer hints are cut in the form; `choice_lines` shows them whole


def form_lines(form: Form, content: Mapping[str, FormValue], width: int) -> list[Line]:
    """Return the rows of a form. `content` has the values that would be sent."""
    server = escape_to_one_line(form.server)
    verb = "asks you to open a page" if form.url else "asks"
    rows = list[Line]()
    rows.append((("warn", "? "), ("strong", f"The MCP server {server} {verb}")))
    for part in expand_tabs(visible(form.message)).split("\n"):
        rows += _indent_rows(part, width, "plain")
    if form.problem:
        rows += _indent_rows(
            f"This cannot be shown: {visible(form.problem)}.", width, "warn"
        )
    elif form.url:
        rows += _indent_rows(form.url, width, "accent")
        rows.append((("dim", "  at "), ("strong", host_of(form))))
        if warning := host_warning(form):
            rows += _indent_rows(warning, width, "warn")
    for number, field in enumerate(form.fields, 1):
        rows += field_lines(number, field, content.get(field.name), width)
    if any(field.required for field in form.fields):
        rows.append(line("  * is needed", "dim"))
    return rows


def field_lines(
    number: int, field: FormField, value: FormValue | None, width: int
) -> Iterator[Line]:
    """Yield the rows of a field: "3 Colour*: red", and the accepted input.

    The accepted input is on the same row if it fits there, and below it otherwise.
    """
    mark = "*" if field.required else ""
    head: Line = (
        ("accent", f"  {number:>2} "),
        ("plain", f"{escape_to_one_line(field.label)}{mark}: "),
    )
    value_text = shown_value(field, value)
    value_piece: Piece = ("dim", "-")
    if value_text:
        value_piece = ("person", escape_to_one_line(value_text))
    row: Line = (*head, value_piece)
    hint_parts = (escape_to_one_line(field.about), field_hint(field))
    hint = shorten("; ".join(filter(None, hint_parts)), _MAX_INLINE_CHARS)
    hint_cells = cells(hint) + len("  ()")
    if cells(plain_text([row])) + hint_cells <= width:
        yield (*row, ("dim", f"  ({hint})")) if hint else row
        return
    yield row
    for part in wrap_words(hint, width - len(_HINT_INDENT), "dim"):
        yield (("dim", _HINT_INDENT), *part)


def choice_lines(field: FormField, width: int) -> Iterator[Line]:
    """Yield a field with its options numbered, to be shown before the user fills it in."""
    if len(field.about) > _MAX_INLINE_CHARS:
        yield from _indent_rows(escape_to_one_line(field.about), width, "dim")
    label_width = width - _OPTION_INDENT_CELLS
    for number, option in enumerate(field.options, 1):
        for row in wrap_words(escape_to_one_line(option.label), label_width, "plain"):
            yield (("accent", f"     {number:>3} "), *row)


def _indent_rows(text: str, width: int, style: Style) -> list[Line]:
    return [(("plain", "  "), *row) for row in wrap_words(text, width - 2, style)]
