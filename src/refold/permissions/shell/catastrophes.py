"""Recognizes commands that can destroy a machine, a home directory or a workspace.

The user is asked about them in every mode. The check must not miss one, so it examines every
command that may run, and assumes the worst.
"""

import posixpath
import re

from refold.permissions.facts import Facts
from refold.permissions.shell import program_forms
from refold.permissions.shell.named_files import places_of
from refold.permissions.shell.nested_commands import NestedCommands, name_of
from refold.permissions.shell.words import (
    BRACKET,
    DIRECTORY_MARK,
    HOME_MARK,
    MARK_PATTERN,
    QUERY,
    STAR,
    UNKNOWN_GAP,
    Word,
)
from refold.values.path_names import below

_FATAL_PROGRAMS = frozenset({
    "sudo", "doas", "su", "pkexec", "run0", "shutdown", "reboot", "halt", "poweroff", "mke2fs",
    "fdisk", "sfdisk", "cfdisk", "gdisk", "sgdisk", "parted", "wipefs", "blkdiscard", "telinit",
    "mkswap", "cryptsetup", "vgremove", "lvremove", "pvremove", "zpool", "kexec", "badblocks",
    "killall5", "modprobe", "insmod", "rmmod", "visudo", "userdel", "swapoff",
})  # fmt: skip
_REMOVING_PROGRAMS = frozenset(
    ("rm", "rmdir", "shred", "unlink", "mv", "srm", "rimraf", "trash")
)
_RECURSIVE_PROGRAMS = frozenset(("chmod", "chown", "chgrp", "setfacl"))
_STOPPING_PROGRAMS = frozenset(
    ["poweroff", "reboot", "halt", "suspend", "hibernate", "kexec", "rescue", "emergency"]
)
_TOP_DIRECTORIES = frozenset(
    [
        "/bin",
        "/boot",
        "/dev",
        "/etc",
        "/home",
        "/lib",
        "/lib32",
        "/lib64",
        "/opt",
        "/proc",
        "/root",
        "/run",
        "/sbin",
        "/srv",
        "/sys",
        "/usr",
        "/var",
        "/Users",
        "/System",
        "/Library",
        "/Applications",
        "/Volumes",
    ]
)
_FIND_ACTIONS = frozenset(("-delete", "-exec", "-execdir", "-ok", "-okdir"))
_FIND_FILTERS = frozenset(
    [
        "-name",
        "-iname",
        "-path",
        "-ipath",
        "-wholename",
        "-regex",
        "-iregex",
        "-mtime",
        "-mmin",
        "-size",
        "-newer",
        "-empty",
        "-user",
        "-perm",
        "-atime",
        "-ctime",
    ]
)
# Devices that a command must not write, also as `of=/dev/sda`.
_DEVICE_PATTERN = re.compile(
    r"(?:.*[=@])?/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|dm-|md\d|loop|nbd|disk/|mapper/|mem$|kmem$|"
    r"port$|sg\d|rdisk|kmsg|watchdog)|/proc/sysrq-trigger$"
)
# A glob without literal text, which may match every name.
_ANY_NAME = re.compile(f"(?:[*{STAR}{QUERY}]|{BRACKET}[^/]*])+")
# `~name`, the home of a user, possibly with a glob for everything in it.
_HOME_OF_USER = re.compile(r"~[A-Za-z_][\w-]*(?:/+(?:\*|\.\*)?)?")
_REMOVING_CODE = re.compile(
    r"rmtree|rm_r?f?\b|rmSync|rmdirSync|removeSync|remove_dir_all|deltree|unlink"
)


def catastrophe(nested: NestedCommands, cwd: str, facts: Facts) -> str:
    """Return a clause about the damage that a script can do, such as "it removes /", or ""."""
    if nested.bomb:
        return "it starts itself again without end"
    places = places_of(nested, cwd, facts)
    if nested.quoted and any(
        _REMOVING_CODE.search(w.value) for c in nested.commands for w in c
    ):
        for text in nested.quoted:
            if text.startswith(("/", "~", ".")) and (
                grave := _grave_target(text, places, facts)
            ):
                return f"it removes all of {grave}"
    for redirect in nested.redirects:
        if redirect.writes and _DEVICE_PATTERN.match(redirect.target.value):
            return f"it writes to the device {redirect.target.text}"
    piped = any(name_of(c) == "xargs" and _removes(c) for c in nested.commands)
    for command in nested.commands:
        if reason := _damage(command, places, facts, piped=piped):
            return reason
    return ""


def _removes(command: tuple[Word, ...]) -> bool:
    return any(w.value.rsplit("/", 1)[-1] in _REMOVING_PROGRAMS for w in command)


def _damage(
    command: tuple[Word, ...], places: tuple[str, ...], facts: Facts, *, piped: bool
) -> str:
    """Return a clause about the damage that one command can do, or "".

    `places` are the directories in which it may run. `piped`: its output may name files for
    `xargs` to remove.
    """
    name, values = name_of(command), [w.value for w in command[1:]]
    if reason := _damage_to_machine(name, values):
        return reason
    if device := next((w.text for w in command[1:] if _DEVICE_PATTERN.match(w.value)), ""):
        return f"it names the device {device}" if name not in ("ls", "df", "stat") else ""
    if (
        piped
        and name in ("ls", "echo", "printf")
        and all(v.startswith("-") for v in values)
    ):
        values = [*values, "."]
    if piped and name in ("echo", "printf"):
        values = [piece for v in values for piece in re.split(r"\s+|\\n", v)]
    if _may_remove(name, values, piped=piped):
        for value in values:
            if grave := _grave_target(value, places, facts):
                return f"it removes or changes all of {grave}"
    return ""


def _damage_to_machine(name: str, values: list[str]) -> str:
    """Return a clause about what a program does to the machine or its processes, or ""."""
    if name in _FATAL_PROGRAMS or name.startswith("mkfs"):
        return f"it runs {name}"
    if name == "crontab" and values and "-l" not in values:
        return "it changes scheduled jobs of this machine"
    stops = name == "systemctl" and _STOPPING_PROGRAMS & set(values)
    if stops or (name == "init" and values[:1] in (["0"], ["6"])):
        return "it stops the machine"
    if name == "kill" and values[-1:] == ["-1"]:
        return "it ends every process"
    return ""


def _may_remove(name: str, values: list[str], *, piped: bool) -> bool:
    """Whether the command may delete or change everything that its arguments name.

    `piped`: its output may name files for `xargs` to remove.
    """
    if name == "find":
        # A filter such as `-name '*'` lets every file pass.
        stars = [index for index, v in enumerate(values) if v in ("*", STAR)]
        filters = {v for index, v in enumerate(values) if index + 1 not in stars}
        acts = piped or any(map(_is_find_action, values, [*values[1:], ""]))
        return acts and not _FIND_FILTERS & filters
    if piped and name in ("ls", "echo", "printf"):
        return True
    recurses = name in _RECURSIVE_PROGRAMS and (_is_recursive(values) or "/" in values)
    return name in _REMOVING_PROGRAMS or recurses or bool(MARK_PATTERN.search(name))


def _is_find_action(word: str, following: str) -> bool:
    """Return whether a word makes `find` delete files or run a program that may change them.

    `following` is the next word: the program, if `word` is an option such as `-exec`.
    """
    if word in _FIND_ACTIONS and word != "-delete":
        return (
            following not in program_forms.READ_ONLY_PROGRAMS
            and following not in program_forms.SEARCH_PROGRAMS
        )
    return word == "-delete"


def _is_recursive(values: list[str]) -> bool:
    return any(
        v == "--recursive" or re.fullmatch(r"-[A-Za-z]*R[A-Za-z]*", v) for v in values
    )


def _grave_target(value: str, places: tuple[str, ...], facts: Facts) -> str:
    """Return the vital file or directory, such as the home, that an argument names, or ""."""
    if not value or value.startswith("-"):
        return ""
    if _HOME_OF_USER.fullmatch(value.replace(STAR, "*")):
        return value
    value = value.replace(DIRECTORY_MARK, ".").replace(HOME_MARK, facts.home or "/")
    if UNKNOWN_GAP in value:
        # If a variable is empty by mistake, only the rest is left: `"$X"/` and `$X/*`.
        value = value.replace(UNKNOWN_GAP, "")
        if not re.fullmatch(rf"/+(?:[*{STAR}]|\.[*{STAR}])?", value):
            return ""
    folder, _, last = value.rpartition("/")
    if _ANY_NAME.fullmatch(last.removeprefix(".")):
        value = folder or ("/" if value.startswith("/") else ".")
    if MARK_PATTERN.search(value) or "*" in value:
        return ""
    for place in places:
        named = posixpath.normpath(posixpath.join(place, value))
        for path in (named, posixpath.normpath(facts.follow(named))):
            if _is_grave(path, facts):
                return path
    return ""


def _is_grave(path: str, facts: Facts) -> bool:
    """Whether a path is a top directory of the system, or is or contains a vital directory."""
    path = "/" + path.lstrip("/")
    vital_directories = [*facts.roots, *facts.own, *([facts.home] if facts.home else [])]
    in_top = path.rpartition("/")[0] in ("/usr", "/var", "/System", "/Library")
    return (
        path in _TOP_DIRECTORIES
        or in_top
        or any(
            below(directory, path) for directory in vital_directories if directory != "/"
        )
        or path == "/"
    )
