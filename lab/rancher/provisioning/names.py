"""Names that Rancher and Cluster API make of other names, none longer than 63 characters. Pure."""

from __future__ import annotations

import hashlib

LONGEST = 63


def concatenated(*parts: str) -> str:
    """Of a MachineDeployment, from cluster and pool: what is too long is cut and gets the beginning of its hash."""
    full = "-".join(parts)
    if len(full) <= LONGEST:
        return full
    digest = hashlib.sha256(full.encode()).hexdigest()
    # The cut must not end in a hyphen.
    return f"{full[:57]}-{digest[:5]}" if full[56].isalnum() else f"{full[:56]}-{digest[:6]}"


def generated(base: str, random: str) -> str:
    """Of a MachineSet or a Machine, as the API server generates names."""
    return f"{base}-"[: LONGEST - len(random)] + random
