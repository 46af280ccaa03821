"""The directory, files, environment and arguments of one run of a program.

It runs in an empty directory, so that it finds no project and no settings of one. Files
for it are in a directory of this run, removed afterwards. It gets the user's
environment without the keys of other programs.
"""

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from refold.errors import TooLong
from refold.provider.command.spec import SLOTS, CommandSpec

# Linux takes no longer argument, whatever the limit on all of them.
_LONGEST_ARGUMENT = 128 * 1024 - 1
_NOBODY_THERE = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
}
_OURS = ("OLDPWD", "COLUMNS", "LINES", "FORCE_COLOR")
_SLOT = re.compile("|".join(rf"\{{{name}\}}" for name in sorted(SLOTS)))


class ProgramPrompt(Struct, frozen=True):
    """What a program is told. `system` stands alone only where a slot takes it."""

    prompt: str
    system: str = ""
    model: str = ""
    effort: str = ""


class Workplace(Struct, frozen=True):
    """Ready to start. `line` and `told` are for a trace: nothing there is of this run.

    `line` is the command line, and where words go in by an argument or a file, the
    slot stands there. `told` are those words, by what they went in by.
    """

    directory: Path
    cwd: str
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    stdin: bytes | None
    line: str
    told: tuple[tuple[str, bytes], ...]

    def clear(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


def prepared(
    spec: CommandSpec, program: str, words: ProgramPrompt, environ: Mapping[str, str]
) -> Workplace:
    """Make directory and files. Raises `TooLong`, and `OSError`."""
    directory = Path(tempfile.mkdtemp(prefix="refold-"))
    try:
        own = directory / "tmp"
        own.mkdir()
        slots = {
            "prompt": words.prompt,
            "prompt_file": str(directory / "prompt.md"),
            "system": words.system,
            "system_file": str(directory / "system.md"),
            "model": words.model,
            "effort": spec.efforts.get(words.effort, words.effort),
            "files": str(directory),
        }
        arguments = _arguments(spec, words)
        argv = (program, *(_filled(spec, part, slots) for part in arguments))
        files = _files(spec, slots)
        for name, content in files:
            (directory / name).write_bytes(content)
        cwd = _empty(environ) or _made(directory / "empty")
        variables = {
            **environ,
            **_NOBODY_THERE,
            "PWD": cwd,
            "TMPDIR": str(own),
            **{name: _put(value, slots) for name, value in spec.environ.items()},
        }
        for name in (*_OURS, *spec.unset):
            variables.pop(name, None)
        stdin = words.prompt.encode() if spec.stdin else None
        told = [(f"file {name}", content) for name, content in files]
        told += _in_place(spec, arguments, slots)
        line = _line(program, arguments, slots)
        return Workplace(directory, cwd, argv, variables, stdin, line, tuple(told))
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def without_keys(
    environ: Mapping[str, str], keys: Collection[str], own: Collection[str]
) -> dict[str, str]:
    """The environment without those of the keys that are not the program's own."""
    foreign = set(keys) - set(own)
    return {name: value for name, value in environ.items() if name not in foreign}


def _arguments(spec: CommandSpec, words: ProgramPrompt) -> tuple[str, ...]:
    model = spec.model_argv if words.model else ()
    effort = spec.effort_argv if words.effort else ()
    return (*spec.argv[1:], *model, *effort)


def _files(spec: CommandSpec, slots: Mapping[str, str]) -> list[tuple[str, bytes]]:
    used = spec.slots
    found = [
        (f"{name}.md", slots[name])
        for name in ("prompt", "system")
        if f"{{{name}_file}}" in used
    ]
    found += [(name, _put(content, slots)) for name, content in spec.files.items()]
    return [(name, content.encode()) for name, content in found]


def _in_place(
    spec: CommandSpec, arguments: Iterable[str], slots: Mapping[str, str]
) -> list[tuple[str, bytes]]:
    """What stands in an argument or a variable itself, by its slot."""
    used = "\n".join((*arguments, *spec.environ.values()))
    return [
        (f"slot {name}", slots[name].encode())
        for name in ("prompt", "system")
        if f"{{{name}}}" in used
    ]


def _line(program: str, arguments: Iterable[str], slots: Mapping[str, str]) -> str:
    shown = {name: f"{{{name}}}" for name in slots}
    shown |= {name: slots[name] for name in ("model", "effort")}
    return shlex.join((program, *(_put(part, shown) for part in arguments)))


def _filled(spec: CommandSpec, part: str, slots: Mapping[str, str]) -> str:
    found = _put(part, slots).replace("\0", "\N{REPLACEMENT CHARACTER}")
    if (size := len(found.encode())) > _LONGEST_ARGUMENT:
        raise TooLong(
            f"the conversation does not fit on the command line of {spec.label}: it has "
            f"{size // 1024} KiB, and {_LONGEST_ARGUMENT // 1024 + 1} KiB is the most; give it "
            "by stdin or {prompt_file}, or take the context mode sliding or fresh"
        )
    return found


def _put(template: str, slots: Mapping[str, str]) -> str:
    """In one go: what is put in may hold braces too."""
    return _SLOT.sub(lambda found: slots[found[0][1:-1]], template)


def _empty(environ: Mapping[str, str]) -> str:
    """A directory that stays the same, since some programs remember each they were in.

    "" where there is none that nobody has put anything into.
    """
    home = environ.get("HOME", "")
    cache = environ.get("XDG_CACHE_HOME", "") or (home and os.path.join(home, ".cache"))
    if not os.path.isabs(cache):
        return ""
    found = Path(cache, "refold", "empty")
    try:
        found.mkdir(parents=True, exist_ok=True, mode=0o700)
        return "" if any(found.iterdir()) else str(found)
    except OSError:
        return ""


def _made(directory: Path) -> str:
    directory.mkdir()
    return str(directory)
