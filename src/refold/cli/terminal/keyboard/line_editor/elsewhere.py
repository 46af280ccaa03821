"""What is typed at a prompt, edited in the person's own editor. It is not sent."""

import os

from prompt_toolkit.application import in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.key_binding import KeyPressEvent

from refold.cli.terminal.display.paper import Paper
from refold.cli.terminal.keyboard.editor import edited, editor_of
from refold.cli.terminal.keyboard.line_editor.pasting import Pasted
from refold.cli.terminal.own.unordered import unordered
from refold.errors import RefoldError
from refold.views.escape import visible

_NO_EDITOR = "No editor is named: set $VISUAL or $EDITOR."


class Elsewhere:
    """`away`: an editor has the terminal now."""

    def __init__(self, paper: Paper, pasted: Pasted) -> None:
        self._paper, self._pasted = paper, pasted
        self.away = False

    def edit(self, event: KeyPressEvent) -> None:
        event.app.create_background_task(self._edited(event.current_buffer))

    async def _edited(self, buffer: Buffer) -> None:
        text, problem = self._pasted.whole(buffer.text), ""
        self.away = True
        try:
            async with in_terminal():
                try:
                    if command := editor_of(os.environ):
                        text = await edited(text, command, "words.md")
                    else:
                        problem = _NO_EDITOR
                except RefoldError as error:
                    problem = str(error)
                if problem:
                    self._paper.say(visible(problem), "bad")
        finally:
            self.away = False
        if not problem:
            found = unordered(text).rstrip("\n")
            buffer.set_document(Document(found, len(found)), bypass_readonly=True)
