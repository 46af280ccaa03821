"""The slash commands: one table that help, completion, docs and tests read.

Each is a small function of the conversation; what a command changes it sends to
the inbox like any other door. What they do stands beside this, by families.
"""

from refold.cli.terminal.commands import (
    called,
    choosing,
    equipment,
    exporting,
    family,
    filling,
    going_back,
    helping,
    knowing,
    looking_back,
    moving,
    others,
    planning,
    rights,
    setting,
    spending,
    vi,
    who,
    whole,
)
from refold.cli.terminal.conversing import Conversation, SlashCommand, one_of
from refold.cli.terminal.own import shell
from refold.errors import BadInput


def commands() -> tuple[SlashCommand, ...]:
    return (*_sessions(), *_work(), *_content(), *_terminal())


def _sessions() -> tuple[SlashCommand, ...]:
    """Which session this is, and what becomes of it."""
    return (
        SlashCommand("sessions", "other sessions of this directory, the newest first; go to one",
                others.sessions, "[WORDS]", group="session",
                more="WORDS stand in the name, the title or a tag."),
        SlashCommand("resume", "go on with another session; alone, pick one", others.resume,
                "[NAME|ID|last]", ("load",), group="session", choices=others.completed,
                more="It goes on where it works. last is the newest other one of this directory. "
                "The one you leave is closed and kept. One that is open elsewhere is not taken over."),
        SlashCommand("search", "where something was said, in the sessions of this directory",
                others.search, "WORDS", group="session",
                more='"words as they stand", or the beginning of one with a star.'),
        SlashCommand("rename", "give this session a name, or show it", called.rename, "[NAME]",
                ("save",), at_once=True, group="session",
                more='refold -r NAME goes on with it; /rename "" takes the name away.'),
        SlashCommand("tag", "give this session tags, or take them away", called.tag,
                "[+TAG|-TAG]", at_once=True, group="session"),
        SlashCommand("history", "what was said here, with the numbers that /rewind takes",
                looking_back.history, "[N]", group="session",
                more="N: only the last so many times that you spoke."),
        SlashCommand("export", "write this session to a file", exporting.export,
                "[md|html|tar|text] [FILE]", group="session",
                choices=one_of("md", "html", "json", "text"),
                more="Without FILE, beside the work, under a name of its own."),
        SlashCommand("fork", "go on in a copy; this session stays as it is", going_back.fork,
                "[EVENT]", group="session",
                more="EVENT is a number from /history: the copy ends there."),
        SlashCommand("cd", "go on in another directory; alone, say where this session works",
                moving.cd, "[DIR]", group="session",
                more="What lies in the one before is no part of the workspace any more. The "
                "settings and instructions of DIR count if you trust them."),
        SlashCommand("add-dir", "have one more directory in the workspace; alone, say which there are",
                moving.add_dir, "[DIR]", group="session"),
        SlashCommand("worktree", "go on in a git working tree of its own", moving.worktree,
                "[NAME]", group="session",
                more="It is made beside the repository, as by refold -w, and taken away at "
                "the end if nothing was changed in it."),
        SlashCommand("clear", "begin a new session", _clear, aliases=("new",), group="session",
                more="The one before is kept. Ctrl+L only empties the screen."),
        SlashCommand("continue", "go on without new words", _continue, group="session"),
        SlashCommand("quit", "leave; the session is kept", _quit, aliases=("exit", "q"),
                group="session"),
    )  # fmt: skip


def _work() -> tuple[SlashCommand, ...]:
    """Who works, what may be done, and the ways there and back."""
    return (
        SlashCommand("model", "show the model, or choose another", choosing.model,
                "[NAME] [save]", ("backend",), group="model", at_once=True, choices=choosing.models,
                more="It counts from the next turn on; with save, for every session to come. "
                "The name of a provider or a command line alone takes its usual model."),
        SlashCommand("effort", "how hard it thinks", choosing.effort,
                f"[{'|'.join(choosing.EFFORTS)}] [save]", group="model", at_once=True,
                choices=one_of(*choosing.EFFORTS)),
        SlashCommand("agent", "show who works, or choose another", who.agent, "[NAME]",
                group="model", choices=who.choices),
        SlashCommand("preset", "the prompts that there are for the agent main", who.preset,
                "[NAME save]", group="model", at_once=True, choices=who.presets),
        SlashCommand("format", "how another agent's command line is told the talk",
                setting.format_, f"[{'|'.join(setting.FORMATS)}]", group="model", at_once=True,
                choices=one_of(*setting.FORMATS),
                more="It is the setting backend.format, of sessions to come."),
        SlashCommand("mode", "how much runs unasked", rights.mode,
                f"[{'|'.join(rights.MODES)}]", group="rights", at_once=True, choices=one_of(*rights.MODES)),
        SlashCommand("approval", "on: ask as usual; off: everything runs unasked",
                rights.approval, "[on|off]", group="rights", at_once=True, choices=one_of("on", "off")),
        SlashCommand("permissions", "the rules in force; allow one for this session",
                rights.permissions, "[allow RULE]", group="rights", at_once=True, choices=one_of("allow")),
        SlashCommand("tools", "what can be called here, and what would run unasked",
                equipment.tools, "[NAME]", at_once=True, group="rights",
                choices=equipment.names),
        SlashCommand("plan", "plan first, change nothing; list shows the plans", planning.plan,
                "[list|WORDS]", group="plan", choices=one_of("list")),
        SlashCommand("plans", "the plans of this session; or one of them, whole",
                planning.plans, "[N]", at_once=True, group="plan"),
        SlashCommand("execute", "approve the plan, or just leave plan mode", planning.execute,
                group="plan"),
        SlashCommand("rewind", "back to before something was said: talk, files or both",
                going_back.rewind_to, "[N] [talk|files|both]", group="plan",
                more="Alone it lists where one can go back to. What would change is shown, "
                "and done after a yes."),
        SlashCommand("undo", "take back what was done since the last words", going_back.undo,
                group="plan"),
    )  # fmt: skip


def _content() -> tuple[SlashCommand, ...]:
    """What the session holds, has used up and knows."""
    return (
        SlashCommand("context", "what fills the model's window, by part", filling.context,
                at_once=True, group="context"),
        SlashCommand("compact", "tell the talk shorter; prune: only old results",
                filling.compact, "[prune] [WHAT MUST NOT GET LOST]", at_once=True,
                group="context", choices=one_of(*filling.KINDS)),
        SlashCommand("todos", "what is to be done, and how far it is", filling.todos,
                at_once=True, group="context"),
        SlashCommand("cost", "tokens and money of this session; turns: of each turn",
                spending.cost, "[turns]", at_once=True, group="context",
                choices=one_of("turns")),
        SlashCommand("budget", "what a turn may use up", spending.budget,
                "[USD|tokens N|calls N|seconds N|off]", at_once=True, group="context",
                choices=one_of(*spending.KINDS)),
        SlashCommand("iterations", "how many answers one turn may have", spending.iterations,
                "[N|off]", at_once=True, group="context", choices=one_of("off"),
                more="Of this session, the turn under way included; off: as it is set."),
        SlashCommand("trace", "each call of this session, with its time and its cost",
                looking_back.trace, "[N]", group="context",
                more="N: only the slowest so many. Children and what they did come too."),
        SlashCommand("verify", "is what the last answer claims borne out?",
                looking_back.verify, "[TURN]", group="context",
                more="Held against the journal and the files; no model is asked."),
        SlashCommand("expand", "the newest result, whole; N: the one N results back",
                whole.whole, "[N]", group="context"),
        SlashCommand("agents", "who could work here", who.agents, at_once=True,
                group="children"),
        SlashCommand("tree", "the children at work here: how far they are, what they cost",
                family.tree, at_once=True, group="children"),
        SlashCommand("background", "the children that work while the talk goes on",
                family.background, at_once=True, group="children"),
        SlashCommand("stop", "end one child, or all, with all below; the turn goes on",
                family.stop, "[child-1]", at_once=True, group="children"),
        SlashCommand("skills", "skills and templates; or one of them, whole", knowing.skills,
                "[NAME]", at_once=True, group="knowledge", choices=knowing.named),
        SlashCommand("memory", "what is remembered from session to session", knowing.memory,
                "[show|forget N|update]", group="knowledge", choices=one_of(*knowing.MEMORY)),
        SlashCommand("note", "remember this; so does a line that begins with #", knowing.note,
                "WORDS", at_once=True, group="knowledge"),
    )  # fmt: skip


def _terminal() -> tuple[SlashCommand, ...]:
    """What is about the terminal, and not about the session."""
    return (
        SlashCommand("help", "what can be typed here; NAME: all about that", _help, "[NAME]",
                ("?",), at_once=True),
        SlashCommand("shell", "run a command yourself; so does a line that begins with !",
                shell.shell, "COMMAND", at_once=True),
        SlashCommand("config", "the settings, and where each comes from", setting.config,
                "[KEY]", at_once=True,
                more="KEY may be a table. refold config set changes one."),
        SlashCommand("theme", "the colours from now on", setting.theme,
                f"[{'|'.join(setting.THEMES)}] [save]", at_once=True,
                choices=one_of(*setting.THEMES)),
        SlashCommand("vi", "the keys of vi at the prompt, or those of Emacs", vi.vi, "[on|off]",
                choices=one_of("on", "off")),
    )  # fmt: skip


def command_in(typed: str) -> tuple[str, str] | None:
    """The command's name and the rest, or None: these are words for the model.

    `/etc/hosts is wrong` is no command; `exit`, `quit` and `clear` alone are. `#words` is
    a note, `!words` a command of the person's own shell.
    """
    words = typed.strip()
    if words.startswith("!"):
        return "shell", words[1:].strip()
    if words.startswith("#") and "\n" not in words:
        return "note", words.lstrip("#").strip()
    if words in ("exit", "quit", "clear"):
        return words, ""
    if words == "/":  # nobody means to say that to a model
        return "help", ""
    head, _, rest = words.partition(" ")
    if not head.startswith("/") or "/" in head[1:] or "\n" in head or head == "/":
        return None
    return head[1:].lower(), rest.strip()


def names() -> frozenset[str]:
    """All that a command is called by, without the slash."""
    return frozenset(name for each in commands() for name in each.names)


def at_once(name: str) -> bool:
    """Is this a command that need not wait until the turn is over?"""
    return any(name in each.names and each.at_once for each in commands())


async def obey(name: str, rest: str, here: Conversation) -> None:
    """Do what the command says, or say what a template or skill of that name stands for.

    An unknown one is named with the nearest.
    """
    for each in commands():
        if name in each.names:
            await each.does(here, rest)
            return
    shortcuts = here.around.shortcuts
    if shortcuts is None or shortcuts.find(name) is None:
        own = shortcuts.offered() if shortcuts else ()
        raise BadInput(helping.unknown(name, commands(), own))
    words = await knowing.expanded(here, shortcuts, name, rest)
    await here.say(words, typed=f"/{name} {rest}".rstrip())


async def _help(here: Conversation, rest: str) -> None:
    own = here.around.shortcuts.offered() if here.around.shortcuts else ()
    if rest:
        here.paper.lines(helping.found(rest, commands(), own))
    else:
        here.paper.lines(helping.all_of(commands(), own, here.paper.room))


async def _continue(here: Conversation, rest: str) -> None:
    if not here.session.view.talk.messages:
        raise BadInput("There is nothing to go on with yet.")
    await here.continue_()


async def _clear(here: Conversation, rest: str) -> None:
    session = await here.around.new_session()
    await here.change(session, "A new session. The one before is kept.")


async def _quit(here: Conversation, rest: str) -> None:
    here.quit()
