"""Exports all data of a tenant or of one person from a database, as a tar.

Sessions in the tar have the form that `refold sessions export --format tar` writes.
"""

import io
import tarfile
import time
from collections.abc import Sequence
from typing import IO

import msgspec
from anyio import to_thread

from refold.cluster.people import AuditEntry, People, unknown_person
from refold.journal.session_index import SessionIndex

_AUDIT_PAGE_LINES = 1000  # that one query reads


async def export_tenant(
    people: People, index: SessionIndex, tenant: str, file: IO[bytes]
) -> int:
    """Write all data of a tenant into `file`, and return the number of sessions."""
    size = await people.tenant_size(tenant)
    sessions = await to_thread.run_sync(lambda: [card.id for card in index.sessions()])
    with tarfile.open(fileobj=file, mode="w|") as tar:
        _add_json(tar, "tenant.json", {"tenant": tenant, "max_running": size.max_running})
        _add_json(tar, "people.json", await people.people(tenant))
        _add_json(tar, "tokens.json", await people.tokens(tenant))
        _add(tar, "audit.jsonl", encode_audit(await read_audit(people, tenant)))
        await to_thread.run_sync(_add_sessions, tar, index, sessions)
    return len(sessions)


async def export_person(
    people: People, index: SessionIndex, tenant: str, subject: str, file: IO[bytes]
) -> int:
    """Write the data about a person, and the sessions that the person began, into `file`.

    Return the number of sessions.
    """
    own = [person for person in await people.people(tenant) if person.subject == subject]
    if not own:
        raise unknown_person(tenant, subject)
    sessions = await people.sessions_begun_by(tenant, subject)
    with tarfile.open(fileobj=file, mode="w|") as tar:
        _add_json(tar, "people.json", own)
        _add_json(tar, "tokens.json", await people.tokens(tenant, subject))
        audit = await read_audit(people, tenant, subject)
        _add(tar, "audit.jsonl", encode_audit(audit))
        await to_thread.run_sync(_add_sessions, tar, index, sessions)
    return len(sessions)


async def read_audit(
    people: People, tenant: str, actor: str | None = None
) -> Sequence[AuditEntry]:
    """Return all lines of a tenant's audit, or only the lines about the person `actor`."""
    entries = list[AuditEntry]()
    after = 0  # the number of the last line that was read
    while page := await people.audit(tenant, after, _AUDIT_PAGE_LINES, actor):
        entries += page
        after = page[-1].number
    return entries


def encode_audit(entries: Sequence[AuditEntry]) -> bytes:
    return b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)


def _add_sessions(
    tar: tarfile.TarFile, index: SessionIndex, sessions: Sequence[str]
) -> None:
    for session in sessions:
        _add(tar, f"sessions/{session}.tar", b"".join(index.pack(session).pieces()))


def _add_json(tar: tarfile.TarFile, name: str, value: object) -> None:
    _add(tar, name, msgspec.json.format(msgspec.json.encode(value)) + b"\n")


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a file that only its owner can read."""
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    entry.mtime = int(time.time())
    entry.mode = 0o600
    tar.addfile(entry, io.BytesIO(data))
