"""API resource and the paths of its objects."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Resource:
    kind: str
    plural: str
    prefix: str
    namespaced: bool = False

    @property
    def collection(self) -> str:
        return f"{self.prefix}/{self.plural}"

    def collection_in(self, namespace: str) -> str:
        return f"{self.prefix}/namespaces/{namespace}/{self.plural}" if self.namespaced else self.collection

    def path(self, name: str, namespace: str = "") -> str:
        return f"{self.collection_in(namespace)}/{name}"

    def holds(self, path: str) -> bool:
        """Return whether the path is an object or a collection of this resource."""
        if not path.startswith(f"{self.prefix}/"):
            return False
        parts = path.removeprefix(f"{self.prefix}/").split("/")
        return self.plural in (parts[0], *(parts[2:3] if parts[0] == "namespaces" else ()))

    @property
    def api_version(self) -> str:
        return self.prefix.removeprefix("/apis/").removeprefix("/api/")
