"""A way to an API server on which something happens at the wrong moment: between a module's reading and writing."""

from __future__ import annotations

import http.client
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import yaml

from tests.integration.labs import Lab

HOP = ("connection", "transfer-encoding", "host")


@contextmanager
def meddling(
    lab: Lab, deed: Callable[[], Any] = lambda: None, *, before: str = "PATCH", ends_after: int | None = None
) -> Iterator[dict[str, str]]:
    """Connection options for a module; before its first request of that method the deed is done.

    After `ends_after` writes nothing reaches the API server any more, as if the module had been killed.
    """
    config = yaml.safe_load(lab.run.kubeconfig("admin").read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
    tls.load_cert_chain(user["client-certificate"], user["client-key"])
    server = urlsplit(cluster["server"]).netloc
    once = threading.Lock()
    done: list[bool] = []
    written: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            if ends_after is not None:
                with once:
                    if len(written) >= ends_after and (self.command == "PATCH" or len(written) > ends_after):
                        written.append(self.path)
                        self.close_connection = True
                        return
                    if self.command == "PATCH":
                        written.append(self.path)
            if self.command == before:
                with once:
                    if not done:
                        done.append(True)
                        deed()
            length = int(self.headers.get("Content-Length") or 0)
            headers = {
                name: value for name, value in self.headers.items() if name.lower() not in (*HOP, "authorization")
            }
            connection = http.client.HTTPSConnection(server, context=tls, timeout=60)
            connection.request(self.command, self.path, self.rfile.read(length) if length else None, headers)
            answer = connection.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in (*HOP, "content-length"):
                    self.send_header(name, value)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            while part := answer.read1(65536):
                self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")
            connection.close()

        do_GET = do_PATCH = do_PUT = do_POST = _pass_on  # noqa: N815

        def log_message(self, *_arguments: Any) -> None:
            pass

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    proxy.daemon_threads = True
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield {"host": f"http://127.0.0.1:{proxy.server_port}", "api_key": "any"}
    finally:
        proxy.shutdown()
        proxy.server_close()
    assert done, f"there was no {before}"
