"""The messages and commands of the full screen, one class for each.

`update` takes a message and returns commands. The runtime converts keys, signals and events of
the session to messages, and performs the commands.
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
    """A key that is not a character, such as `ctrl+o` or `alt+enter`. `at` is in seconds."""

    name: str
    at: float = 0.0


class Typed(Struct, frozen=True):
    """Characters that the user typed."""

    text: str
    at: float = 0.0


class Paste(Struct, frozen=True):
    text: str
    at: float = 0.0


class Mouse(Struct, frozen=True):
    """A mouse event at a cell. Columns and rows are counted from 0."""

    kind: Literal["press", "wheel_up", "wheel_down"]
    column: int
    row: int


class Resized(Struct, frozen=True):
    width: int
    height: int


class Tick(Struct, frozen=True):
    """Time has passed: it is now the time `now`, in seconds, as in the journal."""

    now: float


class News(Struct, frozen=True):
    """New events of the session, in order, or pieces of text that is being written."""

    frames: tuple[Frame, ...]


class Loaded(Struct, frozen=True):
    """The screen of the session after its events so far.

    A long session is loaded twice: first its last turns, and then all of it.
    """

    screen: Screen


class Facts(Struct, frozen=True):
    """The session's settings for the next turn, and its state."""

    session: str = ""
    model: str = ""
    effort: Effort = ""
    agent: str = ""
    mode: Mode = "default"
    branch: str = ""
    directory: str = ""
    # the process of an unfinished turn exited, and no process continues the turn
    cut_off: bool = False


class FactsChanged(Struct, frozen=True):
    facts: Facts


class DraftLeft(Struct, frozen=True):
    """A command opens another session. The draft stays with the present session.

    With `back`, the other session could not be opened, so the draft is shown again.
    """

    back: bool = False


class RowsPrinted(Struct, frozen=True):
    """Rows that a command has printed. They are not in the journal.

    With `begins`, the rows are the command itself, as it was typed.
    """

    rows: tuple[Line, ...]
    begins: bool = False


class Asked(Struct, frozen=True):
    """A question of a command or of the session. `number` identifies the question.

    `body` is the text above the question, `prompt` its last line. If `keys` is not "", the
    answer is one of these keys. Otherwise the answer is text, which begins as `text`; with
    `many`, it may have several lines. A question that no command asks has a `menu`; text
    typed at this menu is a message.
    """

    number: int
    body: tuple[Line, ...]
    prompt: Line
    keys: str = ""
    text: str = ""
    many: bool = False
    # more rows of a body that was shown before, of which the end is shown
    follows: bool = False
    at: float = 0.0
    menu: Menu | None = None


class AskedToPick(Struct, frozen=True):
    """A command asks the user to choose from a list. `number` identifies the question."""

    number: int
    picker: Picker


class Woken(Struct, frozen=True):
    """The time of a `WakeAfter` has passed."""

    at: float


class Matched(Struct, frozen=True):
    """A search for `query` in the list `number` has found the items `ids`."""

    number: int
    query: str
    ids: frozenset[str]


class Withdrawn(Struct, frozen=True):
    """The question `number` was answered elsewhere, or is no longer asked."""

    number: int
    at: float = 0.0


class Offered(Struct, frozen=True):
    """Completions for the text `before` the cursor of the input."""

    before: str
    offers: tuple[CompletionItem, ...]


class PaletteLoaded(Struct, frozen=True):
    picker: Picker


class ShellShown(Struct, frozen=True):
    """The output that a running `!command` has printed until now."""

    command: str
    printed: str


class ShellEnded(Struct, frozen=True):
    """The `!command` has ended. The message about the command has the output."""


class TranscriptLoaded(Struct, frozen=True):
    """All events of the watched subagent until now."""

    node: str
    title: str
    frames: tuple[Frame, ...]


class OutputLoaded(Struct, frozen=True):
    """The output that the watched background command has printed until now."""

    name: str
    title: str
    text: str


class BoardRead(Struct, frozen=True):
    """The project's task board as it is now. If it cannot be read, `problem` says why."""

    tasks: tuple[BoardTask, ...] = ()
    problem: str = ""


class OutputsRead(Struct, frozen=True):
    """The last output line of each running background command, by the command's name.

    `now` is the time, as in the journal; 0 if no command runs.
    """

    lines: Mapping[str, str]
    now: float = 0.0


class Edited(Struct, frozen=True):
    """The text that the user has edited in an editor."""

    text: str


class ImagePasted(Struct, frozen=True):
    """The image on the clipboard was taken. The input gets its label."""

    label: str


class Copied(Struct, frozen=True):
    """Text was copied. `hint` says where it can be pasted."""

    hint: str


class ImagesMeasured(Struct, frozen=True):
    """The sizes of images that this terminal can draw, by the name of their blob."""

    sizes: Mapping[str, ImageSize]


class Unqueued(Struct, frozen=True):
    """A queued message was withdrawn. Its text goes into the input."""

    text: str


class Remembered(Struct, frozen=True):
    """The inputs of earlier sessions, oldest first."""

    inputs: tuple[str, ...]


class ViKeys(Struct, frozen=True):
    """The input uses vi keys from now on, or Emacs keys if `on` is false."""

    on: bool


Message: TypeAlias = (
    Key | Typed | Paste | Mouse | Resized | Tick | News | Loaded | FactsChanged | RowsPrinted | Asked
    | AskedToPick | Matched | Withdrawn | Offered | PaletteLoaded | TranscriptLoaded | OutputLoaded | BoardRead
    | OutputsRead | Edited | ImagePasted | ImagesMeasured
    | Copied | ShellShown | ShellEnded | Unqueued | Remembered | ViKeys | Woken | DraftLeft
)  # fmt: skip


class Send(Struct, frozen=True):
    """Send an order to the session."""

    order: Order


class Submit(Struct, frozen=True):
    """Send a message: to the running turn, or with "next" after it."""

    text: str
    when: Literal["now", "next"] = "now"


class EditQueued(Struct, frozen=True):
    """Withdraw the queued message with this event number. An `Unqueued` returns its text."""

    message: int
    text: str


class RunCommand(Struct, frozen=True):
    """Run a slash command, a `!command` or a `#note`, as it was typed."""

    typed: str


class ShellKey(Struct, frozen=True):
    """Interrupt the running `!command`, or give it the terminal ("attach")."""

    name: Literal["interrupt", "attach"]


class Answer(Struct, frozen=True):
    """The answer to the question `number`: text, or a key such as `esc`."""

    number: int
    text: str = ""
    key: str = ""


class Picked(Struct, frozen=True):
    """The item that the user chose from the list `number`. `id` is "" if the user left."""

    number: int
    id: str
    dial: str = ""


class Selected(Struct, frozen=True):
    """Another item of the list `number` was selected, but not chosen yet."""

    number: int
    id: str


class FindMatches(Struct, frozen=True):
    """Search the list `number` also in text that its rows do not show, such as messages.

    A `Matched` returns the result.
    """

    number: int
    query: str


class Complete(Struct, frozen=True):
    before: str


class LoadPalette(Struct, frozen=True):
    pass


class Watch(Struct, frozen=True):
    """Load the transcript of a subagent or the output of a background command, by name.

    The transcript or output is loaded again whenever it changes. The name "" ends the
    loading.
    """

    node: str


class Follow(Struct, frozen=True):
    """Read the content of a panel repeatedly. A `BoardRead` or `OutputsRead` returns it.

    Only panels whose content does not come from events need this. The name "" ends the
    reading.
    """

    panel: PanelName


class Copy(Struct, frozen=True):
    text: str


class EditInEditor(Struct, frozen=True):
    text: str


class PasteImage(Struct, frozen=True):
    """Take the image on the clipboard. An `ImagePasted` returns its label."""


class MeasureImages(Struct, frozen=True):
    """Measure these images if the terminal can draw images. An `ImagesMeasured` returns the
    sizes.
    """

    names: tuple[str, ...]


class WakeAfter(Struct, frozen=True):
    """Post a `Woken` after this time, because the open question will look different then."""

    seconds: float


class CycleMode(Struct, frozen=True):
    pass


class Suspend(Struct, frozen=True):
    pass


class Repaint(Struct, frozen=True):
    """Paint the whole screen again, because the terminal may show something else."""


class Remember(Struct, frozen=True):
    """Add this text to the history of inputs."""

    text: str


class Quit(Struct, frozen=True):
    pass


Command: TypeAlias = (
    Send | Submit | EditQueued | RunCommand | Answer | Picked | Selected | FindMatches | Complete | LoadPalette | Watch | Follow
    | ShellKey | WakeAfter | Copy | PasteImage | MeasureImages | EditInEditor | CycleMode | Suspend | Repaint | Remember | Quit
)  # fmt: skip
Commands: TypeAlias = Sequence[Command]
