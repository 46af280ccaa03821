"""The whole state of the full screen. What is displayed is a function of this value."""

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

PANEL_COLUMNS = 44  # the width of a panel at the side
SIDE_BY_SIDE = 140  # the width from which panels are at the side
COMPACT_COLUMNS = 60  # below this width the status line is short


class Dialog(Struct, frozen=True):
    """A question in place of the input. `scroll` is the first visible row of its body.

    If the question has a `menu`, the input is shown below it while the user types a message.
    """

    asked: Asked
    field: TextField
    scroll: int = 0
    menu: Menu | None = None


class OpenPicker(Struct, frozen=True):
    """A list to choose from: the command palette if `number` is 0.

    For any other number, a command waits for the choice; `number` identifies its question.
    """

    number: int
    picker: Picker


class TextSearch(Struct, frozen=True):
    """A search in the transcript. `at` is the index of the item that was found, or -1."""

    field: TextField = TextField()
    at: int = -1
    missed: bool = False


class WatchedNode(Struct, frozen=True):
    """A subagent's transcript or a command's output, shown in place of the session's
    transcript.
    """

    node: str
    title: str
    transcript: Transcript
    anchor: Anchor | None = None
    screen: Screen = field(default_factory=Screen)  # the screen of a subagent
    answered: bool = False  # whether the journal already has the streaming text


Overlay: TypeAlias = Dialog | OpenPicker | TextSearch
Focus: TypeAlias = Literal["input", "transcript", "panel"]


class Model(Struct, frozen=True):
    """The state of the full screen.

    `selected` is the index of the selected item of the transcript, `panel_row` that of the
    selected entry of the panel. `waiting` are questions that will be asked after the open one.
    """

    width: int = 80
    height: int = 24
    now: float = 0.0
    screen: Screen = field(default_factory=Screen)
    transcript: Transcript = field(default_factory=Transcript)
    # Diffs of files that this session changed.
    diffs: Log[Diff] = field(default_factory=Log[Diff])
    anchor: Anchor | None = None
    facts: Facts = Facts()
    composer: Composer = Composer()
    drafts: Mapping[str, str] = {}  # drafts of sessions that the user left, by session id
    focus: Focus = "input"
    selected: int = -1
    panel: PanelName = ""
    panel_row: int = 0
    board: BoardRead | None = None  # None: not read yet
    printed: Mapping[str, str] = {}  # the last line of each running background command
    overlay: Overlay | None = None
    waiting: tuple[Asked, ...] = ()
    watching: WatchedNode | None = None
    # When the user last pressed a key other than an arrow at a question.
    typed_at: float = 0.0
    clock: float = 0.0  # the latest time of a message so far, on the same clock
    interrupted_at: float = float("-inf")  # when Ctrl+C was last pressed
    escaped_at: float = float("-inf")  # when Esc was last pressed with nothing to stop
    sent_at: float = float("-inf")  # when a message was sent whose turn has not begun
    sent_text: str = ""  # the message that began the turn, or will begin it
    stops_next: bool = False  # a stop was requested before that turn began
    hint: str = ""  # a short response to the last key, until the next one


Updated: TypeAlias = tuple[Model, tuple[Command, ...]]
