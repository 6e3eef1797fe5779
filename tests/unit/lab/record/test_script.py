"""Step files: mistakes are told before anything is played."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.errors import LabError
from lab.record import script

TRACES = Path(__file__).parents[3] / "data" / "traces"
VGPU = "/apis/devices.harvesterhci.io/v1beta1/vgpudevices/gpu-a-000008004"


def loaded(tmp_path: Path, text: str) -> script.Script:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    return script.load(file)


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("steps: [", "not valid YAML"),
        ("title: nothing", "not contain a list of steps"),
        ("- {title: both, note: x, observe: {seconds: 1}}", "must have exactly one of"),
        ("- {title: none}", "must have exactly one of"),
        ("- {note: x, color: blue}", "unknown key color"),
        ("- request: {path: /api/v1/nodes}", "method and path"),
        ("- request: {method: GET, path: /api/v1/namespaces/default/secrets}", "cannot be recorded"),
        ("- request: {method: GET, path: /api/v1/namespaces/default/configmaps/x}", "cannot be recorded"),
        (
            "- request: {method: GET, path: /apis/harvesterhci.io/v1beta1/settings/ssl-certificates}",
            "cannot be recorded",
        ),
        ("- request: {method: DELETE, path: /api/v1/nodes/gpu-a}", "DELETE is not supported for nodes"),
        (f"- request: {{method: PATCH, path: {VGPU}, body: {{}}}}", "needs contentType"),
        ("- wait: {timeout: 5}", "wait needs the key until"),
        ("- observe: {}", "observe needs the key seconds"),
    ],
)
def test_a_mistake_is_told_with_its_step(tmp_path, text, phrase):
    with pytest.raises(LabError, match=phrase):
        loaded(tmp_path, text)


def test_a_phrase_that_is_not_understood_is_told_before_the_first_step(tmp_path):
    steps = loaded(tmp_path, f"- request: {{method: GET, path: {VGPU}}}\n- wait: {{until: the moon is full}}")
    with pytest.raises(LabError, match="Step 2 waits for an unknown condition: the moon is full"):
        script.check_phrases(steps, ("gpu-a",))


def test_writes_are_counted(tmp_path):
    patch = f"request: {{method: patch, path: {VGPU}, contentType: application/merge-patch+json, body: {{}}}}"
    assert loaded(tmp_path, f"- {patch}\n- request: {{method: GET, path: {VGPU}}}\n- note: x").writes == 1


@pytest.mark.parametrize("path", sorted(TRACES.glob("v1.8-s0[1-6].yaml")), ids=lambda path: path.stem)
def test_a_recording_may_be_played_again(path):
    again = script.load(path)
    assert again.steps
    script.check_phrases(again, ("gpu-a", "gpu-b"))
