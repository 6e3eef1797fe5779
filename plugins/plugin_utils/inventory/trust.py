# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values that Ansible may template, and values that it must never template.

Names, labels and annotations come from anyone who may create a VM. From ansible-core 2.19 on, only values that are
marked as trusted are templated. Earlier versions template every value that is not marked as unsafe.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

try:
    from ansible.template import trust_as_template
except ImportError:
    trust_as_template = None


def untrusted(value: Any) -> Any:
    """Return a value that is never templated, whatever its content."""
    if trust_as_template is not None:
        return plain(value)
    from ansible.utils.unsafe_proxy import wrap_var

    return wrap_var(plain(value))


def as_template(text: str) -> str:
    """Return a text of this collection or of the inventory file's author, to be templated where it is used."""
    return text if trust_as_template is None else trust_as_template(plain(text))


def plain(value: Any) -> Any:
    """Return a value without Ansible's tags and types, which SDKs and JSON do not support."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return "".join(value)
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(item) for item in value]
    # A value that is encrypted with ansible-vault.
    return str(value)
