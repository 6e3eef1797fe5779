"""Which machine driver the lab's Rancher uses: the one behind the URL of its NodeDriver."""

from __future__ import annotations

import pytest

from lab.rancher.driver import driver_flags


@pytest.mark.parametrize(
    ("name", "writes"), [("v0.7.2", "gpus"), ("v1.0.6", "gpus"), ("master", "hostDevices"), ("", "gpus")]
)
def test_releases_write_gpus_and_only_the_unreleased_driver_writes_host_devices(name: str, writes: str) -> None:
    assert driver_flags.at(driver_flags.URL.format(name=name) if name else "local://").device_field == writes
    assert driver_flags.RELEASED.device_field == "gpus"
