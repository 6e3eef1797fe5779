"""Watch objects, and add their versions to the history."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any

from lab.replay.observe.api import Api
from lab.replay.observe.history import WATCHED, History

# How long without an event means that what the simulator wrote has arrived here too.
QUIET = 0.004
LONGEST_WAIT = 0.25


class Watches:
    def __init__(self, api: Api, history: History) -> None:
        self._api = api
        self._history = history
        self._stopped = threading.Event()
        self._sockets: dict[str, socket.socket] = {}
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Watches:
        for plural, path in WATCHED.items():
            listed = self._api.get(path)
            if listed is None:
                continue
            self._history.merge(plural, listed)
            revision = listed["metadata"]["resourceVersion"]
            self._history.base = max(self._history.base, int(revision))
            thread = threading.Thread(target=self._follow, args=(plural, path, revision), daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        for open_socket in list(self._sockets.values()):
            with suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(timeout=2)

    def _follow(self, plural: str, path: str, revision: str) -> None:
        while not self._stopped.is_set():
            connection = self._api.connect(timeout=None)
            try:
                target = self._api.target(f"{path}?watch=1&resourceVersion={revision}")
                connection.request("GET", target, headers=self._api.headers())
                self._sockets[plural] = connection.sock
                for event in _events(connection.getresponse()):
                    self._history.record(plural, event["type"], event["object"])
                    revision = event["object"]["metadata"]["resourceVersion"]
            except (OSError, http.client.HTTPException, ValueError):
                self._stopped.wait(0.05)
            finally:
                connection.close()

    def catch_up(self) -> None:
        """Wait until no more events come in."""
        began = time.monotonic()
        seen = self._history.events
        quiet_since = began
        while time.monotonic() - began < LONGEST_WAIT:
            time.sleep(0.001)
            if self._history.events != seen:
                seen, quiet_since = self._history.events, time.monotonic()
            elif time.monotonic() - quiet_since >= QUIET:
                return


def _events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    pending = b""
    while chunk := response.read1(1 << 20):
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            event = json.loads(line)
            if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                yield event
            elif event["type"] == "ERROR":
                raise OSError(event["object"].get("message", "watch ended"))
