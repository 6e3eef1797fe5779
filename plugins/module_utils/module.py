# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one place where our errors become a failed task."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.module_utils.redaction import secrets

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule


@contextmanager
def reporting_errors(module: AnsibleModule) -> Iterator[None]:
    """What a user can cause fails the task with message, hint and a code to rescue on; a bug shows its traceback."""
    # Ansible hides options as a whole. A kubeconfig given as a mapping is only secret in parts.
    module.no_log_values.update(secrets(module.params, os.environ))
    try:
        yield
    except FleetError as error:
        module.fail_json(msg=str(error), error=error.as_dict(), changed=error.changed)
