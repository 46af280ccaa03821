"""Recognizes commands that can destroy a machine, a home directory or a workspace.

The user is asked about them in every mode. The check must not miss one, so it examines every
command that may run, and assumes the worst.
"""

import posixpath
import re

from refold.permissions.facts import Facts
from refold.permissions.shell import program_forms
from refold.permissions.shell.named_files import possible_directories
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
    directories = possible_directories(nested, cwd, facts)
    words = (word for command in nested.commands for word in command)
    if nested.quoted and any(_REMOVING_CODE.search(word.value) for word in words):
        # A program in another language removes files; its texts may name them.
        for text in nested.quoted:
            is_path = text.startswith(("/", "~", "."))
            if is_path and (target := _vital_target(text, directories, facts)):
                return f"it removes all of {target}"
    for redirect in nested.redirects:
        if redirect.writes and _DEVICE_PATTERN.match(redirect.target.value):
            return f"it writes to the device {redirect.target.text}"
    piped = any(name_of(c) == "xargs" and _removes(c) for c in nested.commands)
    for command in nested.commands:
        if reason := _damage(command, directories, facts, piped=piped):
            return reason
    return ""


def _removes(command: tuple[Word, ...]) -> bool:
    return any(w.value.rsplit("/", 1)[-1] in _REMOVING_PROGRAMS for w in command)


def _damage(
    command: tuple[Word, ...], directories: tuple[str, ...], facts: Facts, *, piped: bool
) -> str:
    """Return a clause about the damage that one command can do, or "".

    `directories` are those in which the command may run. `piped`: its output may name files for
    `xargs` to remove.
    """
    name, values = name_of(command), [w.value for w in command[1:]]
    if reason := _damage_to_machine(name, values):
        return reason
    for word in command[1:]:
        if _DEVICE_PATTERN.match(word.value):
            only_reads = name in ("ls", "df", "stat")
            return "" if only_reads else f"it names the device {word.text}"
    if not _may_remove(name, values, piped=piped):
        return ""
    named = _names_for_xargs(name, values) if piped else values
    for value in named:
        if target := _vital_target(value, directories, facts):
            return f"it removes or changes all of {target}"
    return ""


def _names_for_xargs(name: str, values: list[str]) -> list[str]:
    """Return the names that `xargs` may get from a command: the words that it prints.

    For a program whose output is not known, these are its arguments.
    """
    if name not in ("ls", "echo", "printf"):
        return values
    if all(value.startswith("-") for value in values):
        values = [*values, "."]  # `ls` without an argument lists the directory
    if name == "ls":
        return values
    return [piece for value in values for piece in re.split(r"\s+|\\n", value)]


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
        following_words = [*values[1:], ""]
        acts = piped or any(map(_is_find_action, values, following_words))
        return acts and not _has_find_filter(values)
    if piped and name in ("ls", "echo", "printf"):
        return True
    if name in _REMOVING_PROGRAMS or MARK_PATTERN.search(name):
        return True
    return name in _RECURSIVE_PROGRAMS and (_is_recursive(values) or "/" in values)


def _has_find_filter(values: list[str]) -> bool:
    """Whether a test of `find` excludes some files. `-name '*'` lets every file pass."""
    following_words = [*values[1:], ""]
    return any(
        value in _FIND_FILTERS and following not in ("*", STAR)
        for value, following in zip(values, following_words, strict=True)
    )


def _is_find_action(word: str, following: str) -> bool:
    """Return whether a word makes `find` delete files or run a program that may change them.

    `following` is the next word: the program, if `word` is an option such as `-exec`.
    """
    if word == "-delete":
        return True
    only_reads = (
        following in program_forms.READ_ONLY_PROGRAMS
        or following in program_forms.SEARCH_PROGRAMS
    )
    return word in _FIND_ACTIONS and not only_reads


def _is_recursive(values: list[str]) -> bool:
    """Whether one of the arguments is `--recursive`, or short options that include `-R`."""
    return any(
        value == "--recursive" or re.fullmatch(r"-[A-Za-z]*R[A-Za-z]*", value)
        for value in values
    )


def _vital_target(value: str, directories: tuple[str, ...], facts: Facts) -> str:
    """Return the vital file or directory, such as the home, that an argument names, or "".

    `folder/*` counts as the folder.
    """
    if not value or value.startswith("-"):
        return ""
    if _HOME_OF_USER.fullmatch(value.replace(STAR, "*")):
        return value
    name = value.replace(DIRECTORY_MARK, ".").replace(HOME_MARK, facts.home or "/")
    if UNKNOWN_GAP in name:
        # If a variable is empty by mistake, only the rest is left: `"$X"/` and `$X/*`.
        name = name.replace(UNKNOWN_GAP, "")
        if not re.fullmatch(rf"/+(?:[*{STAR}]|\.[*{STAR}])?", name):
            return ""
    target = name
    folder, slash, last = name.rpartition("/")
    if _ANY_NAME.fullmatch(last.removeprefix(".")):
        target = folder or slash or "."
    if MARK_PATTERN.search(target) or "*" in target:
        return ""
    for directory in directories:
        path = posixpath.normpath(posixpath.join(directory, target))
        real = posixpath.normpath(facts.follow(path))
        if _is_vital(path, facts):
            return path
        if _is_vital(real, facts):
            return real
    return ""


def _is_vital(path: str, facts: Facts) -> bool:
    """Whether a path is a top directory of the system, or is or contains a vital directory.

    Vital are the home, the workspace and refold's own directories.
    """
    path = "/" + path.lstrip("/")
    parent = path.rpartition("/")[0]
    if path == "/" or path in _TOP_DIRECTORIES:
        return True
    if parent in ("/usr", "/var", "/System", "/Library"):
        return True
    vital_directories = [*facts.roots, *facts.own]
    if facts.home:
        vital_directories.append(facts.home)
    return any(
        below(directory, path) for directory in vital_directories if directory != "/"
    )
