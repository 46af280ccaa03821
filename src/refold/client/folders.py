"""Lists folders in which a conversation can be started: recent ones, and those below the
roots.

The roots are the folders that the server was given; by default, they are the home directory
and the server's own directory. A list has only names of directories, and follows no link that
leads out of the roots.
"""

import os
from collections.abc import Mapping, Sequence

from msgspec import Struct

from refold.client.elsewhere import AddressRights, address_of_directory
from refold.client.host import Host, is_within
from refold.config.paths import home
from refold.errors import BadInput, reason_of

_MAX_FOLDERS = 500  # of one directory that are listed
_MAX_RECENT = 12


class Folder(Struct, frozen=True):
    name: str
    path: str


class FolderChoices(Struct, frozen=True):
    """The folders to choose from.

    `usual` is the folder of a conversation that names none.
    """

    usual: str
    roots: Sequence[Folder]
    recent: Sequence[Folder]
    # Named and recent workspaces elsewhere; their path is an address.
    elsewhere: Sequence[Folder] = ()
    free_addresses: bool = False  # whether any other address may be typed


class FolderList(Struct, frozen=True):
    """The folders in a folder.

    `parent` is "" at a root; `more` says that the list was cut.
    """

    path: str
    parent: str
    folders: Sequence[Folder]
    more: bool = False


def folder_choices(host: Host, environ: Mapping[str, str]) -> FolderChoices:
    """Return the folders and workspaces elsewhere that a client may choose."""
    recent_folders = list[str]()
    recent_addresses = list[str]()
    for directory in host.stored.recent_directories():
        address = address_of_directory(directory)
        if address:  # the directory stands for a workspace on another machine
            recent_addresses.append(address)
        elif os.path.isdir(directory) and host.allows(directory):
            recent_folders.append(directory)
    # If the server has roots, clients may use no workspace elsewhere: none is below a root.
    no_rights = AddressRights()
    rights = no_rights if host.paths.roots else host.paths.rights
    # Named workspaces come first, then recent ones, up to `_MAX_RECENT` in all.
    names_by_address = {address: name for name, address in rights.named.items()}
    if rights.recent:
        for address in recent_addresses:
            if len(names_by_address) < _MAX_RECENT:
                names_by_address.setdefault(address, address)
    return FolderChoices(
        usual=str(host.paths.directory),
        roots=[_folder(root) for root in _roots(host, environ)],
        recent=[_folder(path) for path in recent_folders[:_MAX_RECENT]],
        elsewhere=[Folder(name, address) for address, name in names_by_address.items()],
        free_addresses=rights.free,
    )


def list_folders(host: Host, environ: Mapping[str, str], path: str) -> FolderList:
    """Return the folders in `path`, without hidden ones.

    Raises `BadInput` if `path` is not below a root, or cannot be read.
    """
    roots = _roots(host, environ)
    is_usable = os.path.isabs(path) and "\0" not in path  # `realpath` rejects a NUL
    real = os.path.realpath(path) if is_usable else ""
    if not is_within(real, roots):
        raise BadInput(f"{path!r} is not below {' or '.join(roots)}")
    try:
        with os.scandir(real) as entries:
            names = sorted(
                (entry.name for entry in entries if _is_shown(entry, roots)),
                key=str.casefold,
            )
    except OSError as error:
        raise BadInput(f"{path!r} cannot be read: {reason_of(error)}") from error
    folders = [Folder(name, os.path.join(real, name)) for name in names[:_MAX_FOLDERS]]
    parent = os.path.dirname(real)
    if not is_within(parent, roots):
        parent = ""
    return FolderList(real, parent, folders, more=len(names) > _MAX_FOLDERS)


def _roots(host: Host, environ: Mapping[str, str]) -> Sequence[str]:
    """Return the folders that the server was given.

    By default, these are the server's own directory and the home directory.
    """
    if host.paths.roots:
        return tuple(map(str, host.paths.roots))
    own = os.path.realpath(host.paths.directory)
    return tuple(dict.fromkeys((own, home(environ))))  # once, if they are equal


def _is_shown(entry: os.DirEntry[str], roots: Sequence[str]) -> bool:
    """Whether this is a folder that is not hidden, and does not link to a folder outside of
    the roots.
    """
    is_hidden = entry.name.startswith(".")
    if is_hidden or not entry.name.isprintable() or not entry.is_dir():
        return False
    return not entry.is_symlink() or is_within(os.path.realpath(entry.path), roots)


def _folder(path: str) -> Folder:
    return Folder(os.path.basename(path) or path, path)
