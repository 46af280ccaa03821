"""The slash commands: one table that help, completion and tests read.

Each is a small function of the conversation; what a command changes it sends to
the inbox like any other door. What the larger families do stands beside this.
"""

from refold.cli.terminal import (
    choosing,
    family,
    filling,
    going_back,
    knowing,
    planning,
    rights,
    spending,
    who,
)
from refold.cli.terminal.choosing import EFFORTS
from refold.cli.terminal.conversing import Command, Conversation
from refold.cli.terminal.rights import MODES
from refold.errors import BadInput
from refold.views.cells import cells
from refold.views.escape import on_one_line

_TWO_COLUMNS = 60  # cells that they need


def commands() -> tuple[Command, ...]:
    return (
        Command("help", "what can be typed here", _help, at_once=True),
        Command("model", "show the model, or choose another", choosing.model, "[name] [save]"),
        Command("effort", "how hard it thinks", choosing.effort,
                f"[{'|'.join(EFFORTS)}] [save]"),
        Command("agent", "show who works, or choose another", who.agent, "[name]"),
        Command("agents", "who could work here", who.agents, at_once=True),
        Command("tree", "the children at work here: how far they are, what they cost",
                family.tree, at_once=True),
        Command("stop", "end one child, or all, with all below; the turn goes on",
                family.stop, "[child-1]", at_once=True),
        Command("preset", "the prompts that there are for the agent main", who.preset,
                "[name save]"),
        Command("mode", "how much runs unasked", rights.mode, f"[{'|'.join(MODES)}]"),
        Command("approval", "on: ask as usual; off: everything runs unasked",
                rights.approval, "[on|off]"),
        Command("permissions", "the rules in force; allow one for this session",
                rights.permissions, "[allow RULE]"),
        Command("plan", "plan first, change nothing; list shows the plans", planning.plan,
                "[list|words]"),
        Command("execute", "approve the plan, or just leave plan mode", planning.execute),
        Command("rewind", "back to before something was said: talk, files or both",
                going_back.rewind_to, "[N] [talk|files|both]"),
        Command("fork", "go on in a copy; this session stays as it is",
                going_back.fork, "[EVENT]"),
        Command("undo", "take back what was done since the last words", going_back.undo),
        Command("context", "what fills the model's window, by part", filling.context,
                at_once=True),
        Command("compact", "tell the talk shorter; prune: only old results",
                filling.compact, "[prune] [what must not get lost]", at_once=True),
        Command("todos", "what is to be done, and how far it is", filling.todos, at_once=True),
        Command("skills", "skills and templates; or one of them, whole", knowing.skills,
                "[name]", at_once=True),
        Command("memory", "what is remembered from session to session", knowing.memory,
                "[show|forget N|update]"),
        Command("note", "remember this; so does a line that begins with #", knowing.note,
                "words", at_once=True),
        Command("cost", "tokens and money of this session; turns: of each turn",
                spending.cost, "[turns]", at_once=True),
        Command("budget", "what a turn may use up", spending.budget,
                "[USD|tokens N|calls N|seconds N|off]", at_once=True),
        Command("continue", "go on without new words", _continue),
        Command("clear", "begin a new session", _clear, aliases=("new",)),
        Command("quit", "leave; the session is kept", _quit, aliases=("exit",)),
    )  # fmt: skip


def command_in(typed: str) -> tuple[str, str] | None:
    """The command's name and the rest, or None: these are words for the model.

    `/etc/hosts is wrong` is no command; `exit`, `quit` and `clear` alone are. `#words` is
    a note.
    """
    words = typed.strip()
    if words.startswith("#") and "\n" not in words:
        return "note", words.lstrip("#").strip()
    if words in ("exit", "quit", "clear"):
        return words, ""
    head, _, rest = words.partition(" ")
    if not head.startswith("/") or "/" in head[1:] or "\n" in head or head == "/":
        return None
    return head[1:].lower(), rest.strip()


def names() -> frozenset[str]:
    """All that a command is called by, without the slash."""
    return frozenset(name for c in commands() for name in (c.name, *c.aliases))


def at_once(name: str) -> bool:
    """Is this a command that need not wait until the turn is over?"""
    return any(name in (c.name, *c.aliases) and c.at_once for c in commands())


async def obey(name: str, rest: str, here: Conversation) -> None:
    """Do what the command says, or say what a template or skill of that name stands for.

    An unknown one is named with the nearest.
    """
    known = {alias: c for c in commands() for alias in (c.name, *c.aliases)}
    if name in known:
        await known[name].does(here, rest)
        return
    shortcuts = here.around.shortcuts
    if shortcuts is not None and shortcuts.find(name) is not None:
        words = await knowing.expanded(here, shortcuts, name, rest)
        await here.say(words, typed=f"/{name} {rest}".rstrip())
        return
    from difflib import get_close_matches

    others = [each.name[1:] for each in shortcuts.offered()] if shortcuts else []
    near = get_close_matches(name, [*known, *others], n=1, cutoff=0.5)
    hint = f"Did you mean /{near[0]}?" if near else "/help lists all."
    raise BadInput(f"There is no command /{on_one_line(name)}. {hint}")


async def _help(here: Conversation, rest: str) -> None:
    rows = [(f"/{c.name} {c.takes}".strip(), c.about) for c in commands()]
    rows += [
        ("Esc Enter", "a new line; so does a backslash at the end"),
        ("Shift+Tab", "the next mode: default, accept-edits, plan"),
        ("Ctrl+C", "while it works: redirect or stop"),
        ("words, Enter", "while it works: heard at the next step"),
        ("Alt+Enter", "while it works: kept until after this turn"),
        ("@path", "Tab completes the name of a file"),
        ("/name words", "a template or a skill: /skills lists them"),
    ]
    wide = max(cells(left) for left, _ in rows if cells(left) < 24)
    for left, about in rows:
        if here.screen.room < _TWO_COLUMNS:
            here.screen.line((("accent", f"  {left}"),))
            here.screen.line((("plain", f"      {about}"),))
        else:
            here.screen.line((("accent", f"  {left:{wide}}"), ("plain", f"  {about}")))


async def _continue(here: Conversation, rest: str) -> None:
    if not here.session.view.talk.messages:
        raise BadInput("There is nothing to go on with yet.")
    await here.continue_()


async def _clear(here: Conversation, rest: str) -> None:
    await here.change(await here.around.new_session())


async def _quit(here: Conversation, rest: str) -> None:
    here.quit()
