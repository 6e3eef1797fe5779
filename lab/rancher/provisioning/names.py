"""Names that Rancher and Cluster API derive from other names, at most 63 characters long. Pure."""

from __future__ import annotations

import hashlib

LONGEST = 63


def concatenated(*parts: str) -> str:
    """Return the name of a MachineDeployment; a name that is too long is cut and ends in a part of its hash."""
    full = "-".join(parts)
    if len(full) <= LONGEST:
        return full
    digest = hashlib.sha256(full.encode()).hexdigest()
    # The cut must not end in a hyphen.
    return f"{full[:57]}-{digest[:5]}" if full[56].isalnum() else f"{full[:56]}-{digest[:6]}"


def generated(base: str, random: str) -> str:
    """Return the name of a MachineSet or a Machine, as the API server generates names."""
    return f"{base}-"[: LONGEST - len(random)] + random
