"""The whole state of the full screen; what it shows is a function of this value."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct, field

from refold.tui.composer import Composer
from refold.tui.messages import Asked, BoardRead, Command, Facts, PanelName
from refold.tui.text_field import TextField
from refold.tui.transcript import Anchor, Transcript
from refold.values.display import Diff
from refold.values.growing import Log
from refold.views.picker import Picker
from refold.views.question_keys import Menu
from refold.views.screen.screen import Screen

PANEL_COLUMNS = 44  # of a panel at the side
SIDE_BY_SIDE = 140  # columns from which panels stand at the side
COMPACT_COLUMNS = 60  # columns below which the status line is short


class Dialog(Struct, frozen=True):
    """A question in place of the input. `scroll` is the first row of its body that is shown.

    With a `menu`, the input stays below it once it has text.
    """

    asked: Asked
    field: TextField
    scroll: int = 0
    menu: Menu | None = None


class OpenPicker(Struct, frozen=True):
    """A list to choose from: the palette (`number` 0), or one that a command waits for."""

    number: int
    picker: Picker


class TextSearch(Struct, frozen=True):
    """A search in the transcript. `at` is the matching item, or -1."""

    field: TextField = TextField()
    at: int = -1
    missed: bool = False


class WatchedNode(Struct, frozen=True):
    """A subagent's transcript or a command's output, shown over the session's."""

    node: str
    title: str
    transcript: Transcript
    anchor: Anchor | None = None
    screen: Screen = field(default_factory=Screen)  # of a subagent
    answered: bool = False  # whether the journal has the streaming text by now


Overlay: TypeAlias = Dialog | OpenPicker | TextSearch
Focus: TypeAlias = Literal["input", "transcript", "panel"]


class Model(Struct, frozen=True):
    """The state. `selected` is the transcript item that keys act on, `panel_row` the panel's.

    `waiting` are questions that were asked while another one is shown.
    """

    width: int = 80
    height: int = 24
    now: float = 0.0
    screen: Screen = field(default_factory=Screen)
    transcript: Transcript = field(default_factory=Transcript)
    # Of files that this session changed.
    diffs: Log[Diff] = field(default_factory=Log[Diff])
    anchor: Anchor | None = None
    facts: Facts = Facts()
    composer: Composer = Composer()
    drafts: Mapping[str, str] = {}  # drafts of sessions that were left, by their ids
    focus: Focus = "input"
    selected: int = -1
    panel: PanelName = ""
    panel_row: int = 0
    board: BoardRead | None = None  # None: not read yet
    printed: Mapping[str, str] = {}  # the last line of each running background command
    overlay: Overlay | None = None
    waiting: tuple[Asked, ...] = ()
    watching: WatchedNode | None = None
    # When the person last pressed a key other than an arrow at a question.
    typed_at: float = 0.0
    clock: float = 0.0  # by the same clock, when the session last did something
    interrupted_at: float = float("-inf")  # when Ctrl+C was pressed last
    escaped_at: float = float("-inf")  # when Esc was pressed last, with nothing to stop
    sent_at: float = float("-inf")  # when a message was sent whose turn has not begun
    sent_text: str = ""  # of the message that began the turn, or is about to
    stops_next: bool = False  # a stop was asked for before that turn began
    hint: str = ""  # a short answer to the last key, until the next one


Updated: TypeAlias = tuple[Model, tuple[Command, ...]]
