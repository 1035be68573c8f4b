"""An HTTP server at all addresses of this machine: all requests share one batch of a model.

    python server.py demo 8000
    curl -N localhost:8000 -d '{"prompt": "It is a truth", "max_new_tokens": 20}'

One thread computes steps; each request's thread sends what they add. Nobody needs a password.
"""

import json
import os
import queue
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import vcc


class Batch(threading.Thread):
    """Computes steps while there is something to answer; a fault of it ends the process."""

    def __init__(self, model: vcc.Model) -> None:
        super().__init__(daemon=True)
        self.serving, self.inbox, self.clients = model.serving(), queue.Queue(), {}

    def run(self) -> None:
        try:
            while True:
                while not self.serving.busy or not self.inbox.empty():
                    self.inbox.get()()
                for part in self.serving.step():
                    ongoing = part.answer is None
                    (self.clients.get if ongoing else self.clients.pop)(part.number).put(part)
        finally:
            os._exit(1)  # nobody would answer any more

    def admit(self, body: bytes, box: queue.Queue) -> None:
        try:
            said, known = {**json.loads(body)}, ["prompt", *vcc.Overrides.__dataclass_fields__]
            if wrong := said.keys() - known:
                raise ValueError(f"no field {min(wrong)}; known: {', '.join(known)}")
            self.clients[self.serving.submit(said.pop("prompt", None), vcc.Overrides(**said))] = box
        except (vcc.VccError, TypeError, ValueError, RecursionError) as error:
            box.put(error)

    def give_up(self, number: int) -> None:
        if self.serving.cancel(number):
            del self.clients[number]


class Handler(BaseHTTPRequestHandler):
    """POST: a JSON object in, text that grows out."""

    def do_POST(self) -> None:
        size, box = self.headers.get("Content-Length", ""), queue.Queue()
        body = self.rfile.read(int(size)) if size.isdecimal() and int(size) < 1 << 20 else b"{}"
        self.batch.inbox.put(lambda: self.batch.admit(body, box))
        if isinstance(part := box.get(), Exception):
            return self.send_error(400, explain=f"{part}; {getattr(part, 'hint', '')}".rstrip("; "))
        try:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.end_headers()
            while part:
                self.wfile.write(part.text.encode())
                part = box.get() if part.answer is None else None
        except OSError:  # the client is gone
            self.batch.inbox.put(lambda: self.batch.give_up(part.number))


def serve(model: vcc.Model, port: int) -> ThreadingHTTPServer:
    """A server that is ready for `serve_forever`; port 0 takes a free one."""
    handler = type("Bound", (Handler,), {"batch": Batch(model)})
    handler.batch.start()
    return ThreadingHTTPServer(("", port), handler)


if __name__ == "__main__":
    serve(vcc.load(sys.argv[1]), int(sys.argv[2])).serve_forever()
