"""The connections to one PostgreSQL database, in an event loop and a thread of their own.

So async and blocking code share one pool, from any thread and any event loop. A session is
locked by an advisory lock, which PostgreSQL releases when the connection ends, also if the
process or its machine dies.
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

from refold.cluster.advisory_locks import AdvisoryLocks
from refold.cluster.outage import Outage
from refold.cluster.schema import SCHEMA_REVISION, check_not_newer, migrate
from refold.errors import BadInput, Disconnected, JournalError
from refold.journal.store.writer_threads import this_loop_scheduler

ResultT = TypeVar("ResultT")
EXTRA_MISSING = (
    "sessions in PostgreSQL need packages that are not installed here: pip install "
    "'refold[cluster]', or, in a checkout, uv sync --extra cluster"
)
URL_SCHEMES = ("postgresql://", "postgres://")
_MAX_CONNECTIONS = 8  # of the pool; one more connection holds the locks
_CONNECT_SECONDS = 10
_STATEMENT_SECONDS = 60
# PostgreSQL ends a transaction whose client sends nothing for this time. Such a client was
# suspended or is cut off, and its locks would stop the writers of other processes.
_MAX_IDLE_TRANSACTION_MILLIS = 3_000
# A client that was cut off is noticed after 5 + 3 * 2 seconds; its locks of sessions are released.
_KEEPALIVE_SETTINGS = {
    "tcp_keepalives_idle": "5",  # seconds
    "tcp_keepalives_interval": "2",  # seconds
    "tcp_keepalives_count": "3",
}
_CLOSE_SECONDS = 5
_OUTAGE_SECONDS = 15  # for which a lost database is waited for
_LAST_SECONDS = 2  # for each statement, while this process ends
_RETRY_SECONDS = 0.2
_PING_SECONDS = 5  # between two checks of a connection that waits for notifications
_MAX_SCHEME_CHARS = 30  # in an error
_OPERATOR_LOGIN = ". Commands for operators need the login that owns the tables"
_MISSING_TABLES = (
    "{place} has no tables of refold, or those of another version: `refold cluster init` makes "
    "and updates them"
)


class Notification(Struct, frozen=True):
    """A notification of PostgreSQL; `kind` is its channel. If `kind` is "", the connection
    was restored, and notifications may have been lost.
    """

    kind: str
    payload: str = ""


class Row(Protocol):
    def __getitem__(self, name: str | int) -> Any: ...


class Connection(Protocol):
    """The part of `asyncpg.Connection` that is used, because asyncpg has no types."""

    async def fetch(self, query: str, *values: object) -> Sequence[Row]: ...
    async def fetchrow(self, query: str, *values: object) -> Row | None: ...  # the first
    async def fetchval(self, query: str, *values: object) -> Any: ...
    async def execute(self, query: str, *values: object) -> str: ...  # as in "DELETE 3"
    async def executemany(self, query: str, values: Iterable[Sequence[object]]) -> None: ...
    def transaction(self) -> AbstractAsyncContextManager[object]: ...


@lru_cache(maxsize=8)
def database(url: str, tenant: str = "default") -> "Database":
    """Return the connections of this process to the database at `url`, for the rows of one
    tenant.
    """
    return Database(url, tenant)


class Database:
    """A pool of connections to a database, which sees only the rows of `tenant`.

    Raises `JournalError` if the database fails, and `BadInput` if its tables are missing.
    `place` names the database without the password. `outage` reports when the database is
    lost and when it is back.
    """

    def __init__(self, url: str, tenant: str = "default") -> None:
        self._url, self.tenant = url, tenant
        self.place = describe_place(url)
        self.outage = Outage(self.place)
        self._runner_lock = threading.Lock()
        self._runner: _LoopThread | None = None
        self._pool: Any = None
        self._locks: AdvisoryLocks | None = None
        self._opening = anyio.Lock()
        self._is_closing = False
        self._running = 0  # the number of works that run
        self._ended = anyio.Event()  # set at the end of any work, and replaced
        self._is_patient = True  # whether to wait for a database that cannot be reached

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
        """Yield a stream of the notifications of these channels of the tenant.

        Notifications are received in the loop of the connections, and passed to the loop of
        the caller.
        """
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
        """Return the name of a session's lock, with the tenant: tenants may have equal ids."""
        return f"{self.tenant} {session}"

    async def lock(self, session: str, owner: object, *, shared: bool = False) -> bool:
        """Lock a session for `owner`, a writer in this process.

        Return False if another owner has the lock. Several owners can have the lock if all of
        them call with `shared`.
        """
        return await self._wait_for(partial(self._lock, session, owner, shared))

    async def unlock(self, session: str, owner: object) -> None:
        await self._wait_for(partial(self._unlock, session, owner))

    def prepare(self) -> None:
        """Create or update the tables, as the user of the URL. Raises `BadInput` if a newer
        refold has made them.
        """
        _load_driver()
        with self._as_journal_errors():
            migrate(self._url)

    def check(self) -> None:
        """Raise `BadInput` unless the database is prepared.

        Raises `JournalError` if the database cannot be reached.
        """
        self.call(lambda db: db.execute("select 1"))

    def stop_waiting(self) -> None:
        """Stop waiting for an unreachable database, because this process ends."""
        self._is_patient = False

    def close(self) -> None:
        """End all connections. The next call opens new ones."""
        with self._runner_lock:
            runner = self._runner
            self._runner = None
            self._is_closing = runner is not None
            self._is_patient = runner is None
        if runner is None:  # no connection was opened
            return
        try:
            runner.submit(self._close).result(_CLOSE_SECONDS)
        finally:
            runner.stop()
            self._is_closing = False
            self._is_patient = True

    async def _wait_for(self, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Await `work` in the loop of the connections, which completes it even if this is
        cancelled.
        """
        future = self._submit(work)
        done = anyio.Event()
        schedule = this_loop_scheduler()

        def wake(_: object) -> None:
            with suppress(RuntimeError):  # the loop is closed, so there is no waiter
                schedule(done.set)

        future.add_done_callback(wake)
        await done.wait()
        return future.result()

    def _submit(self, work: Callable[[], Awaitable[ResultT]]) -> "Future[ResultT]":
        with self._runner_lock:
            self._runner = self._runner or _LoopThread()
            return self._runner.submit(work)

    async def _use(self, work: Callable[[Connection], Awaitable[ResultT]]) -> ResultT:
        """Run `work` with a connection, and again after a lost connection, so it must be
        idempotent.

        If the database was reached before, wait for it as long as a restart takes.
        """

        async def use() -> ResultT:
            pool = await self._open_pool()
            async with pool.acquire() as connection:
                return await work(connection)

        return await self._repeat(use)

    async def _repeat(self, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Run `work` until it succeeds; raise `Disconnected` after `_OUTAGE_SECONDS`.

        If the database was never reached, raise `Disconnected` at once.
        """
        until = time.monotonic() + _OUTAGE_SECONDS
        self._running += 1
        try:
            while True:
                try:
                    limit = None if self._is_patient else _LAST_SECONDS
                    with self._as_journal_errors(), anyio.fail_after(limit):
                        result = await work()
                    self.outage.end()
                    return result
                except Disconnected as error:
                    self.outage.begin(str(error))
                    may_wait = self._pool is not None and self._is_patient
                    if not may_wait or time.monotonic() >= until:
                        raise
                    await anyio.sleep(_RETRY_SECONDS)
        finally:
            self._running -= 1
            self._ended.set()  # for `_close`, which waits until no work is running
            self._ended = anyio.Event()

    async def _listen(
        self, kinds: Sequence[str], pass_on: Callable[[Notification], None]
    ) -> None:
        """Listen on a connection of its own, which is replaced when it is lost."""
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
        """Pass on notifications of these channels until a query shows that the connection
        is lost.
        """
        lost = anyio.Event()

        def note_loss(_: object) -> None:
            lost.set()

        connection.add_termination_listener(note_loss)
        for kind in kinds:

            def receive(*arguments: str, kind: str = kind) -> None:
                *_, payload = arguments  # connection, process id, channel, payload
                pass_on(Notification(kind, payload))

            channel = await connection.fetchval("select refold.channel($1)", kind)
            await connection.add_listener(channel, receive)
        pass_on(Notification(""))  # earlier notifications may have been lost
        while not lost.is_set():
            with anyio.move_on_after(_PING_SECONDS):
                await lost.wait()
                return
            # Raises an error if the connection is lost.
            await connection.execute("select 1")

    async def _connect(self) -> Any:
        return await _load_driver().connect(self._url, **self._options())

    async def _open_pool(self) -> Any:
        """Return the pool. The first call connects, and checks the tables.

        Raises `Disconnected` if this process has closed the database.
        """
        async with self._opening:
            if self._is_closing:  # the caller of this work was cancelled
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
        settings = {
            "application_name": "refold",
            "refold.tenant": self.tenant,
            "idle_in_transaction_session_timeout": str(_MAX_IDLE_TRANSACTION_MILLIS),
            **_KEEPALIVE_SETTINGS,
        }
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
        revision = await connection.fetchval(query) if exists else ""  # "": no tables
        check_not_newer(revision)
        if revision != SCHEMA_REVISION:
            raise BadInput(_MISSING_TABLES.format(place=self.place))

    async def _lock(self, session: str, owner: object, shared: bool) -> bool:
        """Lock the session on the connection for locks, or on a new connection if it was
        lost.
        """

        async def lock() -> bool:
            async with self._opening:
                if self._locks is None or self._locks.is_closed:
                    self._locks = AdvisoryLocks(await self._connect())
            return await self._locks.lock(self.lock_name(session), owner, shared)

        return await self._repeat(lock)

    async def _unlock(self, session: str, owner: object) -> None:
        if self._locks is not None:
            with self._as_journal_errors():
                await self._locks.unlock(self.lock_name(session), owner)

    async def _close(self) -> None:
        # Running work ends first: a pool does not close a connection that is being made.
        with anyio.move_on_after(_CLOSE_SECONDS / 2):
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
            asyncpg.OperatorInterventionError,  # the server starts or shuts down
        ) as error:
            why = str(error) or "it did not answer in time"
            raise Disconnected(f"{self.place} cannot be reached: {why}") from error
        except asyncpg.PostgresError as error:
            denied = isinstance(error, asyncpg.InsufficientPrivilegeError)
            advice = _OPERATOR_LOGIN if denied else ""
            raise JournalError(f"{self.place} failed: {error}{advice}") from error


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


def describe_place(url: str) -> str:
    """Return the address in `url` without user and password. Raises `BadInput`."""
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
