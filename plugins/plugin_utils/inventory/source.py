# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The common base of the inventory plugins: options, cache, host names and constructed groups."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleError, AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable

from ...module_utils.errors import FleetError
from . import naming
from .trust import plain, untrusted

Record = dict[str, Any]


class Source(BaseInventoryPlugin, Constructable, Cacheable):  # type: ignore[misc]
    """An inventory whose hosts are records that can be cached, each with an id, a title, a key and a name."""

    # The suffix of accepted file names, before .yml and .yaml.
    ENDING = ""
    # The variable that distinguishes a host from a host of the same name in another inventory.
    IDENTITY = ""

    def prepare(self) -> None:
        """Read the options that apply to every record."""

    @abstractmethod
    def read(self) -> list[Record]:
        """Read all records from the platform."""

    @abstractmethod
    def target(self) -> dict[str, Any]:
        """Return the options that determine the result of `read`, without secrets."""

    @abstractmethod
    def variables(self, record: Record) -> Record | None:
        """Return the variables of a host, or None for a record that the options exclude."""

    def own_variables(self, record: Record) -> Record:
        """Return variables that do not come from the platform and may therefore be templates."""
        return {}

    def verify_file(self, path: str) -> bool:
        return super().verify_file(path) and path.endswith((f"{self.ENDING}.yml", f"{self.ENDING}.yaml"))

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        super().parse(inventory, loader, path, cache=cache)
        self._read_config_data(path)
        try:
            self.prepare()
            chosen = [(record, found) for record in self._records(path, cache) if (found := self.variables(record))]
            hosts = {record["id"]: untrusted(found) for record, found in chosen}
            names = self._names([record for record, _found in chosen], hosts)
            self._refuse_taken(names, hosts)
        except FleetError as error:
            # Drop the causes, which repeat the message.
            raise AnsibleParserError(str(error)) from None
        group = self.inventory.add_group(self._sanitize_group_name(self.option("group")))
        for record, _found in chosen:
            name, variables = names[record["id"]], hosts[record["id"]] | self.own_variables(record)
            self.inventory.add_host(name, group=group)
            for variable, value in variables.items():
                self.inventory.set_variable(name, variable, value)
            strict = self.get_option("strict")
            self._set_composite_vars(self.get_option("compose"), variables, name, strict=strict)
            self._add_host_to_composed_groups(self.get_option("groups"), {}, name, strict=strict)
            self._add_host_to_keyed_groups(self.get_option("keyed_groups"), {}, name, strict=strict)

    # Options
    def option(self, name: str) -> Any:
        """Return an option as a plain value. A template in the inventory file is rendered."""
        value = self.get_option(name)
        if value is None:
            return None
        try:
            return plain(self.templar.template(value))
        except AnsibleError as error:
            raise AnsibleParserError(f"The option {name} cannot be rendered: {error}") from None

    # Records
    def _records(self, path: str, cache: bool) -> list[Record]:
        if not self.get_option("cache"):
            return self.read()
        key = self._cache_key(path)
        if cache:
            try:
                return list(self._cache[key])
            except KeyError:
                # The cache is missing or expired.
                pass
        found = self.read()
        self._cache[key] = found
        return found

    def _cache_key(self, path: str) -> str:
        """Return a key for each file and target, so that another cluster in the environment has a separate cache."""
        target = json.dumps(self.target(), sort_keys=True, default=str)
        return f"{self.get_cache_key(path)}_{hashlib.sha256(target.encode()).hexdigest()[:12]}"

    # Names
    def _names(self, records: list[Record], hosts: Mapping[str, Record]) -> dict[str, str]:
        names = naming.default_names(records, self.suffix())
        expressions = self.get_option("hostnames") or []
        if expressions:
            names = {
                record["id"]: self._composed_name(record, hosts[record["id"]], expressions) or names[record["id"]]
                for record in records
            }
        if shared := naming.twice(names):
            name, ids = shared
            titles = {record["id"]: record["title"] for record in records}
            listed = " and ".join(sorted(titles[source_id] for source_id in ids)[:2])
            raise AnsibleParserError(f"The option hostnames gives {listed} the same name {name!r}.")
        return names

    def suffix(self) -> str:
        """Return the suffix of all host names."""
        return ""

    def _composed_name(self, record: Record, variables: Record, expressions: list[str]) -> str:
        for expression in expressions:
            try:
                name = naming.safe(str(plain(self._compose(expression, variables) or "")))
            except AnsibleError as error:
                if self.get_option("strict"):
                    raise AnsibleParserError(f"The name of {record['title']} cannot be composed: {error}") from None
                continue
            if naming.is_reserved(name):
                raise AnsibleParserError(f"The option hostnames gives {record['title']} the reserved name {name!r}.")
            if name:
                return name
        return ""

    def _refuse_taken(self, names: Mapping[str, str], hosts: Mapping[str, Record]) -> None:
        """Reject names that hosts of another inventory of this kind have, because their variables would be mixed."""
        for identity, name in names.items():
            there = self.inventory.get_host(name)
            other = there.get_vars().get(self.IDENTITY) if there is not None else None
            if other is not None and other != hosts[identity][self.IDENTITY]:
                raise AnsibleParserError(
                    f"Another inventory has a host {name!r} that is not the same. {self.distinct_names()}"
                )

    def distinct_names(self) -> str:
        """Return the advice for names that two inventories share."""
        return "Set hostnames to expressions that differ."
