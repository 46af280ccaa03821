"""Which settings of git run no program, and a settings file without the others.

The `config` of a repository can name programs that git starts even for `git status`: filters,
textconv, external diffs, helpers, and files that name more. A setting that is not known to be
harmless counts as one of these. See git-config(1).
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from refold.safe_open import read_regular

# Written by `git init`, `git clone`, `git remote` and `git submodule`; none runs a program.
_HARMLESS_SECTIONS = {"branch", "remote", "submodule", "user", "extensions", "pull"}
_HARMLESS_CORE_SETTINGS = {
    "autocrlf", "bare", "eol", "filemode", "ignorecase", "logallrefupdates",
    "precomposeunicode", "repositoryformatversion", "safecrlf", "symlinks",
}  # fmt: skip
# These change what git reads: a person should review a new settings file that has them.
_HARMLESS_DISPLAY_SETTINGS = {
    "abbrev", "quotepath", "sparsecheckout", "sparsecheckoutcone", "splitindex",
    "untrackedcache", "worktree", "checkstat", "trustctime",
}  # fmt: skip
# They name files that git reads, and none that it runs.
_PATH_SETTINGS = {
    "core.excludesfile", "commit.template", "blame.ignorerevsfile", "mailmap.file",
    "user.signingkey",
}  # fmt: skip
_OF_DISPLAY = {"color", "column", "index", "log", "status"}
_OF_DIFF = {
    "algorithm", "colormoved", "colormovedws", "context", "indentheuristic",
    "interhunkcontext", "mnemonicprefix", "noprefix", "relative", "renamelimit", "renames",
    "statgraphwidth", "submodule", "wordregex",
}  # fmt: skip
# Remote programs and merge strategies: their names may be paths.
_OF_REMOTES = {
    "mergeoptions", "octopus", "receivepack", "twohead", "update", "uploadpack", "vcs",
}  # fmt: skip
_REMOTE_HELPER = re.compile(r"=\s*[\w+.-]*::")
_SECTION_HEADER = re.compile(r'\[([A-Za-z][A-Za-z0-9-]*)([ \t]+"[^"\\]*")?\]')
_SETTING_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_MAX_CONFIG_BYTES = 256 * 1024


def runs_no_program(config: str) -> bool:
    """Whether no setting in a git settings file can make git run a program."""
    text = _read_settings(config)
    return text is not None and all(
        known for _, known in _lines_and_safety(text, _HARMLESS_CORE_SETTINGS)
    )


def remote_urls(root: str) -> list[str]:
    """The addresses of the remotes of a repository, as its settings spell them."""
    text = _read_settings(f"{root}/.git/config") or ""
    return re.findall(r"(?m)^\s*(?:url|pushurl)\s*=\s*(\S+)\s*$", text)


@lru_cache(4096)
def names_no_program(section: str, name: str, value: str) -> bool:
    """Whether this setting is known to run nothing. `section` and `name` are in lower case."""
    if f"{section}.{name}" in _PATH_SETTINGS:
        return True
    known = section in (*_HARMLESS_SECTIONS, *_OF_DISPLAY, "core", "diff")
    return known and _runs_nothing(
        section, f"{name}={value}", _HARMLESS_CORE_SETTINGS | _HARMLESS_DISPLAY_SETTINGS
    )


def program_lines(config: str) -> list[str] | None:
    """The lines of a settings file that may run a program; None if it cannot be read."""
    text = _read_settings(config)
    return None if text is None else _program_lines(text)


def program_lines_of(content: bytes) -> list[str]:
    """Like `program_lines`, for the content of a settings file."""
    return _program_lines(content.decode(errors="surrogateescape"))


def _program_lines(text: str) -> list[str]:
    """Each line is prefixed with its section."""
    lines, section = list[str](), ""
    for line, known in _lines_and_safety(text, _HARMLESS_CORE_SETTINGS):
        section = line if line[0] == "[" else section
        lines += () if known else (f"{section}\n{line}",)
    return lines


def without_programs(config: str) -> str | None:
    """The part of a settings file that runs nothing; None if that is all of it."""
    text = _read_settings(config)
    if text is None:
        return ""
    return _without_programs(text)


@lru_cache(16)
def _without_programs(text: str) -> str | None:
    lines = list(
        _lines_and_safety(
            text,
            _HARMLESS_CORE_SETTINGS | _HARMLESS_DISPLAY_SETTINGS,
            with_display_settings=True,
        )
    )
    if all(known for _, known in lines):
        return None
    return "".join(f"{line}\n" for line, known in lines if known)


def _read_settings(config: str) -> str | None:
    """The text of a settings file; None if it is too long or not a regular file."""
    try:
        config_bytes, size = read_regular(config, _MAX_CONFIG_BYTES, follow=False)
    except OSError:
        return None
    # Bytes that are not UTF-8 become unprintable.
    return (
        config_bytes.decode(errors="surrogateescape") if size <= _MAX_CONFIG_BYTES else None
    )


def _lines_and_safety(
    text: str, core: set[str], *, with_display_settings: bool = False
) -> Iterator[tuple[str, bool]]:
    """Each line that is not empty, and whether it is known to run nothing.

    A line that continues on the next is not known to be harmless, and neither is its
    continuation. Nor is a line with unprintable characters: git ends lines in only one way,
    and we must not see a comment where git sees more.
    """
    section, goes_on = "", False
    for line in (line.strip(" \t\r") for line in text.split("\n")):
        if goes_on or not line.replace("\t", " ").isprintable():
            goes_on = line.endswith("\\")
            yield line, False
        elif not line or line[0] in "#;":
            continue
        elif line[0] == "[":
            section, known = _section(line, with_display_settings=with_display_settings)
            yield line, known
        else:
            goes_on = line.endswith("\\")
            yield line, not goes_on and _runs_nothing(section, line, core)


def _section(line: str, *, with_display_settings: bool) -> tuple[str, bool]:
    """The section's name, "" if unknown, and whether the line contains nothing else."""
    header = _SECTION_HEADER.fullmatch(line)
    name = header[1].lower() if header else ""
    known = {
        *_HARMLESS_SECTIONS,
        "core",
        *((*_OF_DISPLAY, "diff") if with_display_settings else ()),
    }
    # A driver of diffs has a name, and may have a program.
    if not header or name not in known or (name == "diff" and header[2]):
        return "", False
    return name, True


def _runs_nothing(section: str, line: str, core: set[str]) -> bool:
    name = line.partition("=")[0].strip().lower()
    bare = line.replace('"', "").replace("\\", "")
    if not section or not _SETTING_NAME.fullmatch(name) or _REMOTE_HELPER.search(bare):
        return False
    if section == "core":
        return name in core
    if section in _OF_DISPLAY:
        return name not in ("showsignature", "pager")
    if section == "diff":
        return name in _OF_DIFF
    return name not in _OF_REMOTES
