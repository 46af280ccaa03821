"""What one command of a session may see and change.

It follows from what the session wants, what lies in the workspace and how far the command
is kept in. `bubblewrap`, `landlock` and `seatbelt` put these rules into force.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from types import MappingProxyType
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from refold.place import masked_paths
from refold.place.gitconfig import plain
from refold.place.guarded_paths import GuardedPaths, worktree_of
from refold.values.path_names import below
from refold.values.tools import Confines

Profile: TypeAlias = Literal["read-only", "workspace", "off"]

ELSEWHERE = ("/tmp", "/var/tmp", "/run")  # not those of the machine
_OURS = frozenset(("/", "/dev", "/proc", *ELSEWHERE))


def nothing() -> Sequence[str]:
    return ()


class Wish(Struct, frozen=True, kw_only=True):
    """What the settings and the session want. Roots are absolute, links followed.

    `writable` are more directories, `readable` more that those see who are shown no home;
    they may begin with `~`. `own` are directories of
    ours, which no command sees, but for what is in `shared`; `quarantine` is one in them, for
    what commands made under a guarded name; `unread` gives the paths that
    no command may read, each time anew.
    """

    roots: tuple[str, ...]
    profile: Profile = "workspace"
    network: bool = False
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    unread: Callable[[], Sequence[str]] = nothing
    quarantine: str = ""


class Walls(Struct, frozen=True, kw_only=True):
    """What a command sees and may write. All paths are absolute, links followed, and exist.

    `private` is a directory of ours, one for each session. Its parts are shown to commands as
    /tmp and /var/tmp, and in the place of what is covered (see `bubblewrap.prepare`).

    `covered` directories and `hidden` files look empty. `unread` files say that they are kept
    back. `denied` paths cannot be opened, and no directory that they lie in can be renamed, or
    they would be found under another name afterwards. `open` directories can be written, but
    not the `shut` paths in them. `seen` paths stay visible below covered directories. `instead`
    pairs files with those of ours that are shown in their place; `links` pairs the symbolic
    links of a disk whose "/" is covered with their targets.

    A read-only command (`looking`) shares no place to write with others: it can only read
    their /tmp, or with `own_tmp` has an empty one, and its /var/tmp ends with it.
    """

    private: str
    cwd: str
    covered: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    instead: tuple[tuple[str, str], ...] = ()
    roots: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    shut: tuple[str, ...] = ()
    network: bool = False
    looking: bool = False
    own_tmp: bool = False
    root: bool = False  # are we root, without a user space of our own?


class Room(Struct, frozen=True):
    """Where a command runs. `private` is as in `Walls`."""

    private: str
    cwd: str
    guards_sockets: bool = False  # it connects only to sockets that it could have made
    own_tmp: bool = False


class Layout:
    """Of one session. `path` gives the directories that programs are found in."""

    def __init__(self, wish: Wish, home: str, path: Callable[[], Sequence[str]]) -> None:
        self._wish, self._home, self._path = wish, home, path
        self.writable = [_at_home(path, home) for path in wish.writable]
        self._readable = [_at_home(path, home) for path in wish.readable]
        self.repositories = [path for path in map(worktree_of, wish.roots) if path]

    def walls(
        self, room: Room, confines: Confines, found: GuardedPaths, seen: Sequence[str]
    ) -> Walls:
        """For a command that must see `seen`. `found` is what is guarded in the workspace.

        Whether it may write in the profile of the session, `confines` says already.
        """
        wish = self._wish
        writes = confines.writes
        network = confines.network or wish.network
        more = [p for p in (*self.writable, *self.repositories) if os.path.isdir(p)]
        own = self._covered(network=network, writes=writes)
        return Walls(
            private=room.private,
            cwd=room.cwd,
            covered=tuple(path for path in own if os.path.isdir(path)),
            hidden=tuple(path for path in own if not os.path.isdir(path)),
            unread=(
                # A search by what only looks would show what is in them.
                *(() if writes else _still_shut(found.keys, confines.opened)),
                *masked_paths.sockets(
                    among=(*wish.roots, *self.writable) if room.guards_sockets else ("/",),
                    save=wish.roots if network else (),
                ),
            ),
            seen=(
                *masked_paths.needed(),
                *(self._home_elsewhere() if writes else self._tools),
                *self._shared(),
                *seen,
                *filter(os.path.exists, confines.seen),
            ),
            links=() if writes else self._system[1],
            instead=() if writes else tuple(self._without_programs(found, room.private)),
            roots=wish.roots,
            open=(*wish.roots, *more) if writes else (),
            shut=tuple(
                path
                for path in found.oldest_first(
                    _still_shut(found.paths, confines.opened, found.links)
                )
                if writes and any(below(path, one) for one in (*wish.roots, *more))
            ),
            network=network,
            looking=not writes,
            own_tmp=room.own_tmp,
            root=os.geteuid() == 0,
        )

    def can_write(self, path: str) -> bool:
        """Something in the home, by a setting that says so."""
        return any(below(os.path.join(self._home, path), one) for one in self.writable)

    def _covered(self, *, network: bool, writes: bool) -> list[str]:
        own = [os.path.realpath(path) for path in self._wish.own if os.path.exists(path)]
        own += [
            *masked_paths.agents(self._home),
            *([] if network else masked_paths.keys(self._home)),
        ]
        # What only looks may run unasked, and is shown nothing that nobody named.
        own += [] if writes else ["/", *masked_paths.of_the_system()]
        return [path for path in own if path not in self._wish.roots]

    def _without_programs(
        self, found: GuardedPaths, private: str
    ) -> Iterator[tuple[str, str]]:
        """Files of git's settings that name programs, and copies of ours that name none."""
        for path in sorted(found.repositories):
            real = os.path.realpath(path)
            if not os.path.basename(path).startswith("config") or not any(
                below(real, root) for root in self._wish.roots
            ):
                continue
            if (text := plain(real)) is not None:
                data = text.encode(errors="surrogateescape")
                copy = os.path.join(private, f"config-{sha256(data).hexdigest()}")
                with suppress(FileExistsError), open(copy, "xb") as file:
                    file.write(data)
                yield real, copy

    @cached_property
    def _system(self) -> tuple[list[str], tuple[tuple[str, str], ...]]:
        directories, links = masked_paths.system()
        return directories, tuple(links)

    @cached_property
    def _tools(self) -> list[str]:
        """Programs of the system and of the person, and what they need to run."""
        found = (*masked_paths.tools(self._home, self._path()), *self._readable)
        shown = self._system[0].copy()
        for path in sorted({*map(os.path.realpath, found)} - {"/"}):
            if not any(below(path, other) for other in shown):
                shown.append(path)
        return shown

    def _home_elsewhere(self) -> list[str]:
        """Some live below /tmp; their settings are read from there all the same."""
        elsewhere = any(below(self._home, path) for path in ELSEWHERE)
        return [self._home] if elsewhere and os.path.isdir(self._home) else []

    def _shared(self) -> list[str]:
        """Those that are there, and are no links to what is hidden."""
        shared = self._wish.shared
        return [p for p in shared if os.path.isdir(p) and os.path.realpath(p) == p]


def _still_shut(
    paths: Set[str], opened: Sequence[str], links: Mapping[str, str] = MappingProxyType({})
) -> set[str]:
    """Without what a person saw named, and what that lies in."""
    led_to = {os.path.realpath(path) for path in links}
    return {
        path
        for path in (paths - links.keys()) | led_to
        if not any(below(one, path) or below(path, one) for one in opened)
        and os.path.exists(path)
    }


def without(denied: Sequence[str], walls: Walls) -> Walls:
    """The same walls, with what nobody may read.

    Folders outside the roots are covered, so that what must be seen in them still is.

    What a command gets of its own (/tmp, /proc) is not the machine's, and stays.
    """
    away = [p for p in denied if os.path.isdir(p) and not _is_in_roots(p, walls)]
    return replace(
        walls,
        covered=tuple(
            dict.fromkeys((*walls.covered, *(p for p in away if p not in _OURS)))
        ),
        denied=tuple(path for path in denied if path not in away),
    )


def _is_in_roots(path: str, walls: Walls) -> bool:
    return any(below(path, root) for root in walls.roots)


def _at_home(path: str, home: str) -> str:
    return os.path.realpath(home + path[1:] if path.split("/")[0] == "~" else path)
