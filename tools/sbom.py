"""Write the software bill of materials of the execution environment: python -m tools.sbom --output FILE

The bill is a CycloneDX document in JSON. It lists what awx/execution-environment.yml puts into the image: the Python
packages, resolved as a build of today resolves them and with the checksums of their files, the collections, Helm, the
base image and the system packages. What only a build decides has no version here: packages of the base image, and
collections that are given as a range.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

CHECKOUT = Path(__file__).resolve().parents[1]
DEFINITION = CHECKOUT / "awx/execution-environment.yml"
SPECIFICATION = "1.6"
PINNED = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)")
CHECKSUM = re.compile(r"--hash=sha256:([0-9a-f]{64})")
HELM = re.compile(r"helm\.sh/helm/v3/cmd/helm@(v[0-9.]+)")

Json = dict[str, Any]


class Invalid(Exception):
    """The document is not valid CycloneDX."""


@dataclass(frozen=True)
class Package:
    """A Python package with its version and the checksums of its files."""

    name: str
    version: str
    checksums: tuple[str, ...] = ()


def requirements(definition: Json) -> list[str]:
    """Return the Python requirements of the execution environment."""
    wanted = definition["dependencies"]
    return [
        wanted["ansible_core"]["package_pip"],
        wanted["ansible_runner"]["package_pip"],
        *(line for line in (CHECKOUT / "requirements.txt").read_text().splitlines() if line),
        *_of_kubernetes_core(),
    ]


def _of_kubernetes_core() -> list[str]:
    import ansible_collections

    for base in ansible_collections.__path__:
        found = Path(base) / "kubernetes/core/requirements.txt"
        if found.exists():
            return [line for line in found.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return []


def resolve(wanted: Iterable[str], python: str) -> list[Package]:
    """Resolve requirements with uv, as pip does in the build."""
    command = ["uv", "pip", "compile", "--quiet", "--generate-hashes", "--no-header", "--no-annotate"]
    done = subprocess.run(
        [*command, "--no-emit-index-url", "--python-version", python, "--python-platform", "linux", "-"],
        input="\n".join(wanted),
        capture_output=True,
        text=True,
        check=True,
    )
    return packages_in(done.stdout)


def packages_in(locked: str) -> list[Package]:
    """Return the packages of a lock file in the format of pip."""
    joined = locked.replace("\\\n", " ")
    return [
        Package(found["name"], found["version"], tuple(CHECKSUM.findall(line)))
        for line in joined.splitlines()
        if (found := PINNED.match(line.strip()))
    ]


def bill(definition: Json, packages: Iterable[Package], *, version: str, now: datetime, serial: uuid.UUID) -> Json:
    """Return the document."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "timestamp": now.astimezone(UTC).isoformat(timespec="seconds"),
            "component": {
                "type": "container",
                "bom-ref": "execution-environment",
                "name": "vgpu-fleet-ee",
                "version": version,
            },
        },
        "components": [*_python_packages(packages), *_others(definition, version)],
    }


def _python_packages(packages: Iterable[Package]) -> Iterator[Json]:
    for package in packages:
        purl = f"pkg:pypi/{re.sub(r'[-_.]+', '-', package.name).lower()}@{package.version}"
        component: Json = {
            "type": "library",
            "bom-ref": purl,
            "name": package.name,
            "version": package.version,
            "purl": purl,
        }
        if package.checksums:
            url = f"https://pypi.org/project/{package.name}/{package.version}/"
            # Each file of a release has a checksum of its own.
            component["externalReferences"] = [
                {"type": "distribution", "url": url, "hashes": [{"alg": "SHA-256", "content": checksum}]}
                for checksum in package.checksums
            ]
        yield component


def _others(definition: Json, version: str) -> Iterator[Json]:
    wanted = definition["dependencies"]
    for collection in wanted["galaxy"]["collections"]:
        if collection.get("type") == "file":
            yield {"type": "library", "bom-ref": "vgpu.fleet", "name": "vgpu.fleet", "version": version}
        else:
            yield _ranged("library", collection["name"], str(collection.get("version") or ""))
    base = definition["images"]["base_image"]["name"]
    yield _ranged("container", base, "")
    for package in wanted["system"]:
        yield _ranged("library", package.split()[0], "")
    for step in definition["additional_build_steps"]["append_final"]:
        if found := HELM.search(step):
            purl = f"pkg:golang/helm.sh/helm/v3@{found[1]}"
            yield {"type": "application", "bom-ref": purl, "name": "helm", "version": found[1], "purl": purl}


def _ranged(kind: str, name: str, accepted: str) -> Json:
    """Return a component whose version the build decides."""
    made: Json = {"type": kind, "bom-ref": name, "name": name}
    if accepted:
        made["properties"] = [{"name": "vgpu.fleet:accepted-versions", "value": accepted}]
    return made


def validate(document: Json) -> None:
    """Raise Invalid if the document does not follow the schema of CycloneDX, or refers to a component twice."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(document))
    if error is not None:
        raise Invalid(str(error))
    references = [component["bom-ref"] for component in document["components"]]
    if twice := sorted({one for one in references if references.count(one) > 1}):
        raise Invalid(f"Components that are listed twice: {', '.join(twice)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="the file to write")
    chosen = parser.parse_args()
    definition = yaml.safe_load(DEFINITION.read_text())
    python = str(definition["dependencies"]["python_interpreter"]["package_system"]).removeprefix("python")
    packages = resolve(requirements(definition), python)
    version = str(yaml.safe_load((CHECKOUT / "galaxy.yml").read_text())["version"])
    document = bill(definition, packages, version=version, now=datetime.now(UTC), serial=uuid.uuid4())
    validate(document)
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    chosen.output.write_text(json.dumps(document, indent=2) + "\n")
    print(f"{chosen.output}: {len(document['components'])} components, {len(packages)} of them Python packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
