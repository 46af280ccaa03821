"""The secrets of a tenant, as sealed rows: keys of providers, and logins at MCP servers.

Web nodes have no right to the table, and without the keys of `sealing` no value can be
read.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from refold.cluster.database import Database
from refold.cluster.sealing import SealingKeys

_OWN_ROW = "where tenant = refold.tenant() and name = $1"


class SecretRow(Struct, frozen=True):
    """A secret without its value."""

    name: str
    changed: datetime


class TenantSecrets:
    """The secrets of the tenant of `database`. Its methods block: call them in a thread."""

    def __init__(self, database: Database, keys: SealingKeys) -> None:
        self._database, self._keys = database, keys

    def read(self, name: str) -> str | None:
        """Return the value of a secret; None if there is none. Raises `BadInput` if no key
        opens it.
        """
        query = f"select sealed from refold.secret {_OWN_ROW}"
        sealed = self._database.call(lambda db: db.fetchval(query, name))
        return None if sealed is None else self._open(name, sealed)

    def read_all(self, prefix: str) -> dict[str, str]:
        """Return the values of the secrets whose names begin with `prefix`, by the rest of
        the name.
        """
        return {
            name.removeprefix(prefix): self._open(name, sealed)
            for name, sealed in self._rows(prefix)
        }

    def write(self, name: str, text: str) -> None:
        """Seal the text, and store it under the name, in place of an earlier one."""
        sealed = self._keys.seal(text, self._database.tenant, name)
        query = (
            "insert into refold.secret(name, sealed) values($1, $2) on conflict (tenant, name) "
            "do update set sealed = $2, changed = clock_timestamp()"
        )
        self._database.call(lambda db: db.execute(query, name, sealed))

    def reseal(self) -> int:
        """Seal all secrets that have an older key with the newest one. Return the number of
        these secrets.
        """
        tenant = self._database.tenant
        changes = list[tuple[str, bytes, bytes]]()
        for name, old in self._rows(""):
            if not self._keys.is_sealed_by_newest(old):
                new = self._keys.seal(self._open(name, old), tenant, name)
                changes.append((name, new, old))
        # Compared with the old value, because a worker may have written another meanwhile.
        query = f"update refold.secret set sealed = $2 {_OWN_ROW} and sealed = $3"
        self._database.call(lambda db: db.executemany(query, changes))
        return len(changes)

    def _rows(self, prefix: str) -> Sequence[tuple[str, bytes]]:
        """Return names that begin with `prefix`, each with its sealed value."""
        query = (
            "select name, sealed from refold.secret where tenant = refold.tenant() "
            "and starts_with(name, $1) order by name"
        )
        rows: Any = self._database.call(lambda db: db.fetch(query, prefix))
        return [(row["name"], row["sealed"]) for row in rows]

    def _open(self, name: str, sealed: bytes) -> str:
        return self._keys.open(sealed, self._database.tenant, name)


def list_secrets(database: Database) -> Sequence[SecretRow]:
    """Return the names of a tenant's secrets. No key is needed."""
    query = "select name, changed from refold.secret where tenant = refold.tenant() order by name"
    rows: Any = database.call(lambda db: db.fetch(query))
    return [SecretRow(*row.values()) for row in rows]


def remove_secret(database: Database, name: str) -> bool:
    """Remove a secret, and return whether there was one. No key is needed."""
    query = f"delete from refold.secret {_OWN_ROW} returning true"
    return bool(database.call(lambda db: db.fetchval(query, name)))
