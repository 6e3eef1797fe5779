"""A small HTTP server that answers as a test tells it to, or hangs up, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Asked(NamedTuple):
    method: str
    path: str
    headers: Any
    body: Any


class Page(NamedTuple):
    """An answer that is not JSON."""

    data: bytes
    headers: dict[str, str]


class Server:
    def __init__(self, answer: Callable[[Asked], tuple[int, Any] | None]) -> None:
        self.asked: list[Asked] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                asked = Asked(self.command, self.path, self.headers, body)
                server.asked.append(asked)
                told = answer(asked)
                if told is None:
                    self.close_connection = True
                    return
                status, content = told
                self.send_response(status)
                if isinstance(content, Page):
                    self._page(content)
                    return
                if isinstance(content, list):
                    self._stream(content)
                    return
                data = json.dumps(content).encode()
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def _page(self, page: Page) -> None:
                for name, value in page.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(page.data)))
                self.end_headers()
                self.wfile.write(page.data)

            def _stream(self, events: list[Any]) -> None:
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for event in events:
                    line = json.dumps(event).encode() + b"\n"
                    self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                self.wfile.write(b"0\r\n\r\n")

            do_GET = do_PATCH = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

            def log_message(self, *_arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
