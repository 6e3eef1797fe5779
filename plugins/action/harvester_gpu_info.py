# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ..modules import harvester_gpu_info
from ..plugin_utils.in_process import InProcessAction, preload

preload("urllib3", "yaml")


class ActionModule(InProcessAction):
    module = harvester_gpu_info
