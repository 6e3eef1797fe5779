# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lookup of storage policies by name, in a separate service that shares the vCenter session."""

from __future__ import annotations

import re
from typing import Any

from ....errors import did_you_mean, join_names
from ...faults import Operation
from ...session import Session
from .locations import LocationNotFound


def profile_spec(session: Session, name: str) -> Any:
    """Return the storage profile for a clone specification."""
    import pyVmomi

    # pyVmomi creates these types at run time, so static type checks are not possible.
    library: Any = pyVmomi
    pbm = library.pbm
    subject = Operation(f"look up the storage policy {name}")
    with session.reporting(subject):
        found = re.search(r'vmware_soap_session="?([^";]+)', str(session.stub.cookie))
        library.VmomiSupport.GetRequestContext()["vcSessionCookie"] = found[1] if found else ""
        host, _colon, port = session.stub.host.rpartition(":")
        stub = library.SoapStubAdapter(
            host=host,
            port=int(port),
            path="/pbm/sdk",
            version="pbm.version.version1",
            sslContext=session.stub.schemeArgs.get("context"),
            # The service uses the same proxy as vCenter.
            httpProxyHost=getattr(session.stub, "httpProxyHost", None),
            httpProxyPort=getattr(session.stub, "httpProxyPort", None) or 80,
            poolSize=0,
        )
        content = pbm.ServiceInstance("ServiceInstance", stub).RetrieveContent()
        manager = content.profileManager
        storage = pbm.profile.ResourceType(resourceType="STORAGE")
        ids = manager.PbmQueryProfile(resourceType=storage, profileCategory="REQUIREMENT")
        policies = manager.PbmRetrieveContent(ids) if ids else []
    named = [policy for policy in policies if policy.name == name]
    if not named:
        there = [str(policy.name) for policy in policies]
        alike = did_you_mean(name, there, limit=2)
        meant = f"Did you mean {' or '.join(alike)}? " if alike else ""
        raise LocationNotFound(f"There is no storage policy {name}.", hint=f"{meant}There are: {join_names(there)}.")
    return session.vim.vm.DefinedProfileSpec(profileId=named[0].profileId.uniqueId)
