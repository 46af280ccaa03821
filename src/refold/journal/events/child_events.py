"""What a session starts below itself: children with journals of their own, and code.

Part of `events`, whose rules hold here too.
"""

from typing import Literal

from msgspec import Struct

from refold.values.display import Diff
from refold.values.messages import ToolCall
from refold.values.modes import Outcome
from refold.values.usage import NO_LIMIT, Budget, Spent


class ChildBorn(Struct, frozen=True):
    """A session of its own is about to be made for a call. Written before its journal.

    `key` and `n` tell the children of one call apart: a hash of what was wanted, and how
    often that was wanted before. `grant` is what the child may use up; while it lives,
    that counts as used here. `beside`: nobody waits for it, its answer comes as words.
    """

    child: str  # "child-1": its name below this session
    call_id: str
    agent: str
    task: str
    key: str = ""
    n: int = 0
    level: str = ""  # the role of its model; "": as its agent has it
    background: bool = False
    grant: Budget = NO_LIMIT
    directory: str = ""  # where it works, if that is not where we do
    branch: str = ""  # of a working tree of its own
    base: str = ""  # the commit that this began at
    attached: str = ""  # the session whose variables it begins with
    title: str = ""  # a few words for the person


class ChildGranted(Struct, frozen=True):
    """The child may use up so much from now on, all in all."""

    child: str
    budget: Budget


class ChildAsked(Struct, frozen=True):
    """A child, or one below it, waits for the person. `child` is whose call it is.

    `id` is that of the call, made unique here: "child-1/c7".
    """

    id: str
    child: str  # "child-1", "child-1/child-2"
    agent: str
    call: ToolCall
    reason: str = ""
    hash: str = ""
    once: bool = False
    changes: tuple[Diff, ...] = ()

    @property
    def who(self) -> str:
        """As a person is told."""
        return f"{self.child} ({self.agent})"


class ChildAnswered(Struct, frozen=True):
    """What a person said to that; or `gone`: it is not asked any more."""

    id: str
    allowed: bool = False
    reason: str = ""
    answers: tuple[str, ...] = ()
    withdrawn: bool = False
    hash: str = ""  # of what was shown, and so of what this is said to


class ChildStopped(Struct, frozen=True):
    """Somebody wants this child to end, and all below it."""

    child: str
    reason: str = "stopped by the person"


class ChildEnded(Struct, frozen=True):
    """What a child came to. `spent` is all of its own and of those below it.

    `head` is where its journal ended then, as (seq, hash).
    """

    child: str
    outcome: Outcome
    status: Literal["done", "partial", "failed"]
    text: str = ""
    reason: str = ""
    spent: Spent = Spent()
    head: tuple[int, str] = (0, "")
    branch: str = ""  # what it left behind of a working tree of its own,
    directory: str = ""  # and where
    as_json: bool = False  # the text is that of a value that code gave to FINAL


class NestedCallMade(Struct, frozen=True):
    """Code that runs in the call `within` makes a call of its own. Its end is `Ended`.

    The model is told neither: it reads what the code makes of it.
    """

    call: ToolCall
    parent_call: str
    key: str = ""  # what makes it the same call: a hash,
    n: int = 0  # and how often that was made before


class VariableInjected(Struct, frozen=True):
    """A variable that the session's Python begins with: `blob` is its value as JSON.

    `files` are those that it was read from, in the order of its texts: the real path and
    the sha256 of each. Where they are very many, the blob `listed` has them instead.
    """

    name: str
    blob: str
    files: tuple[tuple[str, str], ...] = ()
    files_blob: str = ""


class VariablesSaved(Struct, frozen=True):
    """The variables of the session's Python after a call, as the blob `blob`.

    It names the `parts`: blobs that hold one large variable each, and are not written
    again while that stays as it is. `kept` are names and types; `lost` could not be kept,
    each with its reason.
    """

    call_id: str
    blob: str
    variables: tuple[tuple[str, str], ...] = ()
    lost: tuple[tuple[str, str], ...] = ()
    parts: tuple[str, ...] = ()


class VariablesRestored(Struct, frozen=True):
    """A fresh Python was given these variables. `source` is another session, or ""."""

    blob: str
    source: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    lost: tuple[tuple[str, str], ...] = ()
    parts: tuple[str, ...] = ()


class Forked(Struct, frozen=True):
    """All lines up to here are a copy of those of another session, which goes on alone."""

    source: str  # the id of that session
    seq: int
    h: str = ""  # the hash of that line
    id: str = ""  # of this one, as providers are told it
