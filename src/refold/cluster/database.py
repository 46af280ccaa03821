"""The connections to one PostgreSQL database, in an event loop and a thread of their own.

So a store that awaits and an index that blocks use the same pool, from any thread and any event
loop. A session is locked by an advisory lock: PostgreSQL releases it when the connection ends, as it
does when the process or its machine dies.
"""

import threading
import time
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Sequence,
)
from concurrent.futures import Future
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from functools import lru_cache, partial
from importlib import import_module
from math import inf
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import anyio
from anyio.abc import ObjectReceiveStream
from anyio.from_thread import BlockingPortal
from msgspec import Struct

from refold.cluster.schema import SCHEMA_REVISION, check_not_newer, migrate
from refold.errors import BadInput, Disconnected, JournalError
from refold.journal.store.writer_threads import this_loop_scheduler

ResultT = TypeVar("ResultT")
EXTRA_MISSING = (
    "sessions in PostgreSQL need packages that are not installed here: pip install "
    "'refold[cluster]', or, in a checkout, uv sync --extra cluster"
)
URL_SCHEMES = ("postgresql://", "postgres://")
_MAX_CONNECTIONS = 8  # beside the one that holds the locks
_CONNECT_SECONDS = 10
_STATEMENT_SECONDS = 60
_CLOSE_SECONDS = 5
_OUTAGE_SECONDS = 15
_LAST_SECONDS = 2  # for each statement, once this process ends
_RETRY_SECONDS = 0.2
_PING_SECONDS = 5  # between two checks of a connection that waits for notifications
_MAX_SCHEME_CHARS = 30  # in an error
_MISSING_TABLES = (
    "{place} has no tables of refold, or those of another version: `refold cluster init` makes "
    "and updates them"
)


class Notification(Struct, frozen=True):
    """A notification; `kind` is its channel. "": the connection was restored, and some may
    have been lost.
    """

    kind: str
    payload: str = ""


class Row(Protocol):
    def __getitem__(self, name: str | int) -> Any: ...


class Connection(Protocol):
    """The used part of `asyncpg.Connection`, which has no types."""

    async def fetch(self, query: str, *values: object) -> Sequence[Row]: ...
    async def fetchrow(self, query: str, *values: object) -> Row | None: ...
    async def fetchval(self, query: str, *values: object) -> Any: ...
    async def execute(self, query: str, *values: object) -> str: ...
    async def executemany(self, query: str, values: Iterable[Sequence[object]]) -> None: ...
    def transaction(self) -> AbstractAsyncContextManager[object]: ...


@lru_cache(maxsize=8)
def database(url: str, tenant: str = "default") -> "Database":
    """Return the connections of this process to the rows of a tenant in this database."""
    return Database(url, tenant)


class Database:
    """A pool of connections. `tenant` is the owner of all rows that it can see.

    Raises `JournalError` if the database fails, and `BadInput` if it is not prepared.
    `place` names the database without the password.
    """

    def __init__(self, url: str, tenant: str = "default") -> None:
        self._url, self.tenant = url, tenant
        self.place = describe_place(url)
        self._start = threading.Lock()
        self._runner: _LoopThread | None = None
        self._pool: Any = None
        self._locks: _Locks | None = None
        self._opening = anyio.Lock()
        self._is_closing, self._running, self._ended = False, 0, anyio.Event()
        self._is_patient = True  # waits for a database that is away

    def call(self, work: Callable[[Connection], Awaitable[ResultT]]) -> ResultT:
        """Run `work` with a connection, and wait for its result. Blocks."""
        return self._submit(partial(self._use, work)).result()

    async def run(self, work: Callable[[Connection], Awaitable[ResultT]]) -> ResultT:
        """Run `work` with a connection, and wait for its result."""
        return await self._wait_for(partial(self._use, work))

    @asynccontextmanager
    async def listen(
        self, *kinds: str
    ) -> AsyncGenerator[ObjectReceiveStream[Notification]]:
        """Receive the notifications of these channels of the tenant."""
        send, receive = anyio.create_memory_object_stream[Notification](inf)
        schedule = this_loop_scheduler()

        def pass_on(notification: Notification) -> None:
            with suppress(RuntimeError):  # the loop is closed, so there is no receiver
                schedule(partial(_send_open, send.send_nowait, notification))

        future = self._submit(partial(self._listen, kinds, pass_on))
        try:
            async with receive:
                yield receive
        finally:
            future.cancel()
            send.close()

    def lock_name(self, session: str) -> str:
        """Return the name of a session's lock. Sessions of two tenants may have the same id."""
        return f"{self.tenant} {session}"

    async def lock(self, session: str, owner: object, *, shared: bool = False) -> bool:
        """Lock a session for `owner`, a writer in this process. False if another one has it.

        Those that share the lock exclude only the others.
        """
        return await self._wait_for(partial(self._lock, session, owner, shared))

    async def unlock(self, session: str, owner: object) -> None:
        await self._wait_for(partial(self._unlock, session, owner))

    def prepare(self) -> None:
        """Make the tables or update them. The user of the URL becomes their owner.

        Raises `BadInput` if a newer refold has made them.
        """
        _load_driver()
        with self._as_journal_errors():
            migrate(self._url)

    def check(self) -> None:
        """Raise `BadInput` unless the database is prepared, `JournalError` if it is out of reach."""
        self.call(lambda db: db.execute("select 1"))

    def stop_waiting(self) -> None:
        """Stop waiting for an unreachable database, because this process ends."""
        self._is_patient = False

    def close(self) -> None:
        """End all connections. The next call opens new ones."""
        with self._start:
            runner, self._runner = self._runner, None
            self._is_closing, self._is_patient = runner is not None, False
        if runner is not None:
            try:
                runner.submit(self._close).result(_CLOSE_SECONDS)
            finally:
                runner.stop()
        self._is_closing, self._is_patient = False, True

    async def _wait_for(self, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Await `work` in another event loop. It is completed even if this is cancelled."""
        future, done = self._submit(work), anyio.Event()
        schedule = this_loop_scheduler()

        def wake(_: object) -> None:
            with suppress(RuntimeError):  # the loop is closed, so there is no waiter
                schedule(done.set)

        future.add_done_callback(wake)
        await done.wait()
        return future.result()

    def _submit(self, work: Callable[[], Awaitable[ResultT]]) -> "Future[ResultT]":
        with self._start:
            self._runner = self._runner or _LoopThread()
            return self._runner.submit(work)

    async def _use(self, work: Callable[[Connection], Awaitable[ResultT]]) -> ResultT:
        """Run `work`, again after a lost connection: it must not matter how often it runs.

        A database that was there before is waited for, as long as a restart takes.
        """

        async def use() -> ResultT:
            pool = await self._open_pool()
            async with pool.acquire() as connection:
                return await work(connection)

        return await self._repeat(use)

    async def _repeat(self, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        until = time.monotonic() + _OUTAGE_SECONDS
        self._running += 1
        try:
            while True:
                try:
                    limit = None if self._is_patient else _LAST_SECONDS
                    with self._as_journal_errors(), anyio.fail_after(limit):
                        return await work()
                except Disconnected:
                    is_there = self._pool is not None and self._is_patient
                    if not is_there or time.monotonic() >= until:
                        raise
                    await anyio.sleep(_RETRY_SECONDS)
        finally:
            self._running -= 1
            self._ended.set()
            self._ended = anyio.Event()

    async def _listen(
        self, kinds: Sequence[str], pass_on: Callable[[Notification], None]
    ) -> None:
        """Listen on a separate connection, and on a new one after it was lost."""
        while True:
            with suppress(JournalError), self._as_journal_errors():
                connection = await self._connect()
                try:
                    await self._listen_on(connection, kinds, pass_on)
                finally:
                    connection.terminate()
            await anyio.sleep(_RETRY_SECONDS)

    async def _listen_on(
        self, connection: Any, kinds: Sequence[str], pass_on: Callable[[Notification], None]
    ) -> None:
        lost = anyio.Event()

        def note_loss(_: object) -> None:
            lost.set()

        connection.add_termination_listener(note_loss)
        for kind in kinds:

            def receive(*arguments: str, kind: str = kind) -> None:
                pass_on(Notification(kind, arguments[-1]))

            channel = await connection.fetchval("select refold.channel($1)", kind)
            await connection.add_listener(channel, receive)
        pass_on(Notification(""))
        while not lost.is_set():
            with anyio.move_on_after(_PING_SECONDS):
                await lost.wait()
                return
            await connection.execute("select 1")

    async def _connect(self) -> Any:
        return await _load_driver().connect(self._url, **self._options())

    async def _open_pool(self) -> Any:
        async with self._opening:
            if self._is_closing:  # its caller was cancelled
                raise Disconnected(f"{self.place} was closed in this process")
            if self._pool is None:
                asyncpg = _load_driver()
                pool = await asyncpg.create_pool(
                    self._url, min_size=0, max_size=_MAX_CONNECTIONS, **self._options()
                )
                try:
                    async with pool.acquire() as connection:
                        await self._check_tables(connection)
                except BaseException:
                    pool.terminate()
                    raise
                self._pool = pool
        return self._pool

    def _options(self) -> dict[str, Any]:
        settings = {"application_name": "refold", "refold.tenant": self.tenant}
        return {
            "timeout": _CONNECT_SECONDS,
            "command_timeout": _STATEMENT_SECONDS,
            "server_settings": settings,
        }

    async def _check_tables(self, connection: Connection) -> None:
        exists = await connection.fetchval(
            "select to_regclass('refold.revision') is not null"
        )
        query = "select version_num from refold.revision"
        revision = await connection.fetchval(query) if exists else ""
        check_not_newer(revision)
        if revision != SCHEMA_REVISION:
            raise BadInput(_MISSING_TABLES.format(place=self.place))

    async def _lock(self, session: str, owner: object, shared: bool) -> bool:
        async def lock() -> bool:
            async with self._opening:
                if self._locks is None or self._locks.is_closed:
                    self._locks = _Locks(await self._connect())
            return await self._locks.lock(self.lock_name(session), owner, shared)

        return await self._repeat(lock)

    async def _unlock(self, session: str, owner: object) -> None:
        if self._locks is not None:
            with self._as_journal_errors():
                await self._locks.unlock(self.lock_name(session), owner)

    async def _close(self) -> None:
        with anyio.move_on_after(
            _CLOSE_SECONDS / 2
        ):  # a pool forgets what is being connected
            while self._running:
                await self._ended.wait()
        if self._locks is not None:
            await self._locks.close()
        if self._pool is not None:
            await self._pool.close()
        self._pool = self._locks = None

    @contextmanager
    def _as_journal_errors(self) -> Generator[None]:
        """Raise errors of the database as `JournalError`."""
        asyncpg = _load_driver()
        try:
            yield
        except (asyncpg.UndefinedTableError, asyncpg.UndefinedFunctionError) as error:
            raise BadInput(_MISSING_TABLES.format(place=self.place)) from error
        except (
            OSError,
            TimeoutError,
            asyncpg.InterfaceError,
            asyncpg.PostgresConnectionError,
            asyncpg.OperatorInterventionError,  # it is starting, or shutting down
        ) as error:
            why = str(error) or "it did not answer in time"
            raise Disconnected(f"{self.place} cannot be reached: {why}") from error
        except asyncpg.PostgresError as error:
            raise JournalError(f"{self.place} failed: {error}") from error


def _send_open(send: Callable[[Notification], object], notification: Notification) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        send(notification)


class _LoopThread:
    """An event loop in a thread, which ends with the process."""

    _portal: BlockingPortal

    def __init__(self) -> None:
        started = threading.Event()
        work = partial(anyio.run, self._serve, started)
        self._thread = threading.Thread(target=work, name="refold-postgresql", daemon=True)
        self._thread.start()
        started.wait()

    async def _serve(self, ready: threading.Event) -> None:
        async with BlockingPortal() as self._portal:
            ready.set()
            await self._portal.sleep_until_stopped()

    def submit(self, work: Callable[[], Awaitable[ResultT]]) -> "Future[ResultT]":
        return self._portal.start_task_soon(work)

    def stop(self) -> None:
        self._portal.start_task_soon(self._portal.stop)
        self._thread.join()


class _Locks:
    """The advisory locks of this process, on one connection.

    PostgreSQL gives a connection a lock that it has a second time, so owners are compared here.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._owners = dict[str, _Owners]()
        self._using = anyio.Lock()  # a connection does one thing at a time

    @property
    def is_closed(self) -> bool:
        return self._connection.is_closed()

    async def lock(self, name: str, owner: object, shared: bool) -> bool:
        async with self._using:
            owners = self._owners.get(name)
            if owners is None:
                if not await self._call(f"pg_try_advisory_lock{_suffix(shared)}", name):
                    return False
                owners = self._owners[name] = _Owners(shared, set())
            elif owner not in owners.all and not (shared and owners.shared):
                return False
            owners.all.add(owner)
            return True

    async def unlock(self, name: str, owner: object) -> None:
        async with self._using:
            owners = self._owners.get(name)
            if owners is None or owner not in owners.all:
                return
            owners.all.remove(owner)
            if not owners.all:
                del self._owners[name]
                if not self.is_closed:
                    await self._call(f"pg_advisory_unlock{_suffix(owners.shared)}", name)

    async def _call(self, function: str, name: str) -> bool:
        query = f"select {function}(refold.lock_key($1))"
        return await self._connection.fetchval(query, name)

    async def close(self) -> None:
        self._owners.clear()
        await self._connection.close()


class _Owners(Struct, frozen=True):
    shared: bool
    all: set[object]


def _suffix(shared: bool) -> str:
    return "_shared" if shared else ""


def describe_place(url: str) -> str:
    """Return the address of the database in `url` without user and password. Raises
    `BadInput`.
    """
    if not url.startswith(URL_SCHEMES):
        scheme = url.partition("://")[0][:_MAX_SCHEME_CHARS]  # a password may follow
        raise BadInput(
            f"{scheme!r} does not begin an address of sessions: it must be the URL of a "
            "PostgreSQL database, as in postgresql://user@host/database"
        )
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError as error:
        raise BadInput(f"the URL of the database cannot be read: {error}") from error
    host = f"{parts.hostname}{port}" if parts.hostname else "this machine"
    return f"the database {parts.path.removeprefix('/') or '(default)'} on {host}"


def _load_driver() -> Any:
    try:
        return import_module("asyncpg")  # an extra without types, and slow to import
    except ImportError as error:
        raise BadInput(EXTRA_MISSING) from error
