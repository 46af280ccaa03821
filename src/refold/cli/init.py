"""`refold init`: writes an AGENTS.md for this directory.

A model writes the file in a normal session, which begins with the built-in template `/init`.
The model reads the project with its tools, and the user sees the change before it is made. If
no model is available, the file lists the commands that the build files define
(`cli.build_files`).
"""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from refold.cli.build_files import Project, read_project
from refold.cli.output import is_interactive
from refold.config.folder_settings import untrusted_texts
from refold.config.paths import current_directory, paths
from refold.config.trusted_folders import TrustedFolders
from refold.errors import BadInput
from refold.headless.streams import print_error, write
from refold.views.escape import escape_to_one_line
from refold.views.stream_json.turn_result import EXIT_CODES

FILE_NAME = "AGENTS.md"


def add_arguments(init: ArgumentParser) -> None:
    add = init.add_argument
    add("--no-model", action="store_true", help="write the build files' commands only")
    add("--print", action="store_true", help="as --no-model, but only print the text")
    add("--force", action="store_true", help="change an existing file without asking")
    add("-m", "--model", metavar="PROVIDER/MODEL", help="the model")
    add("--script", metavar="FILE", help="take the model's responses from a script")


def run(args: Namespace) -> int:
    """Write AGENTS.md, with a model or from the build files alone. Return the exit code."""
    folder = current_directory()
    if args.print:
        write(agents_md_text(read_project(folder)))
        return 0
    file = folder / FILE_NAME
    attended = is_interactive()
    uses_model = not args.no_model and _has_model(args)
    asks_before_changes = uses_model and attended
    if os.path.lexists(file) and not (args.force or asks_before_changes):
        raise BadInput(f"{file} exists: --force changes it, --print only prints the text")
    if not uses_model:
        return _write_without_model(folder, file)
    code = _write_with_model(args, ask=attended and not args.force)
    # a turn with a denied call may have written the file, too
    if not attended and code in (0, EXIT_CODES["denied"]):
        if not file.exists():
            print_error(f"the model did not write {FILE_NAME}")
            return 1
        write(_trust_notice(folder))
    return code


def _has_model(args: Namespace) -> bool:
    from refold.cli.launch import app_of

    return bool(app_of(_init_arguments(args), attended=False).models.default())


def _write_with_model(args: Namespace, *, ask: bool) -> int:
    """Let a model write the file; with `ask`, the user is asked first. Return the exit code."""
    from refold.cli.main import session

    # Without a terminal the user cannot be asked, so the command itself permits writing
    # this file.
    rules = () if ask else ("--allow", f"edit_file({FILE_NAME})")
    return session(_init_arguments(args, *rules))


def _init_arguments(args: Namespace, *flags: str) -> Namespace:
    """Return the arguments of a session that begins with /init, with further `flags`."""
    from refold.cli.flags import parse

    model = ("--model", args.model) if args.model else ()
    script = ("--script", args.script) if args.script else ()
    return parse(("/init", *model, *script, *flags))


def _write_without_model(folder: Path, file: Path) -> int:
    """Write the file from the build files. Raises `BadInput` if they define no command."""
    project = read_project(folder)
    if not project.commands:
        raise BadInput(
            "no build file here defines a command, so there is nothing to write into "
            f"{FILE_NAME}: with a model, refold init reads the rest of the project, too"
        )
    _write(file, agents_md_text(project))
    number = len(project.commands)
    noun = "command" if number == 1 else "commands"
    write(f"Wrote {FILE_NAME} from the build files: {number} {noun}.\n")
    write(_trust_notice(folder))
    return 0


def agents_md_text(project: Project) -> str:
    return "\n".join(_lines(project)) + "\n"


def _lines(project: Project) -> Iterator[str]:
    """Yield the lines of the file: the name, the description, and a table of commands."""
    yield f"# {escape_to_one_line(project.name)}"
    about = (project.description, ", ".join(project.languages))
    sentences = [_sentence(text) for text in about if text]
    if sentences:
        yield from ("", " ".join(sentences))
    if project.commands:
        yield from ("", "## Commands", "", "| what | command |", "|---|---|")
        for command in project.commands:
            yield f"| {command.purpose} | `{command.line}` |"


def _sentence(text: str) -> str:
    sentence = escape_to_one_line(text).rstrip()
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."


def _trust_notice(folder: Path) -> str:
    """Return a sentence on how to trust the folder; "" if it is trusted.

    Agents read AGENTS.md only in a trusted folder.
    """
    with suppress(BadInput):
        if untrusted_texts(folder, TrustedFolders(paths(os.environ).folders)).found:
            return (
                f"To let agents read {FILE_NAME}, trust this directory: refold trust add\n"
            )
    return ""


def _write(file: Path, text: str) -> None:
    """Replace the file atomically. A link is followed only to a target in the directory."""
    try:
        real = file.resolve()
    except RuntimeError as error:
        raise BadInput(f"{file} cannot be written: it is a link to itself") from error
    if not real.is_relative_to(file.parent.resolve()):
        raise BadInput(
            f"{file} is a link to {real}, outside of this directory: remove it first"
        )
    temporary = real.with_name(f".{real.name}.new")
    try:
        temporary.unlink(missing_ok=True)  # an earlier run may have left it
        with temporary.open("x", encoding="utf-8", newline="") as target:
            target.write(text)
            target.flush()
            os.fsync(target.fileno())
        temporary.replace(real)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise BadInput(f"{file} cannot be written: {error.strerror}") from error
