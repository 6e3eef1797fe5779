# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A14: storage policies are looked up behind the same proxy as vCenter."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import pyVmomi
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.find import storage_policy as vm_storage_policy


class Reached(Exception):
    """The stub that would have been used."""


@pytest.mark.parametrize(
    ("proxy", "expected"),
    [
        ({}, (None, 80)),
        ({"httpProxyHost": "proxy.example", "httpProxyPort": 3128}, ("proxy.example", 3128)),
    ],
)
def test_a14_the_proxy_of_the_session_is_used(monkeypatch, proxy, expected):
    def stub(**options):
        raise Reached(options["host"], options["port"], (options["httpProxyHost"], options["httpProxyPort"]))

    monkeypatch.setattr(pyVmomi, "SoapStubAdapter", stub)
    connection = SimpleNamespace(cookie="", host="vcenter.example:443", schemeArgs={}, **proxy)
    session = SimpleNamespace(stub=connection, reporting=lambda _subject: nullcontext())
    with pytest.raises(Reached) as caught:
        vm_storage_policy.profile_spec(session, "gold")
    assert caught.value.args == ("vcenter.example", 443, expected)
