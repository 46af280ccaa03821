"""Reads, on a worker, the API keys for a tenant's model calls.

A key is a file in a directory of the tenant that only workers have, or a sealed (encrypted) row
of the database. It may have the address of the tenant's gateway. A tenant's key is used before
any key of the worker.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from refold.config.api_keys import TenantKey, key_problem
from refold.config.paths import Paths
from refold.errors import BadInput, reason_of

if TYPE_CHECKING:
    from refold.cluster.database import Database
    from refold.cluster.tenant_secrets import TenantSecrets

NAME_PREFIX = "key "  # prefix of a row's name; the name of the provider follows
_ADDRESS_SUFFIX = ".url"  # of a file beside that of the key


def read_tenant_keys(paths: Paths) -> Mapping[str, TenantKey]:
    """Return the tenant's keys by provider, from files and rows. A file wins over a row.

    Raises `BadInput` if a key cannot be read: the worker must not use its own key instead.
    """
    rows = _read_rows(paths) if paths.cluster_key is not None else {}
    files = _read_files(paths.tenant_keys, paths.tenant) if paths.tenant_keys else {}
    return MappingProxyType({**rows, **files})


def check_tenant_key(key: TenantKey, source: str) -> TenantKey:
    """Return `key` if it is valid. Otherwise raise `BadInput`, which does not quote the key."""
    if problem := key_problem(key.key):
        raise BadInput(f"{source} has no key: {problem}")
    address = urlsplit(key.base_url)
    if key.base_url and (address.scheme not in ("http", "https") or not address.hostname):
        raise BadInput(
            f"{key.base_url!r} of {source} is not an address: it must begin with https:// or http://"
        )
    return key


def encode_tenant_key(key: TenantKey) -> str:
    return msgspec.json.encode(key).decode()


def secrets_database(paths: Paths) -> "Database":
    """Return the database with the sealed rows of the tenant.

    Raises `BadInput` if no database is set.
    """
    from refold.cluster.database import database  # imported late: an extra that few use

    if not paths.sessions:
        raise BadInput("REFOLD_CLUSTER_KEY is set, and REFOLD_SESSIONS names no database")
    return database(paths.sessions, paths.tenant)


def open_secrets(paths: Paths, database: "Database") -> "TenantSecrets":
    """Return access to the sealed rows, with the keys in the file `paths.cluster_key`.

    Raises `BadInput` if the file has no usable keys.
    """
    from refold.cluster.sealing import SealingKeys
    from refold.cluster.tenant_secrets import TenantSecrets

    assert paths.cluster_key is not None
    return TenantSecrets(database, SealingKeys.read(paths.cluster_key))


def _read_rows(paths: Paths) -> dict[str, TenantKey]:
    """Return the tenant's keys in the database, by provider."""
    secrets = open_secrets(paths, secrets_database(paths))
    return {
        provider: msgspec.json.decode(text, type=TenantKey)
        for provider, text in secrets.read_all(NAME_PREFIX).items()
    }


def _read_files(directory: Path, tenant: str) -> dict[str, TenantKey]:
    """Return the keys in the tenant's directory, by the names of the files: the providers.

    A file with `_ADDRESS_SUFFIX` has the address of the provider.
    """
    if "/" in tenant or "\0" in tenant or tenant in ("", ".", ".."):
        raise BadInput(f"{tenant!r} cannot name a directory of keys: store them as rows")
    own = directory / tenant
    keys = dict[str, TenantKey]()
    try:
        for file in sorted(own.iterdir()):
            name = file.name
            if name.startswith(".") or name.endswith(_ADDRESS_SUFFIX) or not file.is_file():
                continue  # Kubernetes creates entries like `..data` in a volume
            if file.stat().st_mode & 0o007:
                raise BadInput(
                    f"{file} holds a key and others can read it: chmod 400 {file}"
                )
            address = own / f"{name}{_ADDRESS_SUFFIX}"
            url = address.read_text(encoding="utf-8").strip() if address.exists() else ""
            key = TenantKey(file.read_text(encoding="utf-8").strip(), url)
            keys[name] = check_tenant_key(key, str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"the keys of {tenant} in {own} cannot be read: {reason_of(error)}"
        ) from error
    return keys
