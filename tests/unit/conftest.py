"""Settings of all unit tests."""

from __future__ import annotations

import os

from hypothesis import settings

# A build server tries the same examples each time; everybody else goes on looking for new ones.
# None has a deadline for one example, which would depend on the other load of the machine.
settings.register_profile("varying", deadline=None)
settings.register_profile("repeatable", derandomize=True, deadline=None)
# For the tests of what must never happen: make unit K=nothing_in_use HYPOTHESIS_PROFILE=long.
settings.register_profile("long", max_examples=10_000, deadline=None)
if os.environ.get("HYPOTHESIS_PROFILE"):
    settings.load_profile(os.environ["HYPOTHESIS_PROFILE"])
elif os.environ.get("CI"):
    settings.load_profile("repeatable")
else:
    settings.load_profile("varying")
