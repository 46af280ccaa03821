"""An agent whose files and commands are elsewhere, and the wire in between."""

import os
import subprocess
import sys
import threading
from pathlib import Path

COUNTS = Path("bytes.txt").resolve()
WIRE = f"{Path(__file__).resolve()} wire {COUNTS}"


def pump(source, target):
    """Pass on what comes, until the end. Return the number of bytes."""
    count = 0
    while data := os.read(source, 65536):
        count += len(data)
        while data:
            data = data[os.write(target, data) :]
    os.close(target)
    return count


def be_the_wire(counts):
    shell = subprocess.Popen(["sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    there, shell_input = [], os.dup(shell.stdin.fileno())
    shell.stdin.close()
    forth = threading.Thread(target=lambda: there.append(pump(0, shell_input)), daemon=True)
    forth.start()
    back = pump(shell.stdout.fileno(), 1)
    forth.join(1)
    Path(counts).write_text(f"{sum(there)} bytes there, {back} bytes back")


def main():
    there = Path("there").resolve()
    there.mkdir(exist_ok=True)
    address = f"cmd:{sys.executable} {WIRE} # {there}"
    refold = [sys.executable, "-m", "refold", "-p", "--model", "lesson/scripted"]
    rights = ["--permission-mode", "accept-edits"]
    subprocess.run([*refold, *rights, "--workspace", address, " ".join(sys.argv[1:])])
    print(COUNTS.read_text() if COUNTS.exists() else "no bytes were counted")


if sys.argv[1] == "wire":
    be_the_wire(sys.argv[2])
else:
    main()
