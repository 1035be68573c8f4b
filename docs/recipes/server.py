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
        self.serving, self.inbox, self.outboxes = model.serving(), queue.Queue(), {}

    def run(self) -> None:
        try:
            while True:
                while not self.serving.busy or not self.inbox.empty():
                    self.admit(*self.inbox.get())
                for part in self.serving.step():
                    ongoing = part.answer is None
                    (self.outboxes.get if ongoing else self.outboxes.pop)(part.number).put(part)
        finally:
            os._exit(1)  # nobody would answer any more

    def admit(self, said: dict, outbox: queue.Queue) -> None:
        try:
            known, prompt = vcc.Overrides.__dataclass_fields__, said.pop("prompt", None)
            if wrong := said.keys() - known.keys():
                raise ValueError(f"no field {min(wrong)}; known: prompt, {', '.join(known)}")
            self.outboxes[self.serving.submit(prompt, vcc.Overrides(**said))] = outbox
        except (vcc.VccError, TypeError, ValueError) as error:
            outbox.put(error)


class Handler(BaseHTTPRequestHandler):
    """POST: a JSON object in, text that grows out."""

    def do_POST(self) -> None:
        outbox = queue.Queue()
        try:
            size = int(self.headers.get("Content-Length", 0))
            said = json.loads(self.rfile.read(size)) if 0 < size < 1 << 20 else {}
            self.batch.inbox.put((dict(said), outbox))
            part = outbox.get()
        except (ValueError, TypeError) as error:
            part = error
        if isinstance(part, Exception):
            self.send_error(400, explain=f"{part}; {getattr(part, 'hint', '')}".rstrip("; "))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.end_headers()
        self.wfile.write(part.text.encode())
        while part.answer is None:
            part = outbox.get()
            self.wfile.write(part.text.encode())


def serve(model: vcc.Model, port: int) -> ThreadingHTTPServer:
    """A server that is ready for `serve_forever`; port 0 takes a free one."""
    handler = type("Bound", (Handler,), {"batch": Batch(model)})
    handler.batch.start()
    return ThreadingHTTPServer(("", port), handler)


if __name__ == "__main__":
    serve(vcc.load(sys.argv[1]), int(sys.argv[2])).serve_forever()
