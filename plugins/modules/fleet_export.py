#!/usr/bin/python
# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# The action plugin of the same name does the work, on the controller.

from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_export
short_description: Write capacity and drift of a cluster to files for monitoring
version_added: 0.1.0
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
description:
  - Writes the results of other tasks to a file with metrics in the text format of Prometheus, to a JSON file, to an
    HTML page, or to several of them.
  - A file can contain several clusters. A task replaces the data of its own cluster and keeps the rest, so the numbers
    of an unreachable cluster stay, with the time when they were read.
  - The files are written on the controller and replaced atomically. The task fails if a file has content that the
    collection did not write.
  - The task never reports a change, because the files are output. In check mode, the files are not written.
options:
  cluster:
    description: The name of the cluster in the files. Defaults to the name of the host in the inventory.
    type: str
  platform:
    description: The platform of the cluster. Required with O(findings). O(info) already contains it.
    type: str
    choices: [harvester, vsphere]
  info:
    description: The result of M(vgpu.fleet.harvester_gpu_info) or M(vgpu.fleet.vsphere_gpu_info).
    type: dict
  availability:
    description: The result of M(vgpu.fleet.vgpu_availability) for the same nodes. Required on vSphere.
    type: dict
  findings:
    description: The findings of the role P(vgpu.fleet.vgpu_drift#role), from the variable C(vgpu_drift_findings).
    type: list
    elements: dict
  metrics:
    description:
      - Path of the file for the metrics. The textfile collector of the node exporter reads files that end in C(.prom).
      - A relative path is relative to the folder in which C(ansible-playbook) was started.
    type: path
  json:
    description: Path of the file for the record of O(info) in JSON, resolved like O(metrics).
    type: path
  html:
    description: >-
      Path of the file for a page that draws the GPUs of O(info) with their vGPUs and VMs, resolved like O(metrics).
      The page loads no external content.
    type: path
extends_documentation_fragment:
  - vgpu.fleet.controller
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.conn
  - ansible.builtin.action_common_attributes.flow
attributes:
  check_mode:
    details: The files are read but not written.
  delegation:
    details: The files are always written on the controller.
  diff_mode:
    details: The files are output.
seealso:
  - module: vgpu.fleet.vgpu_availability
  - name: Monitoring
    description: The metrics, alert rules and a dashboard.
    link: https://github.com/vgpu-fleet/vgpu.fleet/blob/main/docs/monitoring.md
"""

EXAMPLES = r"""
- name: Read the GPUs
  vgpu.fleet.harvester_gpu_info:
    detail: full
  register: fleet

- name: Write metrics for the node exporter and JSON for other programs
  vgpu.fleet.fleet_export:
    info: "{{ fleet }}"
    cluster: berlin
    metrics: /var/lib/node_exporter/textfile/vgpu_fleet.prom
    json: /srv/www/vgpu_fleet.json
"""

RETURN = r"""
files:
  description: Absolute paths of the files.
  returned: success
  type: list
  elements: str
  sample: [/var/lib/node_exporter/textfile/vgpu_fleet.prom]
error:
  description: Why a file could not be written.
  returned: failure
  type: dict
  contains:
    code:
      description: Stable error code for C(rescue) blocks, such as V(cannot_write).
      type: str
      sample: cannot_write
    message:
      description: Description of the error.
      type: str
    hint:
      description: How to resolve the error.
      type: str
"""
