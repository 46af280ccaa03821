"""The prompts of a talk that grows, each the one before and what is new.

In the mode `continue` all of a talk is told at every step, so what was written of
a message is kept: the same means the very same object, as for the wires. What the
other modes tell changes from step to step and is written anew. Threads may share it.
"""

from collections.abc import Sequence
from threading import Lock

from refold.provider.command.formats import form, written
from refold.provider.command.given import Context, Format
from refold.provider.command.spec import Talk
from refold.provider.command.transcript import guide, said, transcript
from refold.values.messages import Spoken


class Prompts:
    """Throw it away when you like."""

    def __init__(self, talk: Talk) -> None:
        self._context: Context = talk.context or "continue"
        self._format: Format = talk.format or "plain"
        self._window = talk.window
        self._form = form(self._format)
        self._known: list[Spoken] = []
        self._written: list[str] = []  # of each of them, with what stands before it
        self._lock = Lock()

    def prompt(self, messages: Sequence[Spoken], system: str = "") -> str:
        """What a program is told; `system` stands at its top, if any."""
        if self._context != "continue":
            told = transcript(messages, self._context, self._window, system)
            return written(told, self._format)
        top = self._form.before + self._form.one(guide(system))
        with self._lock:
            self._write(messages)
            return "".join((top, *self._written, self._form.after))

    def _write(self, messages: Sequence[Spoken]) -> None:
        while self._known and not self._still_true(messages):
            self._known.pop()
            self._written.pop()
        for spoken in messages[len(self._known) :]:
            pieces = map(self._form.one, said(spoken.message))
            self._written.append("".join(self._form.between + piece for piece in pieces))
            self._known.append(spoken)

    def _still_true(self, messages: Sequence[Spoken]) -> bool:
        known = len(self._known)
        return (
            known <= len(messages)
            and messages[known - 1] is self._known[-1]
            and messages[0] is self._known[0]
        )
