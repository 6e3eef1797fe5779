"""A fixed sample of `make resilience`: faults, kills and two at once on a lab with a running VM.

Each cell of the sample is one that the modules once did not survive, or explained wrongly.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.labs import Lab
from tests.resilience import cells, faults, jobs, meetings
from tests.resilience.stage import Stage

SAMPLE = (
    ("vf-without-types", "sriov", cells.BEFORE, cells.NAMED),
    ("api-answer-lost-storm", "sriov", cells.BEFORE, cells.OK),
    ("kubelet-restart-all", "vm", cells.BEFORE, cells.NAMED),
    ("process-down-all", "vm", cells.BEFORE, cells.NAMED),
)
LAST = -1
KILLS = (("sriov", LAST), ("vm", LAST))
MEETING = "a VM, and a user who edits it"


@pytest.fixture
def stage(vm_lab: Lab) -> Iterator[Stage]:
    found = Stage(vm_lab)
    yield found
    # Faults and kills leave traces that no test should have to know of.
    vm_lab.control.interfered = True


def test_a_sample_of_faults_kills_and_meetings_ends_as_promised(stage: Stage) -> None:
    plain = {name: cells.measure(stage, jobs.BY_NAME[name]) for name in ("sriov", "vm")}
    for fault, job, moment, end in SAMPLE:
        record = cells.run_cell(stage, faults.BY_NAME[fault], jobs.BY_NAME[job], moment, plain[job])
        assert record.good, record
        assert record.first == end, record
    for job, after in KILLS:
        which = range(1, plain[job].requests + 1)[after]
        kill = cells.run_kill(stage, jobs.BY_NAME[job], which, plain[job])
        assert kill.good, kill
    case = next(case for case in meetings.CASES if case.name == MEETING)
    meeting = meetings.meet(stage, case, plain["vm"].written)
    assert meeting.good, meeting
