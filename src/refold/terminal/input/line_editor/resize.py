"""A terminal that becomes narrower while something is typed: all that was drawn is taken back.

prompt_toolkit goes up as many rows as it has drawn. A terminal that fits old lines into
its new width has made more of them, and would keep the uppermost: a second prompt. Where
it is not known to do that (`Look.up`), nothing is taken back that may be somebody else's.
"""

from typing import Any

from prompt_toolkit.application import Application

from refold.terminal.screen.capabilities import Look


def taking_all_back(app: Application[Any], look: Look) -> None:
    """From now on, whenever `app` takes back what it has drawn."""
    if not look.up:
        return
    erase = app.renderer.erase

    def all_of_it(leave_alternate_screen: bool = True) -> None:
        app.output.cursor_up(_more_rows(app))
        erase(leave_alternate_screen)

    app.renderer.erase = all_of_it


def _more_rows(app: Application[Any]) -> int:
    """How many rows of this width stand above the cursor, besides those that were drawn."""
    drawn = app.renderer.last_rendered_screen
    if drawn is None:
        return 0
    cursor = drawn.get_cursor_position(app.layout.current_window)
    above = [
        max((at + cell.width for at, cell in row.items() if cell.char != " "), default=0)
        for number, row in drawn.data_buffer.items()
        if number < cursor.y
    ]
    columns = max(app.output.get_size().columns, 1)
    # A row that is full goes on in the next only with one letter more.
    return sum(max(wide - 1, 0) // columns for wide in (*above, cursor.x))
