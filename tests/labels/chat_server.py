"""A chat endpoint on loopback that does as it is told: for the tests of what asks it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    wait: float = 0.0


def completion(text: str, usage: dict[str, int] | None = None, ended: str = "stop") -> Answer:
    found: dict[str, Any] = {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": ended}]}
    if usage is not None:
        found["usage"] = usage
    return Answer(body=json.dumps(found).encode())


@dataclass
class ChatServer:
    """``answer`` makes the answer to a prompt and the number of requests so far; ``requests`` are those that came."""

    url: str
    requests: list[dict[str, Any]]


@contextmanager
def chat_server(answer: Callable[[str, int], Answer]) -> Iterator[ChatServer]:
    requests: list[dict[str, Any]] = []
    lock, done = threading.Lock(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                requests.append({"path": self.path, "authorization": self.headers.get("Authorization"), "body": body})
                number = len(requests)
            made = answer(body["messages"][0]["content"], number)
            done.wait(made.wait)
            self.send_response(made.status)
            for name, value in made.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(made.body) + (50 if made.cut else 0)))
            self.end_headers()
            self.wfile.write(made.body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield ChatServer(f"http://127.0.0.1:{server.server_port}/v1", requests)
    finally:
        done.set()
        server.shutdown()
        server.server_close()
