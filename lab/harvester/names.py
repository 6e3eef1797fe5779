"""Resource names of vGPU types, as the controllers derive them (harvester.md 3.1)."""

from __future__ import annotations

import re


def resource_name(type_name: str, *, upper_case: bool = False) -> str:
    name = type_name.strip().replace("/", "_").replace(".", "_")
    name = re.sub(r"[\t\n\f\r ]+", "_", name)
    return "nvidia.com/" + (name.upper() if upper_case else name)
