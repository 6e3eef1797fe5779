"""The same labs as for the other playbooks, for jobs that take minutes."""

from __future__ import annotations

from tests.integration.playbooks.conftest import bare, interpreter, lab, running, runs

__all__ = ["bare", "interpreter", "lab", "running", "runs"]
