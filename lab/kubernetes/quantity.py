"""Kubernetes quantities: parsed from any form, printed as the shortest whole number with the same kind of suffix."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

_BINARY = {"Ki": 1024, "Mi": 1024**2, "Gi": 1024**3, "Ti": 1024**4, "Pi": 1024**5, "Ei": 1024**6}
_DECIMAL = {"k": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4, "P": 1000**5, "E": 1000**6}
_FORM = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:[eE]([+-]?[0-9]+)|([KMGTPE]i|[mkMGTPE]?))")


@dataclass(frozen=True)
class Quantity:
    amount: int
    binary: bool = True

    @classmethod
    def parse(cls, text: str | float) -> Quantity:
        match = _FORM.fullmatch(str(text))
        if not match:
            raise ValueError(f"{text!r} is not a quantity")
        number, exponent, suffix = match.groups()
        factor = Fraction(10) ** int(exponent) if exponent else _factor(suffix)
        # Round a fraction of a byte up.
        return cls(math.ceil(Fraction(number) * factor), suffix in _BINARY)

    def __str__(self) -> str:
        for suffix, factor in reversed((_BINARY if self.binary else _DECIMAL).items()):
            if self.amount and self.amount % factor == 0:
                return f"{self.amount // factor}{suffix}"
        return str(self.amount)


def _factor(suffix: str) -> Fraction:
    return Fraction(1, 1000) if suffix == "m" else Fraction({**_BINARY, **_DECIMAL, "": 1}[suffix])
