"""Opens the text of the prompt in the user's editor with Ctrl+G.

Leaving the editor does not send the text.
"""

import os

from prompt_toolkit.application import in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.key_binding import KeyPressEvent

from refold.console.editor import edit_text, editor_command
from refold.console.printer import Printer
from refold.errors import RefoldError
from refold.terminal.input.line_editor.pastes import PasteMarks
from refold.views.escape import visible
from refold.views.strip_escapes import without_escapes

_NO_EDITOR = "No editor is set: set $VISUAL or $EDITOR."


class ExternalEditor:
    """Opens the user's editor. `away` is true while the editor uses the terminal."""

    def __init__(self, printer: Printer, pasted: PasteMarks) -> None:
        self._printer, self._pasted = printer, pasted
        self.away = False

    def edit(self, event: KeyPressEvent) -> None:
        event.app.create_background_task(self._edit(event.current_buffer))

    async def _edit(self, buffer: Buffer) -> None:
        """Edit the draft in the user's editor. After an error, the draft is unchanged."""
        text = self._pasted.restore_pastes(buffer.text)
        problem = ""
        self.away = True
        try:
            async with in_terminal():
                try:
                    if command := editor_command(os.environ):
                        text = await edit_text(text, command, "words.md")
                    else:
                        problem = _NO_EDITOR
                except RefoldError as error:
                    problem = str(error)
                if problem:
                    self._printer.print_text(visible(problem), "bad")
        finally:
            self.away = False
        if not problem:
            edited = without_escapes(text).rstrip("\n")
            buffer.set_document(Document(edited, len(edited)), bypass_readonly=True)
