"""Starts programs of lessons quickly, in forks of a Python that has imported their modules.

`python prepared_python.py` serves on the socket in PREPARED_SOCKET. `python -I -S prepared_python.py
PROGRAM WORD…` asks it to run a program, with the directory, environment and streams of the caller. The
server imports the modules of each program for later programs. If the caller is killed, the program and
the processes that it started are killed, too.
"""

import os
import socket
import sys

SOCKET_VARIABLE = "PREPARED_SOCKET"
END_OF_TEXT, MAX_REQUEST_BYTES = "\0", 200_000


def ask(address: str) -> int:
    """Let the server run the program. Return its exit code, or 137 if it was killed."""
    environ = [f"{name}={value}" for name, value in os.environ.items()]
    fields = [os.getcwd(), str(len(sys.argv) - 1), *sys.argv[1:], *environ]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(address)
        socket.send_fds(server, [END_OF_TEXT.join(fields).encode()], [0, 1, 2])
        for fd in (0, 1, 2):
            os.close(fd)
        return int(server.recv(100) or b"137")


def serve(address: str) -> None:
    """Run a program in a fork for each request, until killed."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen()
    print("ready", flush=True)
    while True:
        caller, _ = listener.accept()
        import_modules(address)
        if os.fork() == 0:
            listener.close()
            run(caller, address)
        caller.close()


def import_modules(address: str) -> None:
    """Import the modules that earlier programs have imported, and reap these programs."""
    import importlib
    from contextlib import suppress

    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    with suppress(FileNotFoundError), open(f"{address}.modules") as file:
        for name in set(file.read().split()) - set(sys.modules):
            with suppress(Exception):
                importlib.import_module(name)


def run(caller: socket.socket, address: str) -> None:
    import atexit
    import runpy
    import threading
    import traceback

    data, fds, _, _ = socket.recv_fds(caller, MAX_REQUEST_BYTES, 3)
    directory, count, *fields = data.decode().split(END_OF_TEXT)
    os.setsid()
    for fd, number in zip(fds, (0, 1, 2), strict=True):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    for name, _, value in (field.partition("=") for field in fields[int(count) :]):
        os.environ[name] = value
    os.chdir(directory)
    sys.argv = fields[: int(count)]
    sys.path[0] = directory
    threading.Thread(target=end_with, args=(caller,), daemon=True).start()
    before, code = set(sys.modules), 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    names = [name for name in set(sys.modules) - before if not name.startswith("__")]
    with open(f"{address}.modules", "a") as file:
        file.write("\n".join([*names, ""]))
    threading._shutdown()  # type: ignore[attr-defined]  # as the interpreter does at its end
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]  # the same
    sys.stdout.flush()
    sys.stderr.flush()
    caller.send(str(code).encode())
    os._exit(code)


def end_with(caller: socket.socket) -> None:
    """Kill this program and the processes that it started when its caller is gone."""
    import signal

    caller.recv(1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os._exit(ask(os.environ[SOCKET_VARIABLE]))
    serve(os.environ[SOCKET_VARIABLE])
