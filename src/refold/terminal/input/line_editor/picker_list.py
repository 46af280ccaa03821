"""Draws a list to choose from with prompt_toolkit, and erases it afterwards.

`views.picker` decides what each key does.
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
    ESC_ALONE_SECONDS,
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

_OTHER_ROWS = 4  # rows of a screen outside of the list
_PAGE_ROWS = 10
_STEP_KEYS = {
    "up": -1, "c-p": -1, "down": 1, "c-n": 1, "pageup": -_PAGE_ROWS, "pagedown": _PAGE_ROWS,
    "c-home": -1_000_000, "c-end": 1_000_000,
}  # fmt: skip


async def pick(
    printer: Printer, picker: Picker, search: Search | None, on_move: OnMove | None = None
) -> Picker | None:
    """Show the list until the user presses Enter or leaves.

    Return the list with its selection, or None if the user left.
    """
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
        self._picker = picker
        self._buffer = Buffer(multiline=False, on_text_changed=self._set_query)
        self._color_depth: ColorDepth = ColorDepth.DEPTH_4_BIT
        self._app = self._application()

    async def run(self) -> Picker | None:
        """Return the list with the choice, or None if the user left."""
        try:
            return await self._app.run_async(handle_sigint=False)
        except EOFError:  # the terminal was closed
            return None

    def _application(self) -> Application[Picker | None]:
        """Return the application: the title, the query after it, and the list below."""
        title = f"{self._picker.title} "
        query_row = VSplit(
            [
                Window(FormattedTextControl([("class:strong", title)]), width=len(title)),
                Window(BufferControl(self._buffer), height=1),
            ],
            height=1,
        )
        list_window = Window(FormattedTextControl(self._rows), dont_extend_height=True)
        arguments = drawing_arguments(self._printer.capabilities)
        self._color_depth = arguments["color_depth"]
        # A function, because a theme that is chosen in the list may have more colours.
        arguments["color_depth"] = lambda: self._color_depth
        app = Application[Picker | None](
            layout=Layout(HSplit([query_row, list_window])),
            key_bindings=self._keys(),
            erase_when_done=True,
            input=create_input(),
            **arguments,
        )
        app.ttimeoutlen = app.timeoutlen = ESC_ALONE_SECONDS
        return app

    def _keys(self) -> KeyBindings:
        """Return the bindings: Enter chooses, Esc, Ctrl+C and Ctrl+D leave, arrows select."""
        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            if self._picker.selection is not None:
                event.app.exit(result=self._picker)

        for name in ("escape", "c-c", "c-d"):

            @keys.add(name, eager=name != "escape")
            def _(event: KeyPressEvent) -> None:
                event.app.exit(result=None)

        for name, steps in _STEP_KEYS.items():

            @keys.add(name)
            def _(event: KeyPressEvent, steps: int = steps) -> None:
                self._set_picker(move_selection(self._picker, steps))

        if self._picker.dial:
            self._add_dial_keys(keys)
        return keys

    def _add_dial_keys(self, keys: KeyBindings) -> None:
        """Bind the arrows that turn the dial, which changes a value such as the effort."""
        for name, steps in (("left", -1), ("right", 1)):

            @keys.add(name)
            def _(event: KeyPressEvent, steps: int = steps) -> None:
                self._picker = turn_dial(self._picker, steps)

    def _set_picker(self, new_picker: Picker) -> None:
        """Replace the list, and pass it to `on_move` if another item is selected now."""
        old_selection, self._picker = self._picker.selection, new_picker
        if self._on_move and new_picker.selection not in (old_selection, None):
            self._on_move(new_picker)
            self._apply_theme()  # `on_move` may have changed it

    def _apply_theme(self) -> None:
        """Use the current colours of the printer."""
        colors = style_arguments(self._printer.capabilities)
        self._app.style = colors["style"]
        self._color_depth = colors["color_depth"]

    def _rows(self) -> StyleAndTextTuples:
        """Return the visible rows of the list, and a row with the keys."""
        height = (self._printer.capabilities.height() or 24) - _OTHER_ROWS
        rows: StyleAndTextTuples = []
        for row in picker_rows(self._picker, self._printer.free_columns - 1, height):
            rows += [(f"class:{style}", text) for style, text in row]
            rows.append(("", "\n"))
        return [*rows, ("class:dim", cut(PICKER_KEYS, self._printer.free_columns - 1))]

    def _set_query(self, buffer: Buffer) -> None:
        """Filter the list by the typed text. Hidden text is searched in the background."""
        text = buffer.text.strip()
        if text != self._picker.query:
            self._set_picker(with_query(self._picker, text))
            if text and self._search:
                self._app.create_background_task(self._search_for(text, self._search))

    async def _search_for(self, text: str, search: Search) -> None:
        ids = await anyio.to_thread.run_sync(search, text)
        self._picker = with_matches(self._picker, text, ids)
        self._app.invalidate()
