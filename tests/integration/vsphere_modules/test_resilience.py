"""A fixed sample of `make resilience` on vSphere: faults, kills and two at once."""

from __future__ import annotations

import pytest

from tests.resilience import cells, meetings, vsphere

SAMPLE = (
    ("datastore-full", "vsphere-create", cells.BEFORE, cells.NAMED),
    ("change-conflict", "vsphere-attach", cells.BEFORE, cells.OK),
    ("answer-lost", "vsphere-attach", cells.BEFORE, cells.NAMED),
)


@pytest.mark.parametrize(("fault", "job", "moment", "end"), SAMPLE, ids=str)
def test_a_fault_ends_as_promised(fault: str, job: str, moment: str, end: str) -> None:
    plain = vsphere.measure(vsphere.BY_NAME[job])
    record = vsphere.run_cell(vsphere.FAULTS_BY_NAME[fault], vsphere.BY_NAME[job], moment, plain)
    assert record.good, record
    assert record.first == end, record


def test_a_task_that_was_killed_after_the_clone_is_finished_by_the_next() -> None:
    job = vsphere.BY_NAME["vsphere-create"]
    plain = vsphere.measure(job)
    kill = vsphere.run_kill(job, plain.calls.index("CloneVM_Task") + 1, plain)
    assert kill.good, kill


def test_an_edit_between_read_and_write_is_kept() -> None:
    case = meetings.VSPHERE_CASES[0]
    meeting = meetings.meet_on_vsphere(case, vsphere.measure(case.job))
    assert meeting.good, meeting
