"""The background commands of a session, and of which ends the model knows. Not rewound.

`session.background` runs them; `engine/policies/reminders.py` tells the model.

A headless task and a subagent wait for commands that are to wake the agent
(`commands_to_await`), at most ten minutes without `--timeout`, because the tool has
promised it. They do not wait for servers.
"""

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events.kinds import (
    BackgroundEnded,
    BackgroundStarted,
    Entry,
    Forked,
    Imported,
    ModelAsked,
    Said,
)
from refold.journal.state.conversation import REQUEST_SENDERS

EVENT_KINDS = (BackgroundStarted, BackgroundEnded, ModelAsked, Said, Forked, Imported)

# The name of the policy whose note tells the model.
ENDED_COMMANDS_POLICY = "ended_commands"
_NAME_PREFIX = "background-"
MAX_WAKES = 20  # without a message of the user or the parent


class BackgroundCommand(Struct, frozen=True):
    """One command. `end` is None while it runs."""

    started: BackgroundStarted
    at: float = 0.0  # the journal's time of its start
    end: BackgroundEnded | None = None
    told: bool = False  # the model knows its end
    foreign: bool = False  # from before a fork or an import: it never ran here
    woke: bool = False  # it has woken the agent
    ended_at: float = 0.0  # the journal's time of its end

    @property
    def name(self) -> str:
        return self.started.name

    @property
    def runs(self) -> bool:
        return self.end is None and not self.foreign


class Background(Struct, frozen=True):
    commands: tuple[BackgroundCommand, ...] = ()
    untold: bool = False  # the model does not know all ends
    wakes: int = 0  # how often the agent was woken since the last message of a requester

    def command(self, name: str) -> BackgroundCommand | None:
        return next((command for command in self.commands if command.name == name), None)

    @property
    def running(self) -> tuple[BackgroundCommand, ...]:
        return tuple(command for command in self.commands if command.runs)

    @property
    def commands_to_await(self) -> tuple[BackgroundCommand, ...]:
        """The running commands that are to wake the agent and have not done so yet."""
        if self.wakes >= MAX_WAKES:
            return ()
        return tuple(
            command
            for command in self.running
            if command.started.notify and not command.woke
        )

    @property
    def news(self) -> tuple[BackgroundCommand, ...]:
        """The ended commands that the model does not know of yet."""
        if not self.untold:
            return ()
        return tuple(
            command for command in self.commands if command.end and not command.told
        )

    @property
    def next_name(self) -> str:
        return f"{_NAME_PREFIX}{len(self.commands) + 1}"


def apply(background: Background, entry: Entry) -> Background:
    match entry.event:
        case ModelAsked(policies=policies):
            if not (background.untold and ENDED_COMMANDS_POLICY in policies):
                return background
            reported = tuple(
                replace(command, told=True) if command.end else command
                for command in background.commands
            )
            return Background(reported, wakes=background.wakes)
        case Said(sender=sender, wakes=True):
            commands = tuple(
                replace(command, woke=True) if command.name == sender else command
                for command in background.commands
            )
            return replace(background, commands=commands, wakes=background.wakes + 1)
        case Said(sender=sender):
            asked = background.wakes and sender in REQUEST_SENDERS
            return replace(background, wakes=0) if asked else background
        case BackgroundStarted() as started:
            new = BackgroundCommand(started, entry.at)
            return replace(background, commands=(*background.commands, new))
        case BackgroundEnded() as end:
            return _with_end(background, end, entry.at)
        case Forked() | Imported():
            foreign = (
                replace(command, foreign=True, told=True) for command in background.commands
            )
            return Background(tuple(foreign))
        case _:
            return background


def _with_end(background: Background, end: BackgroundEnded, ended_at: float) -> Background:
    command = background.command(end.name)
    if command is None or not command.runs:
        return background
    # A command that wakes the agent does so with a message that reports its end.
    is_told = end.told or (command.started.notify and end.outcome in ("done", "failed"))
    changed = replace(command, end=end, told=is_told, ended_at=ended_at)
    commands = tuple(
        changed if entry is command else entry for entry in background.commands
    )
    return replace(background, commands=commands, untold=background.untold or not is_told)


def end_text(end: BackgroundEnded) -> str:
    """How it ended, in words for the model and for a person."""
    match end.outcome:
        case "lost":
            return "it no longer runs: the session was left while it ran"
        case "stopped":
            return f"stopped: {end.reason}"
        case _:
            why = f"exit code {end.code}" if end.code is not None else ""
            return "ended" + (f": {end.reason or why}" if end.reason or why else "")
