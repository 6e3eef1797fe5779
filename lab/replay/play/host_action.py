"""Things done to the hosts, as a recording tells them, by the lab's controls."""

from __future__ import annotations

import re
from typing import Any

from lab.replay.play.environment import Stage
from lab.replay.read.step_context import Scene, node_in


def perform(action: str, title: str, scene: Scene, stage: Stage) -> bool:
    """Do it; whether the phrase was understood."""
    text = action.lower()
    nodes = [node for node in scene.nodes if re.search(rf"\b{re.escape(node)}\b", action)]
    if "reboot" in text or "reboot" in title.lower():
        stage.control.reboot((nodes or [node_in(title, scene.nodes) or scene.node])[0])
        return True
    if re.search(r"\bmig\b|mig-capable|mig mode", text):
        return _mig(text, (nodes or [scene.node])[0], stage)
    if not re.search(r"process|controller|daemon", text):
        return False
    if re.search(r"\bstart|\brestarted|\bup again", text):
        alive = stage.processes()
        for node in nodes or scene.nodes:
            if not alive[node]:
                stage.control.process(node, "start")
        return True
    if re.search(r"\bkill|\bstopp|\bended|\bdown", text):
        for node in nodes or scene.nodes:
            stage.control.process(node, "kill")
        return True
    return False


def _mig(text: str, node: str, stage: Stage) -> bool:
    capable = not re.search(r"no longer|not |off\b", text)
    return all(set_hardware(stage, node, address, mig_capable=capable) for address in stage.control.hardware(node))


def set_hardware(stage: Stage, node: str, address: str, **changes: Any) -> bool:
    """Change a card, if the lab can."""
    change = getattr(stage.control, "set_hardware", None)
    if change is None:
        return False
    change(node, address, **changes)
    return True
