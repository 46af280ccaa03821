"""The messages and commands of the full screen: one value each, and nothing else.

`update` takes a message and gives commands. The runtime turns keys, signals and events of
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
    """A key that is not a character: `ctrl+o`, `alt+enter`. `at` is in seconds."""

    name: str
    at: float = 0.0


class Typed(Struct, frozen=True):
    """Typed characters."""

    text: str
    at: float = 0.0


class Paste(Struct, frozen=True):
    text: str
    at: float = 0.0


class Mouse(Struct, frozen=True):
    """A mouse event. Cells are counted from 0."""

    kind: Literal["press", "wheel_up", "wheel_down"]
    column: int
    row: int


class Resized(Struct, frozen=True):
    width: int
    height: int


class Tick(Struct, frozen=True):
    """Time has passed. `now` is the time of the journal, in seconds."""

    now: float


class News(Struct, frozen=True):
    """Events of the session in their order, and pieces of text being written."""

    frames: tuple[Frame, ...]


class Loaded(Struct, frozen=True):
    """The events of the session so far. A long session comes twice: its end, then all of
    it.
    """

    screen: Screen


class Facts(Struct, frozen=True):
    """Settings and state for the next turn, from the session handle."""

    session: str = ""
    model: str = ""
    effort: Effort = ""
    agent: str = ""
    mode: Mode = "default"
    branch: str = ""
    directory: str = ""
    cut_off: bool = False  # the process of an unfinished turn exited, and none runs it now


class FactsChanged(Struct, frozen=True):
    facts: Facts


class DraftLeft(Struct, frozen=True):
    """A command switches sessions: the draft stays with the old one.

    `back`: the other session could not be opened, so the draft is shown again.
    """

    back: bool = False


class RowsPrinted(Struct, frozen=True):
    """A command has printed these rows, which no journal contains.

    `begins`: the row is the command itself, as it was typed.
    """

    rows: tuple[Line, ...]
    begins: bool = False


class Asked(Struct, frozen=True):
    """A command or a session asks the person, under this number.

    `body` is what they are asked about, `prompt` the last line. With `keys`, one of them is
    the answer; without, a text that starts as `text`. `menu` is a question that the person
    did not start: what is typed then is a message. `many`: the text may have several lines.
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
    """The question with this number was answered elsewhere, or is no longer asked."""

    number: int
    at: float = 0.0


class Offered(Struct, frozen=True):
    """Completions at the cursor of the input, for the text `before` it."""

    before: str
    offers: tuple[CompletionItem, ...]


class PaletteLoaded(Struct, frozen=True):
    picker: Picker


class ShellShown(Struct, frozen=True):
    """The output of a running `!command`."""

    command: str
    printed: str


class ShellEnded(Struct, frozen=True):
    """The `!command` has ended; its output is in its message."""


class TranscriptLoaded(Struct, frozen=True):
    """The newest state of the watched subagent's transcript."""

    node: str
    title: str
    frames: tuple[Frame, ...]


class OutputLoaded(Struct, frozen=True):
    """The current output of the watched background command."""

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
    """The text that the editor returned."""

    text: str


class ImagePasted(Struct, frozen=True):
    """An image was taken from the clipboard; the input gets its label."""

    label: str


class Copied(Struct, frozen=True):
    """A text was copied; the hint says where it can be pasted."""

    hint: str


class ImagesMeasured(Struct, frozen=True):
    """The sizes of images that this terminal can draw, by the names of their blobs."""

    sizes: Mapping[str, ImageSize]


class Unqueued(Struct, frozen=True):
    """A queued message is withdrawn; its text can be edited."""

    text: str


class Remembered(Struct, frozen=True):
    """Earlier inputs, oldest first."""

    inputs: tuple[str, ...]


class ViKeys(Struct, frozen=True):
    """The input has vi keys from now on, or Emacs keys."""

    on: bool


Message: TypeAlias = (
    Key | Typed | Paste | Mouse | Resized | Tick | News | Loaded | FactsChanged | RowsPrinted | Asked
    | AskedToPick | Matched | Withdrawn | Offered | PaletteLoaded | TranscriptLoaded | OutputLoaded | BoardRead
    | OutputsRead | Edited | ImagePasted | ImagesMeasured
    | Copied | ShellShown | ShellEnded | Unqueued | Remembered | ViKeys | Woken | DraftLeft
)  # fmt: skip


class Send(Struct, frozen=True):
    """Send this order to the session."""

    order: Order


class Submit(Struct, frozen=True):
    """A message, for the running turn or for the next one."""

    text: str
    when: Literal["now", "next"] = "now"


class EditQueued(Struct, frozen=True):
    """Withdraw the message with this seq; its `text` comes back as `Unqueued`."""

    message: int
    text: str


class RunCommand(Struct, frozen=True):
    """A slash command, `!command` or `#note`, as it was typed."""

    typed: str


class ShellKey(Struct, frozen=True):
    """Interrupt the running `!command`, or attach it to the terminal."""

    name: Literal["interrupt", "attach"]


class Answer(Struct, frozen=True):
    """The answer to the question `number`: typed text, or a key like `esc`."""

    number: int
    text: str = ""
    key: str = ""


class Picked(Struct, frozen=True):
    """The choice from the list `number`; `id` is "" if the person left."""

    number: int
    id: str
    dial: str = ""


class Selected(Struct, frozen=True):
    """Another item of the list `number` is selected."""

    number: int
    id: str


class FindMatches(Struct, frozen=True):
    """Search the hidden text of the items of the list `number`; `Matched` follows."""

    number: int
    query: str


class Complete(Struct, frozen=True):
    before: str


class LoadPalette(Struct, frozen=True):
    pass


class Watch(Struct, frozen=True):
    """Load the transcript of this subagent or the output of this background command.

    It is loaded again whenever it changes. "" stops that.
    """

    node: str


class Follow(Struct, frozen=True):
    """Read the content of this panel that comes from no event, and again while it is open.

    "" stops that. The content comes as `BoardRead` or `OutputsRead`.
    """

    panel: PanelName


class Copy(Struct, frozen=True):
    text: str


class EditInEditor(Struct, frozen=True):
    text: str


class PasteImage(Struct, frozen=True):
    """Take the image that is on the clipboard; `ImagePasted` follows."""


class MeasureImages(Struct, frozen=True):
    """Measure these images, if the terminal draws any; `ImagesMeasured` follows."""

    names: tuple[str, ...]


class WakeAfter(Struct, frozen=True):
    """Send `Woken` after this time, when a question looks different."""

    seconds: float


class CycleMode(Struct, frozen=True):
    pass


class Suspend(Struct, frozen=True):
    pass


class Repaint(Struct, frozen=True):
    """Paint everything again: the terminal may show something else."""


class Remember(Struct, frozen=True):
    """Add this to the history of inputs."""

    text: str


class Quit(Struct, frozen=True):
    pass


Command: TypeAlias = (
    Send | Submit | EditQueued | RunCommand | Answer | Picked | Selected | FindMatches | Complete | LoadPalette | Watch | Follow
    | ShellKey | WakeAfter | Copy | PasteImage | MeasureImages | EditInEditor | CycleMode | Suspend | Repaint | Remember | Quit
)  # fmt: skip
Commands: TypeAlias = Sequence[Command]
