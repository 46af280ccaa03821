"""What a model says and thinks, printed as it comes.

Words stay on the screen as they were printed; a thought is shown while it lasts, and
stays as one line. What else happens in a turn prints `showing`.
"""

from refold.cli.terminal.doing import Doing
from refold.cli.terminal.screen import Screen
from refold.views.cells import cut
from refold.views.escape import Visible, visible
from refold.views.prose import Prose

_WIDEST = 100  # cells of prose: longer lines are hard to read


class Speech:
    def __init__(self, screen: Screen, doing: Doing) -> None:
        self._screen, self._doing = screen, doing
        self._thought = ""
        self._prose: Prose | None = None
        self._visible = Visible()

    def think(self, text: str) -> None:
        self._thought += text
        self._doing.tail("thinking", " ".join(self._thought[-300:].split())[-60:])

    def say(self, text: str) -> bool:
        """True if the words begin with this."""
        begins = self._prose is None
        if self._prose is None:
            if not text.strip():
                return False
            self._close_thinking()
            self._screen.gap()
            self._doing.now("")
            room = min(self._screen.room, _WIDEST) if self._screen.look.moves else 0
            self._prose = Prose(room, marks=self._screen.look.color)
            text = text.lstrip("\n")
        self._screen.pieces(self._prose.add(self._visible.add(text)))
        return begins

    def close(self) -> bool:
        """What is under way has come to its end. True if a thought was printed."""
        thought = self._close_thinking()
        if self._prose is not None:
            rest = self._prose.add(self._visible.end()) + self._prose.end()
            self._screen.pieces(rest)
            self._screen.fresh()
            self._prose = None
        return thought

    def _close_thinking(self) -> bool:
        words = " ".join(visible(self._thought).split())
        self._thought = ""
        self._doing.no_tail("thinking")
        if words:
            sign = self._screen.look.sign("thought")
            self._screen.gap()
            self._screen.say(cut(f"{sign} {words}", self._screen.room), "dim")
        return bool(words)
