"""Lets commands sign commits with the user's key, and use the ssh-agent for nothing else.

A command connects to a socket of refold, where its requests are checked. Two kinds are passed
on to the user's agent: a list of keys, which is reduced to this one key, and signatures by this
key over data of the form that git signs (the namespace "git" of SSHSIG). A login to a server
signs data of another form, so such a signature cannot be used to log in. All other requests are
refused. See draft-miller-ssh-agent and PROTOCOL.sshsig of OpenSSH.

`user_git_settings` finds the key, `sandbox` shows the socket to commands, and `socket_guard`
lets them connect to it.
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
_MAX_ADDRESS_BYTES = 104  # the length of a socket address that every system supports
_REQUEST_SECONDS = 30.0
_ANSWER_SECONDS = 120.0  # the user may have to touch a key
_RETRY_SECONDS = 0.1  # the pause after a connection that could not be accepted
_SIGNED_BEGIN = b"SSHSIG"
_SIGNED_NAMESPACE = b"git"


class SigningAgent:
    """Listens at `path` for requests of commands, and passes some on to the user's agent.

    `agent` is the path of the agent's socket. `key` is the key that may sign.
    """

    def __init__(self, agent: str, path: str) -> None:
        self.path = path
        self.key = b""  # the public key that may be used
        self._agent = agent
        self._closed = Event()
        self._slots = BoundedSemaphore(_MAX_CONNECTIONS)
        self._server = socket.socket(socket.AF_UNIX)
        _bind(self._server, path)
        os.chmod(path, 0o600)
        self._server.listen(_MAX_CONNECTIONS)
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop listening. Connections that are open end with their next request."""
        self._closed.set()
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        """Serve each connection in a thread until `close`. Refuse too many connections."""
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:  # the socket is closed, or this process has too many open files
                if self._closed.wait(_RETRY_SECONDS):
                    return
                continue
            if self._slots.acquire(blocking=False):
                Thread(target=self._serve, args=(connection,), daemon=True).start()
            else:
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        """Answer the requests of one connection until it ends or becomes unreadable."""
        try:
            with connection, suppress(OSError, ValueError):
                connection.settimeout(_REQUEST_SECONDS)
                while request := _read_message(connection, _MAX_REQUEST_BYTES):
                    try:
                        answer = self._answer(request)
                    # a malformed message, or the agent does not run any longer
                    except (OSError, ValueError):
                        answer = bytes((_FAILURE,))
                    connection.sendall(_to_string(answer))
        finally:
            self._slots.release()

    def _answer(self, request: bytes) -> bytes:
        """Return the answer to a request; a failure message for one that is refused.

        Raises `ValueError` for a malformed message, and `OSError`.
        """
        if request == bytes((_LIST_KEYS,)):
            return _only_key(self.key, self._ask(request))
        if signs_for_git(request, self.key):
            answer = self._ask(request)
            return answer if answer[0] == _SIGNATURE else bytes((_FAILURE,))
        return bytes((_FAILURE,))

    def _ask(self, request: bytes) -> bytes:
        """Send a request to the user's agent, and return the answer.

        Raises `OSError`, and `ValueError` if there is no valid answer.
        """
        with socket.socket(socket.AF_UNIX) as agent:
            agent.settimeout(_ANSWER_SECONDS)
            agent.connect(self._agent)
            agent.sendall(_to_string(request))
            answer = _read_message(agent, _MAX_ANSWER_BYTES)
        if not answer:
            raise ValueError("the agent has closed the connection")
        return answer


def _bind(server: socket.socket, path: str) -> None:
    """Bind a socket to `path`, even if it is too long for a socket address. Raises `OSError`."""
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
    """Whether a request asks for a signature by `key` over data that git signs."""
    try:
        # A request is a byte with its kind, the key, the data, and four bytes with flags.
        asked_key, data = _strings(request[1:-4], 2)
        if request[0] != _SIGN or not key or asked_key != key:
            return False
        if not data.startswith(_SIGNED_BEGIN):
            return False
        signed = data.removeprefix(_SIGNED_BEGIN)
        namespace, reserved, _hash_name, _hash = _strings(signed, 4)
    except ValueError:
        return False
    return namespace == _SIGNED_NAMESPACE and not reserved


def _only_key(key: bytes, answer: bytes) -> bytes:
    """Return the agent's list of keys, `answer`, reduced to `key`.

    Raises `ValueError` if it is malformed.
    """
    if answer[0] != _KEYS:
        return bytes((_FAILURE,))
    # The kind of the answer, the number of keys, and then each key and its comment.
    count = int.from_bytes(answer[1:5], "big")
    rest = answer[5:]
    kept = list[bytes]()
    max_count = _MAX_ANSWER_BYTES // (2 * _LENGTH_STRUCT.size)  # each key has two lengths
    for _ in range(min(count, max_count)):
        listed, rest = _split_string(rest)
        comment, rest = _split_string(rest)
        if key and listed == key:
            kept.append(_to_string(listed) + _to_string(comment))
    return bytes((_KEYS,)) + _LENGTH_STRUCT.pack(len(kept)) + b"".join(kept)


def _strings(data: bytes, count: int) -> list[bytes]:
    """Split `data` into `count` strings. In `data`, each string comes after its length.

    Raises `ValueError` if `data` has fewer or more strings.
    """
    strings = list[bytes]()
    for _ in range(count):
        string, data = _split_string(data)
        strings.append(string)
    if data:
        raise ValueError("more data than strings")
    return strings


def _split_string(data: bytes) -> tuple[bytes, bytes]:
    """Return the first string in `data`, and what follows. Raises `ValueError`."""
    if len(data) < _LENGTH_STRUCT.size:
        raise ValueError("no length")
    (length,) = _LENGTH_STRUCT.unpack_from(data)
    end = _LENGTH_STRUCT.size + length
    if len(data) < end:
        raise ValueError("a string that is cut off")
    return data[_LENGTH_STRUCT.size : end], data[end:]


def _to_string(data: bytes) -> bytes:
    return _LENGTH_STRUCT.pack(len(data)) + data


def _read_message(connection: socket.socket, max_bytes: int) -> bytes:
    """Return the next message; b"" at the end of the connection.

    Raises `ValueError` if it is empty or too long.
    """
    head = _read_exactly(connection, _LENGTH_STRUCT.size)
    if not head:
        return b""
    (length,) = _LENGTH_STRUCT.unpack(head)
    if not 0 < length <= max_bytes:
        raise ValueError(f"a message of {length} bytes")
    return _read_exactly(connection, length)


def _read_exactly(connection: socket.socket, count: int) -> bytes:
    """Return `count` bytes; b"" if the connection ends before."""
    data = b""
    while len(data) < count:
        if not (piece := connection.recv(count - len(data))):
            return b""
        data += piece
    return data
