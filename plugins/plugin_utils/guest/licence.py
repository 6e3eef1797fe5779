# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The license status of vGPUs, as `nvidia-smi -q` shows it inside a guest. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

Json = dict[str, Any]

# The status is "Licensed (Expiry: ...)" or begins with "Unlicensed".
LICENSED = "Licensed"
BLOCK = "vGPU Software Licensed Product"
MISSING = "no license status"

_GPU = re.compile(r"^GPU ([0-9A-Fa-f:.]+)\s*$", re.MULTILINE)
_FIELD = re.compile(r"^\s*(Product Name|License Status)\s*:\s*(.*?)\s*$")
_EXPIRY = re.compile(r"\(Expiry:\s*(.*?)\s*\)")

# Drivers get their license some time after loading, so the script checks until all GPUs are licensed or the time is up.
# The script always succeeds: the log has the result.
SCRIPT = """\
end=$(($(date +%s) + $SECONDS_TO_WAIT))
while true; do
  nvidia-smi -q > /tmp/status 2>&1
  total=$(grep -c '^GPU ' /tmp/status)
  licensed=$(grep -c 'License Status *: Licensed' /tmp/status)
  if [ "$total" -gt 0 ] && [ "$licensed" -ge "$total" ]; then break; fi
  if [ "$(date +%s)" -ge "$end" ]; then break; fi
  sleep 5
done
cat /tmp/status
"""


def licences(log: str) -> list[Json]:
    """Return one record for each GPU in the output of `nvidia-smi -q`, in its order."""
    pieces = _GPU.split(log)
    return [_licence(gpu, text) for gpu, text in zip(pieces[1::2], pieces[2::2], strict=True)]


def _licence(gpu: str, text: str) -> Json:
    fields: dict[str, str] = {}
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.strip() == BLOCK]
    for line in lines[starts[0] + 1 :] if starts else ():
        found = _FIELD.match(line)
        if found is None:
            break
        fields[found[1]] = found[2]
    status = fields.get("License Status", "")
    return {
        "gpu": gpu,
        "product": fields.get("Product Name") or None,
        "status": status or MISSING,
        "licensed": status.startswith(LICENSED),
        "expires": _expires(status),
    }


def _expires(status: str) -> str | None:
    """Return the expiry in ISO format, or as the driver writes it if that is not a date."""
    found = _EXPIRY.search(status)
    if found is None:
        return None
    try:
        date = datetime.strptime(found[1].removesuffix(" GMT") + " +0000", "%Y-%m-%d %H:%M:%S %z")
    except ValueError:
        return found[1]
    return date.strftime("%Y-%m-%dT%H:%M:%SZ")


def problem(found: Sequence[Mapping[str, Any]], gpus: int, log: str) -> str:
    """Return why the GPUs of a node are not fully licensed, or an empty text if they are."""
    if not found:
        last = (log.strip().splitlines() or ["it wrote nothing"])[-1]
        return f"nvidia-smi shows no GPU: {last}"
    said = [f"GPU {licence['gpu']} has {_said(licence)}" for licence in found if not licence["licensed"]]
    if len(found) < gpus:
        said.append(f"nvidia-smi shows {len(found)} of {gpus} GPUs")
    return "; ".join(said)


def _said(licence: Mapping[str, Any]) -> str:
    if licence["status"] == MISSING:
        return f"{MISSING}, so it is no vGPU or has no vGPU driver"
    return f"license status {licence['status']}"


def earliest(found: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the earliest expiry."""
    return min((str(licence["expires"]) for licence in found if licence["expires"]), default=None)
