"""Draws the list of a picker with prompt_toolkit, and erases it at the end.

`views.picker` decides what the keys do.
"""

import anyio
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import create_input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import (
    BufferControl,
    FormattedTextControl,
    HSplit,
    Layout,
    VSplit,
    Window,
)
from prompt_toolkit.output import ColorDepth

from refold.console.printer import Printer
from refold.terminal.input.line_editor.drawing import (
    ESC_ALONE,
    drawing_arguments,
    style_arguments,
)
from refold.views.picker import (
    PICKER_KEYS,
    OnMove,
    Picker,
    Search,
    move_selection,
    picker_rows,
    turn_dial,
    with_matches,
    with_query,
)
from refold.views.wrap import cut

_OTHER_ROWS = 4  # rows of a screen that are not the list
_PAGE_ROWS = 10
_STEP_KEYS = {
    "up": -1, "c-p": -1, "down": 1, "c-n": 1, "pageup": -_PAGE_ROWS, "pagedown": _PAGE_ROWS,
    "c-home": -1_000_000, "c-end": 1_000_000,
}  # fmt: skip


async def pick(
    printer: Printer, picker: Picker, search: Search | None, on_move: OnMove | None = None
) -> Picker | None:
    """Show the list; return it as Enter left it, or None if the person left."""
    return await _List(printer, picker, search, on_move).run()


class _List:
    def __init__(
        self,
        printer: Printer,
        picker: Picker,
        search: Search | None,
        on_move: OnMove | None,
    ) -> None:
        self._printer, self._search, self._on_move = printer, search, on_move
        self._picking = picker
        self._buffer = Buffer(multiline=False, on_text_changed=self._set_query)
        self._depth: ColorDepth = ColorDepth.DEPTH_4_BIT
        self._app = self._application()

    async def run(self) -> Picker | None:
        try:
            return await self._app.run_async(handle_sigint=False)
        except EOFError:  # the terminal is gone
            return None

    def _application(self) -> Application[Picker | None]:
        ask = f"{self._picking.title} "
        typed = VSplit(
            [
                Window(FormattedTextControl([("class:strong", ask)]), width=len(ask)),
                Window(BufferControl(self._buffer), height=1),
            ],
            height=1,
        )
        rows_ = Window(FormattedTextControl(self._rows), dont_extend_height=True)
        means = drawing_arguments(self._printer.capabilities)
        self._depth = means["color_depth"]
        means["color_depth"] = lambda: self._depth  # a theme may have more colours
        app = Application[Picker | None](
            layout=Layout(HSplit([typed, rows_])),
            key_bindings=self._keys(),
            erase_when_done=True,
            input=create_input(),
            **means,
        )
        app.ttimeoutlen = app.timeoutlen = ESC_ALONE
        return app

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            if self._picking.selection is not None:
                event.app.exit(result=self._picking)

        for name in ("escape", "c-c", "c-d"):

            @keys.add(name, eager=name != "escape")
            def _(event: KeyPressEvent) -> None:
                event.app.exit(result=None)

        for name, by in _STEP_KEYS.items():

            @keys.add(name)
            def _(event: KeyPressEvent, by: int = by) -> None:
                self._set_picker(move_selection(self._picking, by))

        for name, by in (("left", -1), ("right", 1)) if self._picking.dial else ():

            @keys.add(name)
            def _(event: KeyPressEvent, by: int = by) -> None:
                self._picking = turn_dial(self._picking, by)

        return keys

    def _set_picker(self, picking: Picker) -> None:
        before, self._picking = self._picking.selection, picking
        if self._on_move and picking.selection not in (before, None):
            self._on_move(picking)
            self._apply_theme()

    def _apply_theme(self) -> None:
        """Draw in the colours that the printer has now."""
        colors = style_arguments(self._printer.capabilities)
        self._app.style = colors["style"]
        self._depth = colors["color_depth"]

    def _rows(self) -> StyleAndTextTuples:
        height = (self._printer.capabilities.height() or 24) - _OTHER_ROWS
        rows: StyleAndTextTuples = []
        for row in picker_rows(self._picking, self._printer.free_columns - 1, height):
            rows += [(f"class:{style}", text) for style, text in row]
            rows.append(("", "\n"))
        return [*rows, ("class:dim", cut(PICKER_KEYS, self._printer.free_columns - 1))]

    def _set_query(self, buffer: Buffer) -> None:
        text = buffer.text.strip()
        if text != self._picking.query:
            self._set_picker(with_query(self._picking, text))
            if text and self._search:
                self._app.create_background_task(self._search_for(text, self._search))

    async def _search_for(self, text: str, search: Search) -> None:
        ids = await anyio.to_thread.run_sync(search, text)
        self._picking = with_matches(self._picking, text, ids)
        self._app.invalidate()
