"""The fleet and the plan that `make demo` ends with, as the docs show them.

`python -m tests.integration.browser.demo_fleet build/fleet.html build/plan.html` stores those of the last demo.
tests/integration/playbooks/test_demo.py compares what is stored with a demo of its own.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]

STORED = Path(__file__).parents[2] / "data" / "demo-fleet.json"
WHEN = "2026-11-18 08:30 UTC"
_DATA = re.compile(r'id="fleet-data">([A-Za-z0-9+/=]*)<')
# Rancher ends the names of machines at random.
_MACHINE = re.compile(r"\bml-(\w+)-\w{5}-\w{5}\b")
_READ_AT = re.compile(r'"read_at": "[^"]*"')


def clusters() -> list[Json]:
    """Return the clusters of the map."""
    found: list[Json] = json.loads(STORED.read_text())["clusters"]
    return found


def plans() -> list[Json]:
    """Return the plan of the dry run."""
    found: list[Json] = json.loads(STORED.read_text())["plans"]
    return found


def data_of(page: Path) -> Json:
    """Return the data that a page was drawn from."""
    (packed,) = _DATA.findall(page.read_text())
    text = zlib.decompress(base64.b64decode(packed)).decode()
    text = _MACHINE.sub(r"ml-\1-x7k2p-9fq4d", _READ_AT.sub('"read_at": "2026-11-18T08:30:00Z"', text))
    found: Json = json.loads(text)
    return found


def in_numbers(records: Sequence[Json]) -> Json:
    """Return what does not depend on where VMs were placed."""
    return {
        record["platform"]: {
            "gpus": sorted(gpu["board"] for node in record["nodes"] for gpu in node["gpus"]),
            "profiles": {
                one["short"]: [one[key] for key in ("total", "in_use", "claimed", "free")]
                for one in record["profiles"]
                if one["in_use"] or one["claimed"]
            },
            "holders": Counter(
                holder["path"]
                for node in record["nodes"]
                for gpu in node["gpus"]
                for vgpu in gpu["vgpus"]
                for holder in vgpu["holders"]
            ),
            "findings": record["findings"],
        }
        for record in records
    }


if __name__ == "__main__":
    fleet, plan = map(data_of, map(Path, sys.argv[1:]))
    STORED.write_text(json.dumps({"clusters": fleet["clusters"], "plans": plan["plans"]}, indent=1) + "\n")
