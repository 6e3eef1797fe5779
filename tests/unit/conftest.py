"""Settings of all unit tests."""

from __future__ import annotations

import os

from hypothesis import settings

# A build server tries the same examples each time; everybody else goes on looking for new ones.
settings.register_profile("repeatable", derandomize=True)
# For the tests of what must never happen: make unit K=nothing_in_use HYPOTHESIS_PROFILE=long.
settings.register_profile("long", max_examples=10_000)
if os.environ.get("HYPOTHESIS_PROFILE"):
    settings.load_profile(os.environ["HYPOTHESIS_PROFILE"])
elif os.environ.get("CI"):
    settings.load_profile("repeatable")
