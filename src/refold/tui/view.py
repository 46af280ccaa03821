"""Makes the frame that the screen shows: rows of styled text, and the cursor. Pure.

From top to bottom, it has the transcript, the current activity, queued messages, the input (or
a question in its place), and the status line. A panel is to the right of the transcript on a
wide screen, and below it on a narrow one.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from refold.tui.composer import Composer
from refold.tui.model import (
    COMPACT_COLUMNS,
    PANEL_COLUMNS,
    SIDE_BY_SIDE,
    Dialog,
    Model,
    OpenPicker,
    TextSearch,
    WatchedNode,
)
from refold.tui.overlays import dialog_rows, open_picker_rows
from refold.tui.panels import PANEL_HINTS, PANEL_TITLES, empty_note, is_empty, panel_entries
from refold.tui.text_field import lay_out
from refold.tui.transcript import visible_rows
from refold.views.children_list import running_summary
from refold.views.escape import escape_to_one_line, visible
from refold.views.number_format import duration, money, tokens, window_share
from refold.views.question_keys import WAITING_NOTICE
from refold.views.screen.blocks import CallBlock, MessageBlock
from refold.views.screen.conversation import is_from_shell
from refold.views.screen.status import attempt_text, ports_text
from refold.views.styled import Line, Piece, Style, line
from refold.views.wrap import cells, cut, truncate

_SPINNER_FRAMES_PER_SECOND = 10
_SPINNER_SIGNS = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_MAX_OFFERS = 8  # completions shown at the same time
_PANEL_ROWS = 14  # of a panel below the transcript
_ONE_ROW_CELLS = 10_000  # a width at which the words of a search stay on one row
_MIN_TITLE_CELLS = 8  # of what is watched, even on a narrower screen
_RULE_MARGIN_CELLS = 4  # of the line above the input that stay a line
_RULE_EXTRA_CELLS = 8  # this margin, and the blanks around the title and the hint
_MAX_QUEUE_ROWS = 3  # one for each queued message that is shown
_MIN_TRANSCRIPT_ROWS = 3  # of the transcript that always stay visible
_EMPTY_HINTS = ("Ask anything", "/ for commands", "@ for files", "Ctrl+P for everything")
_WORKING_HINTS = (
    "Enter: for the next step",
    "Alt+Enter: after this turn",
    "Esc stops",
)
_CUT_OFF_HINTS = (
    "/continue continues it",
    "a message is sent with it",
    "Esc ends it",
)
_KEY_HINT = "Esc closes · Shift+↑↓ scroll"


class Frame(Struct, frozen=True):
    """All rows of the screen. `cursor` is the row and column of the cursor; None if it is
    hidden.
    """

    rows: tuple[Line, ...]
    cursor: tuple[int, int] | None = None


class Areas(Struct, frozen=True):
    """The parts of the screen. The transcript has `text_width` cells and `height` rows.

    `mark` is the number of cells left of the transcript, for the mark beside the selected
    block.
    """

    text_width: int
    height: int
    panel_width: int = 0
    panel_height: int = 0
    side: bool = False
    bottom: tuple[Line, ...] = ()
    cursor: tuple[int, int] | None = None  # row within `bottom`, and column
    mark: int = 0


def view(model: Model) -> Frame:
    """Return the frame that the screen shows in this state."""
    layout = divide_screen(model)
    rows = _transcript_rows(model, layout)
    if layout.side:
        panel = _panel_rows(model, layout.panel_width, layout.panel_height)
        rows = [
            _row_with_panel(row, layout.mark + layout.text_width, panel[index])
            for index, row in enumerate(rows)
        ]
    elif layout.panel_height:
        rows += _panel_rows(model, layout.panel_width, layout.panel_height)
    cursor = None
    if layout.cursor is not None:
        bottom_row, column = layout.cursor
        cursor = (len(rows) + bottom_row, column)
    rows += layout.bottom
    return Frame(tuple(truncate(row, model.width) for row in rows), cursor)


def divide_screen(model: Model) -> Areas:
    """Return the areas of the screen. If it is very low, the transcript is the first to lose
    its rows.
    """
    bottom, cursor = _bottom_rows(model)
    height = max(model.height, 1)
    if len(bottom) > height:
        lost_count = len(bottom) - height
        bottom = bottom[lost_count:]
        if cursor is not None:
            row, column = cursor
            cursor = (row - lost_count, column) if row >= lost_count else None
    free_rows = height - len(bottom)
    is_wide = model.width >= SIDE_BY_SIDE
    mark = int(model.focus == "transcript")
    without_panel = Areas(
        model.width - mark, free_rows, bottom=tuple(bottom), cursor=cursor, mark=mark
    )
    is_low = not is_wide and free_rows < 2 * _MIN_TRANSCRIPT_ROWS
    if not model.panel or is_low or is_empty(model):
        return without_panel
    if is_wide:
        text_width = without_panel.text_width - PANEL_COLUMNS - 2
        return replace(
            without_panel,
            text_width=text_width,
            panel_width=PANEL_COLUMNS,
            panel_height=free_rows,
            side=True,
        )
    entries = panel_entries(model, model.width - 2)
    needed = 2 + sum(len(entry.rows) for entry in entries)
    panel_height = max(min(free_rows // 2, _PANEL_ROWS, needed), _MIN_TRANSCRIPT_ROWS)
    return replace(
        without_panel,
        height=free_rows - panel_height,
        panel_width=model.width,
        panel_height=panel_height,
    )


def _transcript_rows(model: Model, layout: Areas) -> list[Line]:
    """Return the rows of the transcript, with empty rows below; [] if it has no room."""
    if not layout.height:
        return []
    pane: Model | WatchedNode = model.watching or model
    rows, items = visible_rows(
        pane.transcript, pane.anchor, layout.text_width, layout.height
    )
    if isinstance(model.overlay, TextSearch) and model.overlay.field.text:
        rows = [_mark_words(row, model.overlay.field.text) for row in rows]
    rows = [truncate(row, layout.text_width) for row in rows]
    if layout.mark:
        rows = [
            _mark_row(row, items, index, model.selected) for index, row in enumerate(rows)
        ]
    # A short transcript starts at the top; the input stays at the bottom.
    return [*rows, *([()] * (layout.height - len(rows)))]


def _mark_row(row: Line, items: Sequence[int], index: int, selected: int) -> Line:
    """Return a row of the transcript, with a mark if it belongs to the selected item.

    `items` has the item of each row, `index` is the index of this row. The empty row above the
    item gets no mark.
    """
    is_gap_above = not row and selected not in items[:index]
    is_marked = items[index] == selected and not is_gap_above
    mark: Piece = ("accent", "▌" if is_marked else " ")
    return (mark, *row)


def _panel_rows(model: Model, width: int, height: int) -> list[Line]:
    """Return the rows of the panel: its title, entries from the selected one on, and a hint."""
    has_focus = model.focus == "panel"
    title = f" {PANEL_TITLES[model.panel]} "
    rule = "─" * max(width - cells(title) - 1, 0)
    title_row: Line = (
        ("border", "─"), ("strong" if has_focus else "dim", title), ("border", rule),
    )  # fmt: skip
    body = list[Line]()
    selected_start = 0  # the first row of the selected entry
    for index, entry in enumerate(panel_entries(model, width - 2)):
        mark: Piece = ("plain", "  ")
        if has_focus and index == model.panel_row:
            selected_start = len(body)
            mark = ("accent", "› ")
        for row in entry.rows:
            body.append((mark, *row))
            mark = ("plain", "  ")  # only the first row of an entry is marked
    body_height = max(height - 2, 0)  # without title and hint
    start = 0
    if has_focus and len(body) > body_height:
        start = min(selected_start, len(body) - body_height)
    shown = body[start : start + body_height]
    blank_rows: list[Line] = [()] * (body_height - len(shown))
    hint = PANEL_HINTS.get(model.panel, "") if has_focus else "Tab to focus"
    hint_row: Line = (("dim", cut(f"  {hint}", width)),)
    rows = [title_row, *shown, *blank_rows, hint_row]
    return [truncate(row, width) for row in rows[:height]]


def _row_with_panel(row: Line, width: int, panel: Line) -> Line:
    used = sum(cells(text) for _, text in row)
    return (*row, ("plain", " " * (width - used)), ("border", "│ "), *panel)


def _bottom_rows(model: Model) -> tuple[list[Line], tuple[int, int] | None]:
    """Return the rows below the transcript, and the row and column of the cursor, or None."""
    rows_above = [*_activity_rows(model), *_queue_rows(model)]
    match model.overlay:
        case Dialog() as dialog:
            input_rows, cursor = _question_rows(model, dialog)
        case OpenPicker() as choosing:
            input_rows, cursor = open_picker_rows(model, choosing)
        case TextSearch() as finding:
            input_rows, cursor = _search_rows(model, finding)
        case None:
            input_rows, cursor = _composer_rows(model)
    rows = [*rows_above, *input_rows, _status_row(model)]
    if cursor is None:
        return rows, None
    row, column = cursor
    return rows, (len(rows_above) + row, column)


def _question_rows(
    model: Model, dialog: Dialog
) -> tuple[list[Line], tuple[int, int] | None]:
    """Return the rows of a question, and below it the message that the user is typing, if any."""
    rows, cursor = dialog_rows(model, dialog)
    if model.watching is not None:  # the rule above the question has its name
        _rule, *other_rows = rows
        rows = [_rule_row(model), *other_rows]
    if dialog.menu is None or not model.composer.field.text:
        return rows, cursor
    draft_rows, (draft_row, column) = _composer_rows(model)
    return [*rows, *draft_rows], (len(rows) + draft_row, column)


def _activity_rows(model: Model) -> list[Line]:
    """Return a row about what the running turn does; [] if no turn runs."""
    view, status = model.screen.view, model.screen.status
    if not view.turn.seq or isinstance(model.overlay, Dialog):
        return []
    if model.facts.cut_off:
        return [truncate(line("this turn was cut off", "warn"), model.width)]
    elapsed = max(model.now - (status.since or view.turn.started_at), 0.0)
    frame = int(model.now * _SPINNER_FRAMES_PER_SECOND) % len(_SPINNER_SIGNS)
    spinner = _SPINNER_SIGNS[frame]
    if status.reason and status.doing == "waiting":
        seconds_left = max(status.seconds - elapsed, 0.0)
        text = reason = escape_to_one_line(status.reason)
        if status.attempt:  # first, because the reason may be wider than the screen
            text = f"{attempt_text(status, seconds_left)} · {reason}"
        elif status.seconds:
            text = f"{reason}; retrying in {duration(seconds_left)}"
        row: Line = (("warn", f"{spinner} {text}"),)
    else:
        activity = status.doing or ("writing" if model.screen.coming else "working")
        row = (("accent", spinner), ("dim", f" {activity} {duration(elapsed)}"))
    progress = {moved.node: moved for moved in model.screen.moved}
    usage = view.turn.spent.usage
    parts = [
        running_summary(view.children, progress, view.turn.seq),
        f"{tokens(usage.input + usage.output)} tokens" if usage.input else "",
        "" if status.attempt else "Esc stops",
    ]
    details = "".join(f" · {part}" for part in parts if part)
    return [truncate((*row, ("dim", details)), model.width)]


def _queue_rows(model: Model) -> list[Line]:
    """Return a row for each message that the model has not received yet.

    If ↑ would withdraw the newest message of the queue, the last row says so.
    """
    undelivered = [
        block
        for block in model.screen.open
        if isinstance(block, MessageBlock) and not is_from_shell(block.sender)
    ]
    rows = list[Line]()
    for block in undelivered[:_MAX_QUEUE_ROWS]:
        when = "after this turn" if block.later else "not read yet"
        text = escape_to_one_line(block.user_text)
        rows.append(truncate((("accent", f"  ▸ {when}: "), ("dim", text)), model.width))
    hidden_count = len(undelivered) - _MAX_QUEUE_ROWS
    if hidden_count > 0:
        rows.append((("dim", f"    {hidden_count} more"),))
    # Messages for the turn's next request are not in the queue: ↑ cannot withdraw them.
    has_queue = bool(model.screen.view.message_queue)
    if rows and has_queue and not model.composer.field.text:
        rows[-1] = truncate((*rows[-1], ("dim", " · ↑ edits it")), model.width)
    return rows


def _composer_rows(model: Model) -> tuple[list[Line], tuple[int, int]]:
    """Return the rows of the input and its completions, and the row and column of the cursor."""
    composer = model.composer
    width = max(model.width - 2, 2)
    layout = lay_out(composer.field, width)
    # The row with the cursor is in the middle, except near the ends of the text.
    max_rows = max(model.height // 3, 1)
    first = max(0, min(layout.row - max_rows // 2, len(layout.rows) - max_rows))
    input_rows: list[Line] = []
    for index, text in enumerate(layout.rows[first : first + max_rows], first):
        sign: Piece = ("person", "  " if index else "› ")
        start, end = layout.selected[index]
        selected: Piece = ("selected", text[start:end])
        parts: Line = (("plain", text[:start]), selected, ("plain", text[end:]))
        input_rows.append((sign, *(part for part in parts if part[1])))
    if not composer.field.text:
        hints = cut(_empty_input_hints(model), width)
        input_rows = [(("person", "› "), ("dim", hints))]
    elif composer.suggestion:
        free_cells = width - cells(layout.rows[-1])
        suggestion: Piece = ("dim", cut(composer.suggestion, free_cells))
        input_rows[-1] = (*input_rows[-1], suggestion)
    rows_above = [*_completion_rows(composer, model.width), _rule_row(model)]
    if composer.search is not None:
        text = cut(f"search in earlier inputs: {composer.search}", width)
        rows_above.append((("dim", text),))
    cursor_row = len(rows_above) + layout.row - first
    return [*rows_above, *input_rows], (cursor_row, 2 + layout.cell)


def _empty_input_hints(model: Model) -> str:
    """Return hints for an empty input, as many as there is space for."""
    text = ""
    hints = _EMPTY_HINTS
    if model.screen.view.turn.seq:
        hints = _CUT_OFF_HINTS if model.facts.cut_off else _WORKING_HINTS
    for hint in hints:
        longer = f"{text} · {hint}" if text else hint
        if cells(longer) > model.width - 2:
            break
        text = longer
    return text


def _completion_rows(composer: Composer, width: int) -> list[Line]:
    """Return rows with the completions around the chosen one; [] if there are none."""
    count, chosen = len(composer.offers), composer.chosen
    if not count:
        return []
    first = max(0, min(chosen - _MAX_OFFERS // 2, count - _MAX_OFFERS))
    shown = composer.offers[first : first + _MAX_OFFERS]
    names = [escape_to_one_line(offer.shown or offer.text) for offer in shown]
    column_width = min(max(map(cells, names)), width // 2)
    rows = list[Line]()
    for index, (full_name, offer) in enumerate(zip(names, shown, strict=True), first):
        name = cut(full_name, column_width)
        padding = " " * (column_width - cells(name))
        style: Style = "selected" if index == chosen else "accent"
        about = escape_to_one_line(offer.about)
        row: Line = ((style, f" {name}{padding} "), ("dim", f" {about}"))
        rows.append(truncate(row, width))
    if count > _MAX_OFFERS:
        rows.append((("dim", f" {max(chosen, 0) + 1} of {count}"),))
    return rows


def _search_rows(model: Model, finding: TextSearch) -> tuple[list[Line], tuple[int, int]]:
    """Return the rows of the search, and the row and column of the cursor."""
    layout = lay_out(finding.field, _ONE_ROW_CELLS)
    text = "not found" if finding.missed else "Enter: older · Shift+Tab: newer · Esc closes"
    rows: list[Line] = [
        (("accent", "─" * model.width),),
        (("strong", " search: "), ("plain", layout.rows[0])),
        (("warn" if finding.missed else "dim", f" {text}"),),
    ]
    return rows, (1, min(len(" search: ") + layout.cell, model.width - 1))


def _rule_row(model: Model) -> Line:
    """Return the line above the input, with a mode and the name of what is watched.

    The permission mode is named if it is unusual. The line also has notes about the panel,
    the mode of vi, and a scrolled transcript. If these notes do not fit, all of them are left
    out.
    """
    mode = model.facts.mode
    pieces = list[Piece]()
    if model.watching:
        free_cells = model.width - cells(_KEY_HINT) - _RULE_EXTRA_CELLS
        title_width = max(free_cells, _MIN_TITLE_CELLS)
        title = cut(escape_to_one_line(model.watching.title), title_width)
        pieces.append(("accent", f" {title} "))
        pieces.append(("dim", f"{_KEY_HINT} "))
    elif mode != "default":
        pieces.append(("bad" if mode == "bypass" else "warn", f" {mode} "))
    note = "" if model.watching else empty_note(model)
    if note:
        pieces.append(("dim", f" {note} "))
    field = model.composer.field
    if field.vi and field.mode != "insert":
        vi_text = f" {field.mode} {visible(field.pending)}".rstrip()
        pieces.append(("accent", f"{vi_text} "))
    if model.anchor is not None and not model.watching:
        pieces.append(("dim", " Ctrl+End: jump to latest "))
    used_cells = sum(cells(text) for _, text in pieces)
    if used_cells > model.width - _RULE_MARGIN_CELLS:
        return (("border", "─" * model.width),)
    rule = "─" * (model.width - used_cells - len("──"))
    return (("border", "──"), *pieces, ("border", rule))


def _status_row(model: Model) -> Line:
    """Return the status line, or a warning or hint in its place.

    At the left are model, effort, agent and branch; at the right, among others, context, cost
    and todos. A narrow screen shows fewer of them.
    """
    facts = model.facts
    if not isinstance(model.overlay, Dialog):
        if model.waiting:
            return (("warn", cut(f" {WAITING_NOTICE}: Esc shows it", model.width)),)
        if model.hint:
            return (("warn", cut(f" {model.hint}", model.width)),)
    name = escape_to_one_line(facts.model)
    if model.width < COMPACT_COLUMNS:
        _, _, short_name = name.rpartition("/")
        left = [short_name]
    else:
        agent = facts.agent if facts.agent != "main" else ""
        left = [name, facts.effort, agent, escape_to_one_line(facts.branch)]
    end = " · ".join(part for part in _usage_parts(model) if part)
    start = " · ".join(part for part in left if part)
    # A blank is before the line and after it, and at least one between its two parts.
    start = cut(f" {start}", max(model.width - cells(end) - 3, 0))
    padding = max(model.width - cells(start) - cells(end) - 1, 1)
    return truncate((("dim", f"{start}{' ' * padding}{end}"),), model.width)


def _usage_parts(model: Model) -> list[str]:
    """Return the parts at the right of the status line; "" for those that are not shown."""
    view = model.screen.view
    is_compact = model.width < COMPACT_COLUMNS
    share = window_share(view.account.last_usage, view.conversation.system_prompt.window)
    spent = money(view.account.spent) if view.account.spent.answers else ""
    todos = view.conversation.todos
    done_count = sum(todo.status == "done" for todo in todos)
    running_count = sum(
        isinstance(block, CallBlock) and block.stage == "running"
        for block in model.screen.open
    )
    background_count = len(view.background.running)
    return [
        f"{running_count} running" if running_count > 1 and not is_compact else "",
        ports_text(model.screen.ports),
        f"{background_count} in background" if background_count else "",
        f"{done_count}/{len(todos)} todos" if todos and not is_compact else "",
        share.replace(" of window", "") if is_compact else share,
        spent,
        "" if is_compact else "? keys",
    ]


def _mark_words(row: Line, text: str) -> Line:
    """Return the row with the searched words marked, unless they continue on the next row."""
    return tuple(part for piece in row for part in _mark_piece(piece, text.casefold()))


def _mark_piece(piece: Piece, query: str) -> Iterator[Piece]:
    """Yield the parts of a piece. Those equal to `query`, which is casefolded, are marked."""
    style, text = piece
    folded = text.casefold()
    position = 0
    if len(folded) == len(text):  # otherwise the indexes of the two texts differ
        while (start := folded.find(query, position)) >= 0:
            if start > position:
                yield style, text[position:start]
            position = start + len(query)
            yield "selected", text[start:position]
    if position < len(text):
        yield style, text[position:]
