"""How these tests talk to a control plane."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from lab.kubernetes.client import ApiError, Client
from lab.rundir import RunDir

Json = dict[str, Any]


class Api:
    """One request at a time, as one of the lab's users."""

    def __init__(self, run: RunDir, user: str = "admin") -> None:
        self.run = run
        self.user = user

    def as_user(self, user: str) -> Api:
        return Api(self.run, user)

    def __call__(self, method: str, path: str, body: Any = None, **options: Any) -> Json:
        async def call() -> Json:
            async with Client.from_kubeconfig(self.run.kubeconfig(self.user), user_agent="test") as client:
                return await client.request(method, path, body=body, **options)

        return asyncio.run(call())

    def refusal(self, method: str, path: str, body: Any = None, **options: Any) -> ApiError:
        with pytest.raises(ApiError) as caught:
            self(method, path, body, **options)
        return caught.value


def eventually(found: Callable[[], Any], timeout: float = 30) -> Any:
    deadline = time.monotonic() + timeout
    while not (value := found()):
        assert time.monotonic() < deadline, f"not within {timeout} s"
        time.sleep(0.1)
    return value
