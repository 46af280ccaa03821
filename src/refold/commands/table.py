"""The table of all slash commands, in the order of /help.

`entry_points.txt` names the function of each command, which `commands.dispatch` calls.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from msgspec import Struct

from refold.values.modes import Effort, Format, Mode

if TYPE_CHECKING:
    from refold.client.session import Session

Group: TypeAlias = Literal[
    "session", "model", "permissions", "plan", "context", "agents", "knowledge", "terminal"
]
GROUP_TITLES: Mapping[Group, str] = {
    "session": "Sessions",
    "model": "Model and agent",
    "permissions": "Permissions",
    "plan": "Plans and rewinding",
    "context": "Context, cost and results",
    "agents": "Agents and subagents",
    "knowledge": "Skills and memory",
    "terminal": "Terminal",
}
Need: TypeAlias = Literal["", "terminal", "sessions", "files", "workspace"]
# The reason why a command is refused if its need is not met.
NEED_REASONS: Mapping[Need, str] = {
    "terminal": "only `refold` in a terminal has it",
    "sessions": "your editor opens, copies and switches sessions",
    "files": "it writes a file where refold runs; the menu has the export",
    "workspace": "a worker of the service has the settings and files of this session",
}
EFFORT_NAMES: tuple[str, ...] = tuple(effort for effort in get_args(Effort) if effort)
THINKING_EFFORTS: Mapping[str, Effort] = {
    "on": "medium",
    "off": "off",
    "high": "high",
    "max": "max",
}
MODE_NAMES: tuple[Mode, ...] = get_args(Mode)
# Formats of a conversation for a CLI backend.
FORMAT_NAMES: tuple[Format, ...] = ("plain", "markdown", "json", "xml")
THEME_NAMES = (
    "auto", "dark", "light", "dark-contrast", "light-contrast", "dark-daltonized",
    "light-daltonized", "mono",
)  # fmt: skip


class SlashCommand(Struct, frozen=True):
    """A slash command. `takes` describes its arguments.

    `words` are possible arguments; a function `choices` in the command's module may return
    more. If `at_once`, the command runs immediately, even during a turn; otherwise it waits
    until the turn is over. /help NAME shows `about` and then `more`. `needs` is a feature that
    some surfaces lack, or "workspace" if the command uses the settings and files of the
    session.
    """

    name: str
    about: str
    takes: str = ""
    aliases: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    at_once: bool = False
    more: str = ""
    group: Group = "terminal"
    needs: Need = ""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.takes}".strip()


def commands() -> tuple[SlashCommand, ...]:
    return (
        *_sessions(), *_models(), *_permissions(), *_plans(),
        *_context(), *_agents(), *_knowledge(), *_terminal(),
    )  # fmt: skip


def _sessions() -> tuple[SlashCommand, ...]:
    return (
        SlashCommand("sessions", "list the other sessions of this directory, and switch to one",
                "[WORDS]", group="session",
                more="WORDS are searched in names, titles and tags.", needs="sessions"),
        SlashCommand("resume", "switch to another session; without a name, pick one from a list",
                "[NAME|ID|last]", ("load",), group="session",
                more="It continues in its own directory. `last` is the newest other session of "
                "this directory. The session you leave is closed and kept. A session that is "
                "open in another process is not taken over.", needs="sessions"),
        SlashCommand("search", "search the messages of the sessions of this directory", "WORDS",
                group="session", more='"exact words" in quotes, or the beginning of a word with *.', needs="sessions"),
        SlashCommand("rename", "show or set the name of this session", "[NAME]", ("save",),
                at_once=True, group="session",
                more='refold -r NAME resumes it; /rename "" removes the name.'),
        SlashCommand("tag", "show, add or remove tags of this session", "[+TAG|-TAG]",
                at_once=True, group="session"),
        SlashCommand("history", "the conversation, with the numbers that /rewind takes", "[N]",
                group="session", more="N: only the last N of your messages."),
        SlashCommand("export", "write this session to a file, or copy it", "[md|html|tar|text|script] [FILE]",
                words=("md", "html", "tar", "text"), group="session",
                more="Without FILE, it asks: the clipboard, or a file that you name.", needs="files"),
        SlashCommand("fork", "continue in a copy of this session; this one stays as it is",
                "[EVENT]", group="session",
                more="EVENT is a number from /history: the copy ends there.", needs="sessions"),
        SlashCommand("cd", "show the working directory, or continue in another one", "[DIR]",
                group="session", needs="sessions",
                more="Files of the previous directory no longer belong to the workspace. The "
                "settings and instructions of DIR apply if you trust them."),
        SlashCommand("add-dir", "show the directories of the workspace, or add one", "[DIR]",
                group="session", needs="sessions"),
        SlashCommand("worktree", "list the git worktrees, or continue in one: NAME is made if needed",
                "[NAME|leave|remove [NAME]]", words=("leave", "remove"), group="session",
                more="It is created beside the repository, as by refold -w. Settings and rules "
                "stay those of this directory. Before uncommitted work is removed, you are asked."),
        SlashCommand("ports", "list the servers of a workspace elsewhere, or open one on this machine",
                "[PORT]", at_once=True, group="session",
                more="It stays open until the session is closed. Only this machine reaches it.", needs="workspace"),
        SlashCommand("clear", "start a new session", aliases=("new",), group="session",
                more="This session is kept. Ctrl+L only clears the screen.", needs="sessions"),
        SlashCommand("continue", "continue without a new message", group="session"),
        SlashCommand("quit", "leave; the session is kept", aliases=("exit", "q"),
                group="session", needs="terminal"),
    )  # fmt: skip


def _models() -> tuple[SlashCommand, ...]:
    return (
        SlashCommand("model", "pick the model and its effort, or change it by name", "[NAME] [save]", ("backend",),
                at_once=True, group="model",
                more="It applies from the next turn; `save` makes it the default. The name of a "
                "provider or of a CLI backend alone selects its default model."),
        SlashCommand("effort", "show or change the reasoning effort",
                f"[{'|'.join(EFFORT_NAMES)}] [save]", words=EFFORT_NAMES, at_once=True, group="model",
                more="It applies from the next turn; `save` makes it the default."),
        SlashCommand("thinking", "show or change how much the model thinks",
                f"[{'|'.join(THINKING_EFFORTS)}]", words=tuple(THINKING_EFFORTS), at_once=True, group="model",
                more="It sets the effort: on is medium. Off is off where the provider allows "
                "it; otherwise the model thinks as little as it can, and a line says so."),
        SlashCommand("agent", "pick the agent, or change it by name", "[NAME]", group="model"),
        SlashCommand("preset", "list the system prompts of the agent main, or choose one",
                "[NAME] [save]", at_once=True, group="model",
                more="It applies from the next turn; `save` makes it the default."),
        SlashCommand("format", "show or set how the conversation is sent to a CLI backend",
                f"[{'|'.join(FORMAT_NAMES)}] [save]", words=FORMAT_NAMES, at_once=True, group="model",
                more="It applies from the next turn; `save` makes it the default (backend.format). "
                "To other models the conversation is sent as one text, too."),
    )  # fmt: skip


def _permissions() -> tuple[SlashCommand, ...]:
    return (
        SlashCommand("mode", "show or change what runs without asking", f"[{'|'.join(MODE_NAMES)}]",
                words=MODE_NAMES, at_once=True, group="permissions"),
        SlashCommand("approval", "on: ask as usual; off: run everything without asking",
                "[on|off]", words=("on", "off"), at_once=True, group="permissions"),
        SlashCommand("permissions", "see, add and change rules, or allow something for this session",
                "[allow RULE]", words=("allow",), at_once=True, group="permissions"),
        SlashCommand("tools", "list the tools, and which of them run without asking", "[NAME]",
                at_once=True, group="permissions", needs="workspace"),
    )  # fmt: skip


def _plans() -> tuple[SlashCommand, ...]:
    return (
        SlashCommand("plan", "switch to plan mode; `list` shows the plans", "[list|MESSAGE]",
                words=("list",), group="plan", more="In plan mode nothing is changed."),
        SlashCommand("plans", "list the plans of this session, or show one", "[N]",
                at_once=True, group="plan"),
        SlashCommand("execute", "approve the plan, or leave plan mode", group="plan"),
        SlashCommand("rewind", "go back to before a message: the conversation, the files, or both",
                "[N] [conversation|files|both]", group="plan",
                more="Without N, it lists the points you can go back to. It shows what would "
                "change, and asks before it changes anything."),
        SlashCommand("undo", "undo everything since your last message", group="plan"),
        SlashCommand("edit", "change a message of the conversation", "N [TEXT]", group="plan",
                more="N is a number from /history. Without TEXT, your editor opens with the message. "
                "The next request has the new text; the journal keeps the original."),
        SlashCommand("delete", "delete a message of the conversation", "N", group="plan",
                more="N is a number from /history. An answer is deleted with the results of its "
                "calls. What was done stays done; the journal keeps the message."),
    )  # fmt: skip


def _context() -> tuple[SlashCommand, ...]:
    return (
        SlashCommand("context", "context usage, by part", at_once=True, group="context"),
        SlashCommand("compact", "compact the conversation; `prune` only removes old tool results",
                "[prune] [FOCUS]", words=("prune", "full"), at_once=True, group="context",
                more="FOCUS is what the summary must preserve."),
        SlashCommand("diff", "what has changed in the files since this session began", "[FILE]",
                group="context",
                more="FILE: only files whose path contains it. Changes by commands and by other "
                "programs are included.", needs="workspace"),
        SlashCommand("todos", "the todo list and its progress", at_once=True, group="context",
                more="Ctrl+T does the same."),
        SlashCommand("tasks", "the open tasks of this project; `all` lists every one, N shows one",
                "[all|N]", words=("all",), at_once=True, group="context",
                more="All sessions of the project share them. refold tasks adds and changes tasks.", needs="workspace"),
        SlashCommand("cost", "tokens and cost of this session; `turns` lists every turn",
                "[turns]", ("usage", "stats"), words=("turns",), at_once=True, group="context"),
        SlashCommand("status", "model, mode, sandbox, rules and directory of this session",
                at_once=True, group="context"),
        SlashCommand("budget", "show or set the budget of a turn",
                "[USD|tokens N|calls N|seconds N|off]",
                words=("tokens", "calls", "seconds", "off"), at_once=True, group="context"),
        SlashCommand("iterations", "show or set the number of model responses per turn",
                "[N|off]", words=("off",), at_once=True, group="context",
                more="It applies to this session, including the running turn; `off` returns to limits.steps."),
        SlashCommand("timeline", "every call with its time and cost", "[N]", group="context",
                more="N: only the N slowest calls. Calls of subagents are included."),
        SlashCommand("verify", "check the claims of the last answer", "[TURN]", group="context",
                more="They are compared with the journal and the files, without a model.", needs="workspace"),
        SlashCommand("expand", "show the newest tool result in full; N: the Nth newest",
                "[N | thinking | message]", at_once=True, group="context",
                more="Ctrl+O does the same."),
    )  # fmt: skip


def _agents() -> tuple[SlashCommand, ...]:
    return (
        SlashCommand("agents", "list the agents", at_once=True, group="agents"),
        SlashCommand("tree", "the running subagents, with progress and cost", at_once=True,
                group="agents"),
        SlashCommand("teams", "show the team, write to a teammate, or set whether the agent may lead one",
                "[on|off|NAME MESSAGE]", words=("on", "off"), at_once=True, group="agents",
                more="on and off apply to this session from the next turn; subagents.teams is the default."),
        SlashCommand("background", "the commands and subagents that run in the background",
                "[move]", words=("move",), at_once=True, group="agents",
                more="move sends the command that the turn waits for there; so does Ctrl+B."),
        SlashCommand("stop", "stop this subagent or background command; without a name, all subagents",
                "[NAME]", at_once=True, group="agents"),
    )  # fmt: skip


def _knowledge() -> tuple[SlashCommand, ...]:
    return (
        SlashCommand("skills", "list skills and templates, or show one", "[NAME]", at_once=True,
                group="knowledge", needs="workspace"),
        SlashCommand("mcp", "the MCP servers: pick one, show it, or do something with it",
                "[NAME|accept NAME|restart NAME|log NAME|login NAME|logout NAME]",
                words=("accept", "restart", "log", "login", "logout"), at_once=True,
                group="knowledge",
                more="A tool that changes is blocked until you accept it; log shows what a server "
                "has said last. refold mcp adds servers.", needs="workspace"),
        SlashCommand("hooks", "list the hooks that are run in this session", at_once=True,
                group="knowledge", more="refold hooks test EVENT runs them.", needs="workspace"),
        SlashCommand("memory", "show, forget or update the notes kept between sessions",
                "[show|forget N|update]", words=("show", "forget", "update"), group="knowledge", needs="workspace"),
        SlashCommand("note", "save a note, as does a line that begins with #", "TEXT",
                at_once=True, group="knowledge", needs="workspace"),
    )  # fmt: skip


def _terminal() -> tuple[SlashCommand, ...]:
    return (
        SlashCommand("help", "list what you can type here, or describe one command",
                "[NAME|all|keys]", ("?",), at_once=True),
        SlashCommand("shell", "run a command yourself, as does a line that begins with !",
                "COMMAND", at_once=True, needs="terminal"),
        SlashCommand("config", "show the settings and where each comes from, or change one",
                "[KEY|set KEY VALUE]", at_once=True, words=("set",),
                more="KEY may be a table. A change is saved, and new sessions use it.", needs="workspace"),
        SlashCommand("doctor", "check this installation", "[--offline]",
                words=("--offline",), needs="terminal"),
        SlashCommand("theme", "pick the colours, or change them by name", f"[{'|'.join(THEME_NAMES)}] [save]",
                words=THEME_NAMES, at_once=True, more="`save` makes it the default.", needs="terminal"),
        SlashCommand("vi", "show or change whether the input has vi keys", "[on|off]", words=("on", "off"), needs="terminal"),
    )  # fmt: skip


def is_available(
    command: SlashCommand, session: "Session", lacks: Collection[Need]
) -> bool:
    """Whether the command works in this session, on a surface that lacks these features."""
    if command.needs == "workspace":
        return session.sees_files
    return command.needs not in lacks


def command_name(typed: str) -> str:
    """Return the name of the command in `typed`, or "" for a message to the model."""
    command = command_in(typed)
    return command[0] if command else ""


def command_in(typed: str) -> tuple[str, str] | None:
    """Return the name and the arguments of a typed command; None for a message to the model.

    `/etc/hosts is wrong` is a message. `exit`, `quit`, `clear` and `?` are commands if nothing
    follows them. `#text` means /note, and `!command` means /shell.
    """
    text = typed.strip()
    if text.startswith("!"):
        return "shell", text[1:].strip()
    if text.startswith("#") and "\n" not in text:
        return "note", text.lstrip("#").strip()
    if text in ("exit", "quit", "clear"):
        return text, ""
    if text in ("/", "?"):
        return "help", ""
    head, _, rest = text.partition(" ")
    name = head.removeprefix("/")
    if not head.startswith("/") or not name:
        return None
    if "/" in name or "\n" in name:  # a path, or more than one line
        return None
    return name.lower(), rest.strip()


def find_command(name: str) -> SlashCommand | None:
    """Return the command with this name or alias (without the slash), or None."""
    return next((command for command in commands() if name in command.names), None)


def names() -> frozenset[str]:
    """Return the names and aliases of all commands, without the slash."""
    return frozenset(name for command in commands() for name in command.names)
