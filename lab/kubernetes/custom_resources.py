"""Installation of custom resource definitions."""

from __future__ import annotations

import asyncio

from lab.kubernetes.client import Client, Json

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POLL_SECONDS = 0.05


async def install(client: Client, definitions: list[Json]) -> None:
    """Create custom resource definitions, and return when all are served."""
    await asyncio.gather(*(_define(client, definition) for definition in definitions))
    names = [definition["metadata"]["name"] for definition in definitions]
    while not all([await _is_served(client, name) for name in names]):
        await asyncio.sleep(POLL_SECONDS)


async def _define(client: Client, definition: Json) -> None:
    """Create a definition, or update it if another version created it."""
    path = f"{DEFINITIONS}/{definition['metadata']['name']}"
    if await client.get_or_none(path) is None:
        await client.create_if_absent(DEFINITIONS, definition)
    else:
        await client.patch(path, {"spec": definition["spec"]})


async def _is_served(client: Client, name: str) -> bool:
    definition = await client.get(f"{DEFINITIONS}/{name}")
    conditions = (definition.get("status") or {}).get("conditions") or []
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)
