"""Commands to the gate of a running lab."""

from __future__ import annotations

import json
import socket
from typing import Any

from lab import hints
from lab.errors import LabError
from lab.rundir import RunDir

PATIENCE = 30.0


def order(run: RunDir, do: str, **details: Any) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE)
        try:
            connection.connect(str(run.gate_socket))
            connection.sendall(json.dumps({"do": do, **details}).encode() + b"\n")
            with connection.makefile() as lines:
                line = lines.readline()
        except OSError as error:
            raise LabError(f"The lab in {run.path} does not respond.", hint=hints.start(run)) from error
    answer: dict[str, Any] = json.loads(line or '{"error": "The gate process exited."}')
    if "error" in answer:
        raise LabError(answer["error"])
    return answer
