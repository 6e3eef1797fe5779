"""Perform the recorded actions on hosts with the controls of the lab."""

from __future__ import annotations

import re
from typing import Any

from lab.replay.play.environment import Environment
from lab.replay.read.step_context import StepContext, node_in


def perform(action: str, title: str, context: StepContext, environment: Environment) -> bool:
    """Perform a host action. Return False if the phrase is unknown."""
    text = action.lower()
    nodes = [node for node in context.nodes if re.search(rf"\b{re.escape(node)}\b", action)]
    if "reboot" in text or "reboot" in title.lower():
        environment.control.reboot((nodes or [node_in(title, context.nodes) or context.node])[0])
        return True
    if re.search(r"\bmig\b|mig-capable|mig mode", text):
        return _mig(text, (nodes or [context.node])[0], environment)
    if not re.search(r"process|controller|daemon", text):
        return False
    if re.search(r"\bstart|\brestarted|\bup again", text):
        alive = environment.processes()
        for node in nodes or context.nodes:
            if not alive[node]:
                environment.control.process(node, "start")
        return True
    if re.search(r"\bkill|\bstopp|\bended|\bdown", text):
        for node in nodes or context.nodes:
            environment.control.process(node, "kill")
        return True
    return False


def _mig(text: str, node: str, environment: Environment) -> bool:
    capable = not re.search(r"no longer|not |off\b", text)
    return all(
        set_hardware(environment, node, address, mig_capable=capable) for address in environment.control.hardware(node)
    )


def set_hardware(environment: Environment, node: str, address: str, **changes: Any) -> bool:
    """Change a GPU. Return False if the lab cannot."""
    change = getattr(environment.control, "set_hardware", None)
    if change is None:
        return False
    change(node, address, **changes)
    return True
