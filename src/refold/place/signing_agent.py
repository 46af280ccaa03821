"""Lets commands sign with the key of the user's commits, and use the ssh-agent for nothing else.

A command connects to a socket of ours. Its requests are read here, and only two kinds of them
are passed on to the agent: which keys there are, of which it gets the one, and signatures of
that key for what git signs (the namespace "git" of SSHSIG). What logs in to a server has another
form, so such a signature logs in nowhere. Everything else is refused: other keys, other
signatures, adding, removing and locking of keys, extensions. See draft-miller-ssh-agent and
PROTOCOL.sshsig of OpenSSH.

`user_git_settings` knows the key, `sandbox` shows the socket to commands, `socket_guard` lets
them connect to it.
"""

import os
import socket
import struct
from contextlib import suppress
from threading import BoundedSemaphore, Event, Thread

_FAILURE, _LIST_KEYS, _KEYS, _SIGN, _SIGNATURE = 5, 11, 12, 13, 14  # kinds of messages
_LENGTH_STRUCT = struct.Struct(">I")
_MAX_REQUEST_BYTES = 16_384
_MAX_ANSWER_BYTES = 262_144
_MAX_CONNECTIONS = 8
_MAX_ADDRESS_BYTES = 104  # of a socket, on every system
_REQUEST_SECONDS = 30.0
_ANSWER_SECONDS = 120.0  # the user may have to touch a key
_RETRY_SECONDS = 0.1  # after a connection that could not be accepted
_SIGNED_BEGIN = b"SSHSIG"
_SIGNED_NAMESPACE = b"git"


class SigningAgent:
    """Listens at `path` for commands, and asks the agent that listens at `agent`."""

    def __init__(self, agent: str, path: str) -> None:
        self.path, self.key = path, b""  # the public key that may be used
        self._agent = agent
        self._closed = Event()
        self._slots = BoundedSemaphore(_MAX_CONNECTIONS)
        self._server = socket.socket(socket.AF_UNIX)
        _bind(self._server, path)
        os.chmod(path, 0o600)
        self._server.listen(_MAX_CONNECTIONS)
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:  # closed, or this process has too many open files
                if self._closed.wait(_RETRY_SECONDS):
                    return
                continue
            if self._slots.acquire(blocking=False):
                Thread(target=self._serve, args=(connection,), daemon=True).start()
            else:
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, suppress(OSError, ValueError):
                connection.settimeout(_REQUEST_SECONDS)
                while request := _read_message(connection, _MAX_REQUEST_BYTES):
                    try:
                        answer = self._answer(request)
                    except (OSError, ValueError):  # malformed, or the agent is gone
                        answer = bytes((_FAILURE,))
                    connection.sendall(_to_string(answer))
        finally:
            self._slots.release()

    def _answer(self, request: bytes) -> bytes:
        """The answer to a request. Raises `ValueError` for a malformed one, and `OSError`."""
        if request == bytes((_LIST_KEYS,)):
            return _only_key(self.key, self._ask(request))
        if signs_for_git(request, self.key):
            answer = self._ask(request)
            return answer if answer[0] == _SIGNATURE else bytes((_FAILURE,))
        return bytes((_FAILURE,))

    def _ask(self, request: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX) as agent:
            agent.settimeout(_ANSWER_SECONDS)
            agent.connect(self._agent)
            agent.sendall(_to_string(request))
            answer = _read_message(agent, _MAX_ANSWER_BYTES)
        if not answer:
            raise ValueError("the agent has closed the connection")
        return answer


def _bind(server: socket.socket, path: str) -> None:
    """Bind to this path, also if it is too long for an address. Raises `OSError`."""
    if len(os.fsencode(path)) < _MAX_ADDRESS_BYTES:
        server.bind(path)
        return
    folder, name = os.path.split(path)
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        server.bind(f"/proc/self/fd/{number}/{name}")
    finally:
        os.close(number)


def signs_for_git(request: bytes, key: bytes) -> bool:
    """Return True if the request is to sign, with this key, what git signs."""
    try:
        asked_key, data, _flags = _strings(request[1:-4], 2, remainder=request[-4:])
        if request[0] != _SIGN or not key or asked_key != key:
            return False
        if not data.startswith(_SIGNED_BEGIN):
            return False
        signed = data.removeprefix(_SIGNED_BEGIN)
        namespace, reserved, _, _, _ = _strings(signed, 4, remainder=b"")
    except ValueError:
        return False
    return namespace == _SIGNED_NAMESPACE and not reserved


def _only_key(key: bytes, answer: bytes) -> bytes:
    """The list of keys without all others."""
    if answer[0] != _KEYS:
        return bytes((_FAILURE,))
    count, rest = int.from_bytes(answer[1:5], "big"), answer[5:]
    kept = list[bytes]()
    for _ in range(min(count, _MAX_ANSWER_BYTES // 8)):
        listed, rest = _split_string(rest)
        comment, rest = _split_string(rest)
        if key and listed == key:
            kept.append(_to_string(listed) + _to_string(comment))
    return bytes((_KEYS,)) + _LENGTH_STRUCT.pack(len(kept)) + b"".join(kept)


def _strings(data: bytes, count: int, *, remainder: bytes) -> list[bytes]:
    """The strings that `data` consists of, and `remainder`. Raises `ValueError`."""
    strings = list[bytes]()
    for _ in range(count):
        string, data = _split_string(data)
        strings.append(string)
    if data:
        raise ValueError("more data than strings")
    return [*strings, remainder]


def _split_string(data: bytes) -> tuple[bytes, bytes]:
    if len(data) < _LENGTH_STRUCT.size:
        raise ValueError("no length")
    end = _LENGTH_STRUCT.size + _LENGTH_STRUCT.unpack_from(data)[0]
    if len(data) < end:
        raise ValueError("a string that is cut off")
    return data[_LENGTH_STRUCT.size : end], data[end:]


def _to_string(data: bytes) -> bytes:
    return _LENGTH_STRUCT.pack(len(data)) + data


def _read_message(connection: socket.socket, max_bytes: int) -> bytes:
    """The next message; empty at the end. Raises `ValueError` if it is too long."""
    head = _read_exactly(connection, _LENGTH_STRUCT.size)
    if not head:
        return b""
    length = _LENGTH_STRUCT.unpack(head)[0]
    if not 0 < length <= max_bytes:
        raise ValueError(f"a message of {length} bytes")
    return _read_exactly(connection, length)


def _read_exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        if not (piece := connection.recv(count - len(data))):
            return b""
        data += piece
    return data
