"""Settings of all unit tests."""

from __future__ import annotations

import os

from hypothesis import settings

# A build server tries the same examples each time; everybody else goes on looking for new ones.
settings.register_profile("repeatable", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("repeatable")
