"""What the full screen hears, and what it wants done: one value each, and nothing else.

`update` takes a message and gives commands. The runtime turns keys, signals and the news of
the session into messages, and carries the commands out.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from refold.client.protocol import Order
from refold.client.types import Frame
from refold.tui.image_sizes import ImageSize
from refold.values.control import BoardTask
from refold.values.modes import Effort, Mode
from refold.views.picker import CompletionItem, Picker
from refold.views.question_keys import Menu
from refold.views.screen.screen import Screen
from refold.views.styled import Line

PanelName: TypeAlias = Literal[
    "", "todos", "tasks", "agents", "background", "changes", "cost", "plan"
]
PANEL_NAMES: tuple[PanelName, ...] = (
    "todos", "tasks", "agents", "background", "changes", "cost", "plan",
)  # fmt: skip


class Key(Struct, frozen=True):
    """A key that is no letter, as `ctrl+o`, `alt+enter`, `pageup`. `at`: seconds."""

    name: str
    at: float = 0.0


class Typed(Struct, frozen=True):
    """Letters."""

    text: str
    at: float = 0.0


class Paste(Struct, frozen=True):
    text: str
    at: float = 0.0


class Mouse(Struct, frozen=True):
    """Cells are counted from 0."""

    kind: Literal["press", "wheel_up", "wheel_down"]
    column: int
    row: int


class Resized(Struct, frozen=True):
    width: int
    height: int


class Tick(Struct, frozen=True):
    """Some time has gone by. `now` is the time of the journal, in seconds."""

    now: float


class News(Struct, frozen=True):
    """Events of the session in their order, and pieces of what is being written."""

    frames: tuple[Frame, ...]


class Loaded(Struct, frozen=True):
    """The session so far, folded elsewhere: first its end, for a long one, and then all of it."""

    screen: Screen


class Facts(Struct, frozen=True):
    """What holds for the next turn, as the handle says it."""

    session: str = ""
    model: str = ""
    effort: Effort = ""
    agent: str = ""
    mode: Mode = "default"
    branch: str = ""
    directory: str = ""


class FactsChanged(Struct, frozen=True):
    facts: Facts


class DraftLeft(Struct, frozen=True):
    """A command leaves the session, and its draft; what is typed from now on is for the other.

    `back`: the other cannot be opened.
    """

    back: bool = False


class RowsPrinted(Struct, frozen=True):
    """A command has printed these rows; they stand in the transcript, and in no journal.

    `begins`: the row is the command itself, as it was typed.
    """

    rows: tuple[Line, ...]
    begins: bool = False


class Asked(Struct, frozen=True):
    """A command or a session asks the person, under this number.

    `body` is what they are asked about, `prompt` the last line. With `keys`, one of them is
    the answer; without, a text, which begins as `text`. `menu` is a question that the person did
    not begin: what is typed meanwhile is a message. `many`: it may have several lines.
    """

    number: int
    body: tuple[Line, ...]
    prompt: Line
    keys: str = ""
    text: str = ""
    many: bool = False
    follows: bool = False  # more rows of a body that was shown before: its end is shown
    at: float = 0.0
    menu: Menu | None = None


class AskedToPick(Struct, frozen=True):
    """A command asks the person to choose from a list."""

    number: int
    picker: Picker


class Woken(Struct, frozen=True):
    """The seconds of `WakeAfter` have passed."""

    at: float


class Matched(Struct, frozen=True):
    """A search for `query` has found these items of the list `number`."""

    number: int
    query: str
    ids: frozenset[str]


class Withdrawn(Struct, frozen=True):
    """The question with this number was answered elsewhere, or is not asked any more."""

    number: int


class Offered(Struct, frozen=True):
    """What could stand at the cursor of the input, for the text `before` it."""

    before: str
    offers: tuple[CompletionItem, ...]


class PaletteLoaded(Struct, frozen=True):
    picker: Picker


class TranscriptLoaded(Struct, frozen=True):
    """The newest state of a subagent's transcript that is being watched."""

    node: str
    title: str
    frames: tuple[Frame, ...]


class OutputLoaded(Struct, frozen=True):
    """What a background command that is being watched has printed so far."""

    name: str
    title: str
    text: str


class BoardRead(Struct, frozen=True):
    """The task board of the project as it is now, or the `problem` with reading it."""

    tasks: tuple[BoardTask, ...] = ()
    problem: str = ""


class OutputsRead(Struct, frozen=True):
    """The last line that each running background command has printed, by its name.

    `now` is the time of the journal while one runs.
    """

    lines: Mapping[str, str]
    now: float = 0.0


class Edited(Struct, frozen=True):
    """The text came back from the editor."""

    text: str


class ImagePasted(Struct, frozen=True):
    """An image was taken from the clipboard; the input gets its label."""

    label: str


class ImagesMeasured(Struct, frozen=True):
    """Images that this terminal can draw, by the names of their bytes."""

    sizes: Mapping[str, ImageSize]


class Unqueued(Struct, frozen=True):
    """A message that waited is withdrawn; its text is to be changed."""

    text: str


class Remembered(Struct, frozen=True):
    """Earlier inputs, oldest first."""

    inputs: tuple[str, ...]


class ViKeys(Struct, frozen=True):
    """The input has the keys of vi from now on, or those of Emacs."""

    on: bool


Message: TypeAlias = (
    Key | Typed | Paste | Mouse | Resized | Tick | News | Loaded | FactsChanged | RowsPrinted | Asked
    | AskedToPick | Matched | Withdrawn | Offered | PaletteLoaded | TranscriptLoaded | OutputLoaded | BoardRead
    | OutputsRead | Edited | ImagePasted | ImagesMeasured
    | Unqueued | Remembered | ViKeys | Woken | DraftLeft
)  # fmt: skip


class Send(Struct, frozen=True):
    """Give this order to the session."""

    order: Order


class Submit(Struct, frozen=True):
    """A message, for the running turn or for the next one."""

    text: str
    when: Literal["now", "next"] = "now"


class EditQueued(Struct, frozen=True):
    """Withdraw the message with this seq; then its `text` comes as `Unqueued`."""

    message: int
    text: str


class RunCommand(Struct, frozen=True):
    """A slash command, `!command` or `#note`, as it was typed."""

    typed: str


class Answer(Struct, frozen=True):
    """The answer to the question `number`: what was typed or pressed, or a key as `esc`."""

    number: int
    text: str = ""
    key: str = ""


class Picked(Struct, frozen=True):
    """The choice from the list `number`; `id` is "" where the person left."""

    number: int
    id: str
    dial: str = ""


class Selected(Struct, frozen=True):
    """Another item of the list `number` is selected."""

    number: int
    id: str


class FindMatches(Struct, frozen=True):
    """Search for what the items of the list `number` do not say; `Matched` comes then."""

    number: int
    query: str


class Complete(Struct, frozen=True):
    before: str


class LoadPalette(Struct, frozen=True):
    pass


class Watch(Struct, frozen=True):
    """Load the transcript of this subagent, and again whenever it moves; or the output of
    this background command. "": nothing is watched any more.
    """

    node: str


class Follow(Struct, frozen=True):
    """Read what this panel shows and no event says, and again while it is open; "": stop.

    It comes as `BoardRead` or `OutputsRead`.
    """

    panel: PanelName


class Copy(Struct, frozen=True):
    text: str


class EditOutside(Struct, frozen=True):
    text: str


class PasteImage(Struct, frozen=True):
    """Take the image that is on the clipboard; `ImagePasted` comes then."""


class MeasureImages(Struct, frozen=True):
    """See how large these images are, where the terminal draws any; `ImagesMeasured` comes."""

    names: tuple[str, ...]


class WakeAfter(Struct, frozen=True):
    """Send `Woken` after this time, for a question looks different then."""

    seconds: float


class CycleMode(Struct, frozen=True):
    pass


class Suspend(Struct, frozen=True):
    pass


class Repaint(Struct, frozen=True):
    """The terminal may show something else by now: paint all of it."""


class Remember(Struct, frozen=True):
    """Add this to the history of inputs."""

    text: str


class Quit(Struct, frozen=True):
    pass


Command: TypeAlias = (
    Send | Submit | EditQueued | RunCommand | Answer | Picked | Selected | FindMatches | Complete | LoadPalette | Watch | Follow
    | WakeAfter | Copy | PasteImage | MeasureImages | EditOutside | CycleMode | Suspend | Repaint | Remember | Quit
)  # fmt: skip
Commands: TypeAlias = Sequence[Command]
