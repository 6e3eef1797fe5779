"""Errors that a user of the lab can cause: a message, and a hint how to solve the problem."""

from __future__ import annotations


class LabError(Exception):
    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message
