"""A client of the server, on a bad network."""

import json
import subprocess
import sys
from urllib.request import Request, urlopen

from websockets.sync.client import connect

MAX_DOCUMENTS, MAX_CONNECTIONS = 3, 30
REFOLD = [sys.executable, "-m", "refold"]


def read_documents(address, token, order=""):
    """Yield documents of a conversation. The network breaks after three."""
    headers = {"Authorization": f"Bearer {token}"}
    with connect(address, additional_headers=headers, close_timeout=0.1) as socket:
        if order:
            socket.send(order)
        for _ in range(MAX_DOCUMENTS):
            document = json.loads(socket.recv(timeout=10))
            yield document
            if document["type"] == "result":
                return


def follow(address, token, text):
    order = json.dumps({"type": "user_message", "text": text})
    last_id = "0"
    for _ in range(MAX_CONNECTIONS):
        for document in read_documents(f"{address}?after={last_id}", token, order):
            if "id" in document:
                last_id = document["id"]
                print(last_id, document["type"])
            if document["type"] == "result":
                return
        order = ""


def main():
    shown = subprocess.run([*REFOLD, "serve", "--show-token"], stdout=subprocess.PIPE)
    token = shown.stdout.decode().strip()
    server = subprocess.Popen([*REFOLD, "serve", "--port", "0"], stdout=subprocess.PIPE)
    try:
        link = server.stdout.readline().decode().split()[-1]
        host = link.partition("//")[2].partition("/")[0]
        new = Request(f"http://{host}/api/conversations", b'{"model": "lesson/scripted"}')
        new.add_header("Authorization", f"Bearer {token}")
        new.add_header("Content-Type", "application/json")
        id_ = json.load(urlopen(new))["id"]
        address = f"ws://{host}/api/conversations/{id_}/ws"
        follow(address, token, " ".join(sys.argv[1:]))
    finally:
        server.terminate()
        server.wait()


main()
