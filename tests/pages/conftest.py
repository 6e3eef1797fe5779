"""The lab of the playbooks' tests, for the pages that describe the playbooks."""

from __future__ import annotations

from tests.integration.playbooks.conftest import bare, running

__all__ = ["bare", "running"]
