#!/usr/bin/python
# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# The action plugin of the same name does the work, on the controller.

from __future__ import annotations

DOCUMENTATION = r"""
module: check_variables
short_description: Refuse misspelt names of variables of this collection
version_added: 0.1.0
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
description:
  - Fails if a variable is defined that begins with the name of a role or has a prefix of the playbooks, but that
    neither reads. Ansible would ignore such a variable, and the run would do something else than you asked for.
  - Names that differ from a variable of the collection by one or two characters are refused as well, for example
    C(harvester_gpu_nodes_layout). A name that resembles a connection variable, such as C(vcenter_hostnme), causes a
    warning.
  - The error lists all misspelt names with the most similar name of each. The task never shows values of variables.
  - All playbooks of the collection run this task first. In a role, it checks the variables of that role only.
options:
  ignore:
    description: Variables that have such a name and serve another purpose.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - vgpu.fleet.controller
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.conn
  - ansible.builtin.action_common_attributes.flow
attributes:
  check_mode:
    details: The module does not change anything.
  delegation:
    details: The variables are always checked on the controller.
  diff_mode:
    details: The module does not change anything.
"""

EXAMPLES = r"""
- name: Check the names of the variables
  vgpu.fleet.check_variables:

- name: Check the names of the variables, except for one that another role reads
  vgpu.fleet.check_variables:
    ignore: [gpu_operator_namespace_labels]
"""

RETURN = r"""
error:
  description: The misspelt names.
  returned: failure
  type: dict
  contains:
    code:
      description: Stable error code for C(rescue) blocks.
      type: str
      sample: unknown_variable
    message:
      description: Description of the error.
      type: str
      sample: The variable vgpu_drift_layuot is unknown. Did you mean vgpu_drift_layout? Nothing was changed.
    hint:
      description: How to resolve the error.
      type: str
"""
