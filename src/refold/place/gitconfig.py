"""Tells which lines of a git settings file can make git run a program.

A repository's `config` can name programs that git starts even for `git status`: filters,
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
# These change what git reads, so a person should review a new settings file that has them.
_HARMLESS_DISPLAY_SETTINGS = {
    "abbrev", "quotepath", "sparsecheckout", "sparsecheckoutcone", "splitindex",
    "untrackedcache", "worktree", "checkstat", "trustctime",
}  # fmt: skip
# These name files that git reads, but never files that it runs.
_PATH_SETTINGS = {
    "core.excludesfile", "commit.template", "blame.ignorerevsfile", "mailmap.file",
    "user.signingkey",
}  # fmt: skip
_DISPLAY_SECTIONS = {"color", "column", "index", "log", "status"}
_DIFF_SETTINGS = {
    "algorithm", "colormoved", "colormovedws", "context", "indentheuristic",
    "interhunkcontext", "mnemonicprefix", "noprefix", "relative", "renamelimit", "renames",
    "statgraphwidth", "submodule", "wordregex",
}  # fmt: skip
# Settings of remotes that may name remote programs and merge strategies, which may be
# paths.
_REMOTE_SETTINGS = {
    "mergeoptions", "octopus", "receivepack", "twohead", "update", "uploadpack", "vcs",
}  # fmt: skip
_REMOTE_HELPER = re.compile(r"=\s*[\w+.-]*::")  # `url = name::address` runs a program
_SECTION_HEADER = re.compile(r'\[([A-Za-z][A-Za-z0-9-]*)([ \t]+"[^"\\]*")?\]')
_SETTING_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_MAX_CONFIG_BYTES = 256 * 1024


def runs_no_program(config: str) -> bool:
    """Whether all lines of the settings file `config` are known to run no program.

    Return False if the file cannot be read.
    """
    text = _read_settings(config)
    if text is None:
        return False
    lines = _lines_and_safety(text, _HARMLESS_CORE_SETTINGS)
    return all(is_harmless for _, is_harmless in lines)


def remote_urls(root: str) -> list[str]:
    """Return the addresses of a repository's remotes, as they are written in its settings."""
    text = _read_settings(f"{root}/.git/config") or ""
    return re.findall(r"(?m)^\s*(?:url|pushurl)\s*=\s*(\S+)\s*$", text)


@lru_cache(4096)
def names_no_program(section: str, name: str, value: str) -> bool:
    """Whether a setting is known to run no program. `section` and `name` are in lower case."""
    if f"{section}.{name}" in _PATH_SETTINGS:
        return True
    if section not in (*_HARMLESS_SECTIONS, *_DISPLAY_SECTIONS, "core", "diff"):
        return False
    core = _HARMLESS_CORE_SETTINGS | _HARMLESS_DISPLAY_SETTINGS
    return _runs_nothing(section, f"{name}={value}", core)


def program_lines(config: str) -> list[str] | None:
    """Return the lines of a settings file that may run a program; None if it is unreadable.

    Each line comes after the header of its section.
    """
    text = _read_settings(config)
    return None if text is None else _program_lines(text)


def program_lines_of(content: bytes) -> list[str]:
    """Return the lines that may run a program, given the content of a settings file.

    Each line comes after the header of its section.
    """
    return _program_lines(content.decode(errors="surrogateescape"))


def _program_lines(text: str) -> list[str]:
    """Return the lines of `text` that may run a program, each after its section's header."""
    lines, section = list[str](), ""
    for line, is_harmless in _lines_and_safety(text, _HARMLESS_CORE_SETTINGS):
        if line.startswith("["):
            section = line
        if not is_harmless:
            lines.append(f"{section}\n{line}")
    return lines


def without_programs(config: str) -> str | None:
    """Return a settings file without the lines that may run a program.

    Return None if the file has no such line, and "" if the file cannot be read.
    """
    text = _read_settings(config)
    if text is None:
        return ""
    return _without_programs(text)


@lru_cache(16)
def _without_programs(text: str) -> str | None:
    """Return the harmless lines of git settings; None if all lines are harmless."""
    core_names = _HARMLESS_CORE_SETTINGS | _HARMLESS_DISPLAY_SETTINGS
    lines = list(_lines_and_safety(text, core_names, with_display_settings=True))
    if all(is_harmless for _, is_harmless in lines):
        return None
    return "".join(f"{line}\n" for line, is_harmless in lines if is_harmless)


def _read_settings(config: str) -> str | None:
    """Return the text of a settings file; None if it is too long or not a regular file."""
    try:
        config_bytes, size = read_regular(config, _MAX_CONFIG_BYTES, follow=False)
    except OSError:
        return None
    if size > _MAX_CONFIG_BYTES:
        return None
    # Bytes that are not UTF-8 become unprintable characters.
    return config_bytes.decode(errors="surrogateescape")


def _lines_and_safety(
    text: str, harmless_core_names: set[str], *, with_display_settings: bool = False
) -> Iterator[tuple[str, bool]]:
    """Yield each line that is neither empty nor a comment, and whether it runs no program.

    A line with a backslash at its end, the line after it, and a line with unprintable
    characters are not known to be harmless. Some of these characters look like line ends, but
    git ends lines only at LF. `harmless_core_names` are the harmless names in the section core.
    With `with_display_settings`, sections that only change what git displays count as harmless.
    """
    section = ""
    continues = False  # whether the line before ended with a backslash
    for raw_line in text.split("\n"):
        line = raw_line.strip(" \t\r")
        if continues or not line.replace("\t", " ").isprintable():
            continues = line.endswith("\\")
            yield line, False
        elif not line or line[0] in "#;":
            continue
        elif line[0] == "[":
            section = _harmless_section(line, with_display_settings=with_display_settings)
            yield line, section != ""
        else:
            continues = line.endswith("\\")
            yield line, not continues and _runs_nothing(section, line, harmless_core_names)


def _harmless_section(line: str, *, with_display_settings: bool) -> str:
    """Return the name of a section; "" if its header is not known to be harmless.

    A header that is followed by more text in its line is not known to be harmless.
    """
    header = _SECTION_HEADER.fullmatch(line)
    if header is None:
        return ""
    name, subsection = header[1].lower(), header[2]
    if name == "diff" and subsection:  # a named diff driver may have a program
        return ""
    if name in _HARMLESS_SECTIONS or name == "core":
        return name
    if with_display_settings and (name in _DISPLAY_SECTIONS or name == "diff"):
        return name
    return ""


def _runs_nothing(section: str, line: str, harmless_core_names: set[str]) -> bool:
    """Whether a line with a setting is known to make git run no program.

    `section` is "" for an unknown section. `harmless_core_names` are the names in the section
    core that are harmless.
    """
    name = line.partition("=")[0].strip().lower()
    unquoted_line = line.replace('"', "").replace("\\", "")
    if not section or not _SETTING_NAME.fullmatch(name):
        return False
    if _REMOTE_HELPER.search(unquoted_line):
        return False
    if section == "core":
        return name in harmless_core_names
    if section in _DISPLAY_SECTIONS:
        return name not in ("showsignature", "pager")
    if section == "diff":
        return name in _DIFF_SETTINGS
    return name not in _REMOTE_SETTINGS
