"""The number of examples by profile: a few in `make test`, ten thousand of each in `make fuzz`."""

from __future__ import annotations

from hypothesis import settings

IN_MAKE_TEST = 12


def number(times: float = 1) -> int:
    """Return how many examples a test tries, in a long run `times` as many as others."""
    many = settings.get_profile("default").max_examples
    chosen = settings().max_examples
    return int(chosen * times) if chosen > many else IN_MAKE_TEST
