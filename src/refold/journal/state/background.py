"""The background commands of a session, and whether the model knows that they ended.

A rewind does not change them. `agents.background_commands` runs them;
`engine/policies/reminders.py` informs the model.

A headless task or a subagent does not end before the commands that will wake its agent
(`commands_to_await`), because the tool has promised the agent to wake it. It waits at most ten
minutes unless `--timeout` is set, and does not wait for servers.
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

# The name of the policy whose note informs the model of ended commands.
ENDED_COMMANDS_POLICY = "ended_commands"
_NAME_PREFIX = "background-"
MAX_WAKES = 20  # in a row, without a message of the user or the parent


class BackgroundCommand(Struct, frozen=True):
    """One background command. `end` is None while it runs."""

    started: BackgroundStarted
    at: float = 0.0  # the journal's time of its start
    end: BackgroundEnded | None = None
    told: bool = False  # the model knows that it ended
    foreign: bool = False  # from before a fork or an import, so this session never ran it
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
    untold: bool = False  # the model does not know of all ends
    wakes: int = 0  # how often the agent was woken since the last message of a requester

    def command(self, name: str) -> BackgroundCommand | None:
        return next((command for command in self.commands if command.name == name), None)

    @property
    def running(self) -> tuple[BackgroundCommand, ...]:
        return tuple(command for command in self.commands if command.runs)

    @property
    def commands_to_await(self) -> tuple[BackgroundCommand, ...]:
        """The running commands that will wake the agent and have not done so yet."""
        if self.wakes >= MAX_WAKES:
            return ()
        return tuple(
            command
            for command in self.running
            if command.started.notify and not command.woke
        )

    @property
    def news(self) -> tuple[BackgroundCommand, ...]:
        """The commands that have ended without the model knowing it yet."""
        if not self.untold:
            return ()
        return tuple(
            command for command in self.commands if command.end and not command.told
        )

    @property
    def next_name(self) -> str:
        return f"{_NAME_PREFIX}{len(self.commands) + 1}"


def apply(background: Background, entry: Entry) -> Background:
    """Return the state of the background commands after this entry."""
    match entry.event:
        case ModelAsked(policies=policies):
            if not (background.untold and ENDED_COMMANDS_POLICY in policies):
                return background
            # The note of the policy is in this request, so the model then knows of the ends.
            reported = tuple(
                replace(command, told=True) if command.end else command
                for command in background.commands
            )
            return replace(background, commands=reported, untold=False)
        case Said(sender=sender, wakes=True):
            commands = tuple(
                replace(command, woke=True) if command.name == sender else command
                for command in background.commands
            )
            return replace(background, commands=commands, wakes=background.wakes + 1)
        case Said(sender=sender):
            # A message of a requester ends the row of wakes.
            ends_row = background.wakes > 0 and sender in REQUEST_SENDERS
            return replace(background, wakes=0) if ends_row else background
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
    """Return the state after the first end of a command; later ends change nothing."""
    command = background.command(end.name)
    if command is None or not command.runs:
        return background
    # A command that wakes the agent does so with a message that reports its end.
    is_told = end.told or (command.started.notify and end.outcome in ("done", "failed"))
    changed = replace(command, end=end, told=is_told, ended_at=ended_at)
    commands = tuple(
        changed if other is command else other for other in background.commands
    )
    return replace(background, commands=commands, untold=background.untold or not is_told)


def end_text(end: BackgroundEnded) -> str:
    """Return how a background command ended, for the model and for people."""
    match end.outcome:
        case "lost":
            return "it no longer runs: the session was left while it ran"
        case "stopped":
            return f"stopped: {end.reason}"
        case _:
            code = f"exit code {end.code}" if end.code is not None else ""
            reason = end.reason or code
            return f"ended: {reason}" if reason else "ended"
