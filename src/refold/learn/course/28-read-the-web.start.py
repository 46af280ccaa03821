"""An agent that reads a web site: yours, on this machine."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from refold import Agent
from refold.provider.port import CallDelta, Done, TextDelta
from refold.values.messages import ToolResult

PAGES = {
    "/bees": "A hive has thirty thousand bees.",
    "/diary": "The honey is under the bed.",
}


class Site(BaseHTTPRequestHandler):
    """Serves the pages, and prints what it is asked for."""

    def do_GET(self):
        print("site:", self.path, flush=True)
        text = PAGES.get(self.path)
        self.send_response(200 if text else 404)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write((text or "There is no such page.").encode())

    def log_message(self, *arguments):
        pass


class Reader:
    """The model: it asks for all pages, and repeats what it has read."""

    def __init__(self, addresses):
        self.addresses = addresses

    async def stream(self, request):
        parts = [part for stored in request.messages for part in stored.message.parts]
        results = [part for part in parts if isinstance(part, ToolResult)]
        if not results:
            for number, address in enumerate(self.addresses):
                arguments = json.dumps({"url": address})
                yield CallDelta(number, arguments, id=f"call-{number}", name="web_fetch")
            yield Done(stop="calls")
        else:
            yield TextDelta("\n\n".join(result.text for result in results))
            yield Done()


site = ThreadingHTTPServer(("127.0.0.1", 0), Site)
Thread(target=site.serve_forever, daemon=True).start()
addresses = [f"http://127.0.0.1:{site.server_port}{path}" for path in sys.argv[1:]]
agent = Agent(provider=Reader(addresses))
print(agent.run("Read these pages.").text)
