"""The page that fleet records are drawn as."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.vgpu.fleet.plugins.filter.fleet_map import fleet_map as map_filter
from ansible_collections.vgpu.fleet.plugins.filter.fleet_record import fleet_record as record_filter
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.map import fleet_map
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.markup import TIMES
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.page import NotOurPage, map_page
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.record import fleet_record, gpus_of
from hypothesis import given, strategies as st

from tests.unit.plugins.module_utils.fleets import fleet, gpu, off
from tests.unit.plugins.plugin_utils.views.fleet_samples import berlin, mig, vcenter
from tests.unit.plugins.plugin_utils.views.results import finding, harvester_info

Json = dict[str, Any]


def record(*gpus: Any, findings: tuple[Json, ...] = (), cluster: str = "lab", **more: Any) -> Json:
    return fleet_record(harvester_info(fleet(*gpus, **more), findings), cluster=cluster)


def parsed(page: str) -> ET.Element:
    """The page as XML, which is stricter than any browser. The page's own style and script are left out."""
    assert page.startswith("<!DOCTYPE html>\n")
    plain = re.sub(r"<(style|script)(?: [^>]*)?>.*?</\1>", "", page.removeprefix("<!DOCTYPE html>\n"), flags=re.DOTALL)
    return ET.fromstring(plain)


def by_class(root: ET.Element, name: str) -> list[ET.Element]:
    return [one for one in root.iter() if name in one.get("class", "").split()]


def text_of(element: ET.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def widths(bar: ET.Element) -> list[float]:
    boxes = [next(one for one in seg if one.get("class") == "b") for seg in by_class(bar, "seg")]
    return [float(box.get("width", "").rstrip("%")) for box in boxes]


def test_a_bar_is_cut_to_scale_and_the_rest_is_what_is_left() -> None:
    page = parsed(fleet_map([record(gpu("n1:a", "4Q@web 4Q"))]))
    (bar,) = by_class(page, "bar")
    assert widths(bar) == [25, 25, 50]
    assert [seg.get("class") for seg in by_class(bar, "seg")] == ["seg in_use p0", "seg free p0", "seg room"]
    assert f"8 GiB in no vGPU. Fits: 2 {TIMES} A2-4A/C/Q" in text_of(by_class(bar, "room")[0])


def test_a_segment_names_the_profile_the_state_and_the_vm() -> None:
    page = parsed(fleet_map([record(gpu("n1:a", "4Q@web 4Q@batch-"))]))
    titles = [text_of(next(iter(seg))) for seg in by_class(by_class(page, "bar")[0], "seg")[:2]]
    assert titles == [
        "A2-4Q, 4 GiB, in use - VM default/web - n1:a-00",
        "A2-4Q, 4 GiB, claimed - VM default/batch (stopped) - n1:a-01",
    ]


def test_mig_instances_that_no_vgpu_has_are_drawn_in_their_size() -> None:
    cuts = {"GRID A100-3-20C": 1, "GRID A100-2-10C": 1, "GRID A100-1-5C": 1}
    page = parsed(fleet_map([record(mig("n1:a", "3-20C@web", cuts))]))
    (bar,) = by_class(page, "bar")
    assert widths(bar) == [50, 25, 12.5, 12.5]
    assert len(by_class(bar, "empty")) == 2
    assert len(by_class(bar, "cuts")[0]) == 7


def test_each_gpu_has_a_table_with_the_same_vgpus_for_whoever_does_not_see_the_bar() -> None:
    shown = berlin()
    page = parsed(fleet_map([shown]))
    cards = {card.get("data-name"): card for card in by_class(page, "gpu")}
    for _node, one in gpus_of(shown):
        rows = [row for row in cards[one["name"]].iter("tr") if row.get("data-name") is not None]
        assert [row.get("data-name") for row in rows] == [vgpu["name"] for vgpu in one["vgpus"]]
        for row, vgpu in zip(rows, one["vgpus"], strict=True):
            for holder in vgpu["holders"]:
                assert holder["path"] in text_of(row)


def test_totals_are_those_of_the_record() -> None:
    shown = berlin()
    (table,) = by_class(parsed(fleet_map([shown])), "totals")
    rows = {row.get("data-profile"): row for row in table.iter("tr") if row.get("data-profile")}
    for one in shown["profiles"]:
        if one["short"] in rows:
            numbers = [int(text_of(cell)) for cell in rows[one["short"]].iter("td")]
            assert numbers == [one[key] for key in ("total", "in_use", "claimed", "free", "available")]
    assert {one["short"] for one in shown["profiles"] if one["total"]} <= set(rows)


def test_findings_stand_where_they_belong_and_say_what_has_to_be_restarted() -> None:
    shown = record(
        gpu("n1:a", "4Q@web 4Q"),
        findings=(
            finding("restart_required", "default/web", "VM default/web is out of date."),
            finding("graphics_pending", "n1", "Graphics of n1 are configured and not in force."),
            finding("invalid_annotation", "default/x", "The note is broken."),
        ),
    )
    page = parsed(fleet_map([shown]))
    assert [text_of(one) for one in by_class(page, "notes")] == [
        "The note is broken.",
        "Restart of the host pending. Graphics of n1 are configured and not in force.",
        "Restart of the VM pending. VM default/web is out of date.",
    ]
    marked = [seg for seg in by_class(page, "seg") if by_class(seg, "tag")]
    assert [seg.get("data-holder") for seg in marked] == ["default/web"]


def test_several_clusters_share_a_page_and_the_same_profile_has_the_same_colour() -> None:
    page = parsed(
        fleet_map([record(gpu("n1:a", "4Q@web"), cluster="one"), record(gpu("n9:a", "8Q 4Q"), cluster="two")])
    )
    assert [text_of(one) for one in page.iter("h2")] == ["one", "two"]
    colours = {(seg.get("data-profile"), seg.get("class", "").split()[-1]) for seg in by_class(page, "seg")}
    assert len({pair for pair in colours if pair[0] == "A2-4Q"}) == 1
    assert len([pair for pair in colours if pair[0]]) == 2


def test_two_clusters_of_one_name_are_told_apart() -> None:
    page = parsed(fleet_map([{**berlin(), "cluster": "localhost"}, {**vcenter(), "cluster": "localhost"}]))
    assert [text_of(one) for one in page.iter("h2")] == ["localhost (Harvester)", "localhost (vSphere)"]


def test_a_gpu_without_vgpus_says_why() -> None:
    page = parsed(fleet_map([record(off("n1:a"), gpu("n2:a", "", blocked="claimed for passthrough"))]))
    said = [text_of(one) for one in by_class(page, "fits")]
    assert "SR-IOV is disabled, so the GPU has no vGPUs." in said
    assert "The GPU is unavailable: claimed for passthrough." in said


def test_what_fits_is_below_the_bar_where_the_bar_does_not_say_all_of_it() -> None:
    page = parsed(fleet_map([record(gpu("n1:a", "4Q@web"), gpu("n2:a", ""), gpu("n3:a", "4Q 4Q 4Q 2Q"))]))
    said = {card.get("data-name"): [text_of(one) for one in by_class(card, "fits")] for card in by_class(page, "gpu")}
    assert said["n1:a"] == []
    assert said["n2:a"][0].startswith(f"Fits, one of: 1 {TIMES} A2-16A/C/Q, 2 {TIMES} A2-8A/C/Q, 4 {TIMES}")
    assert said["n3:a"] == []


def test_a_folded_node_shows_its_gpus_in_miniature() -> None:
    page = parsed(fleet_map([record(gpu("n1:a", "4Q@web 4Q"), gpu("n1:b", "8Q@batch-"), off("n1:c"))]))
    drawn = [[(part.get("class"), part.get("width")) for part in one] for one in by_class(page, "mini")]
    assert drawn == [[("in_use p0", "25%"), ("free p0", "25%")], [("claimed p1", "50%")], []]
    assert [one.get("class") for one in by_class(page, "mini")] == ["mini", "mini", "mini off"]


def test_an_empty_fleet_is_a_page_too() -> None:
    assert "This cluster has no nodes with GPUs." in text_of(parsed(fleet_map([record()])))


NASTY = st.one_of(
    st.sampled_from(
        [
            "<script>alert(1)</script>",
            "</script>",
            "'\"><img src=x onerror=alert(1)>",
            "&lt;",
            "]]>",
            "<!--",
            "\x00\ud800",
        ]
    ),
    st.text(min_size=1),
)


@given(NASTY, NASTY, NASTY, NASTY)
def test_names_of_a_cluster_stay_text_whatever_they_are(vm: str, node: str, said: str, cluster: str) -> None:
    shown = record(gpu("n1:a", "4Q@web"), findings=(finding("not_allocatable", "n1:a-00", said),), cluster=cluster)
    shown["nodes"][0]["name"] = node
    one = shown["nodes"][0]["gpus"][0]
    one.update(board=vm, address=node, name=said, unavailable_reason=said)
    one["vgpus"][0]["holders"][0]["path"] = vm
    one["vgpus"][0].update(name=vm, short=said)
    shown["requests"] = [
        {
            "holder": {"kind": "VM", "path": vm, "running": False},
            "profile": said,
            "short": said,
            "count": 1,
            "node": node,
            "state": "claimed",
            "restart_pending": False,
        }
    ]
    page = fleet_map([shown], title=cluster, generated=said)
    page.encode()
    root = parsed(page)
    plain = parsed(fleet_map([record(gpu("n1:a", "4Q@web"))]))
    allowed = {(tag.tag, name) for tag in plain.iter() for name in tag.attrib}
    allowed |= {
        (tag, name) for tag in ("ul", "li", "p", "circle", "text") for name in ("class", "aria-label", "cx", "cy")
    }
    allowed |= {("svg", "x"), ("svg", "height")}
    allowed |= {("circle", name) for name in ("r", "transform")} | {("text", name) for name in ("x", "y", "dx")}
    # Whatever a name is, it makes no element and no attribute.
    assert {(tag.tag, name) for tag in root.iter() for name in tag.attrib} <= allowed | {("table", "class")} | {
        ("tr", "data-profile"),
        ("option", "value"),
        ("span", "class"),
    }
    assert [one.tag for one in root.iter() if one.tag in ("script", "img", "iframe")] == []
    assert page.count("<script") == 1


def test_the_page_loads_nothing_and_runs_its_own_script_only() -> None:
    page = fleet_map([berlin(), vcenter()])
    assert not re.search(r"""(?:src|href)=["'](?!#|data:,)""", page)
    assert "url(" not in page.replace("url(#", "")
    assert re.search(
        r"""default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-[A-Za-z0-9+/]{43}='""",
        page,
    )


def test_a_large_fleet_is_folded() -> None:
    few, many = ([gpu(f"n{number // 8}:{number}", "4Q") for number in range(count)] for count in (8, 80))
    opened = [[one.get("open") for one in by_class(parsed(fleet_map([record(*gpus)])), "node")] for gpus in (few, many)]
    assert opened == [["open"], [None] * 10]


def test_clusters_that_name_the_same_file_share_it_and_each_is_replaced_by_its_next_record() -> None:
    first = map_page({**record(gpu("n1:a", "4Q")), "cluster": "one"}, 0)
    both = map_page(vcenter(), 60, first)
    assert [text_of(one) for one in parsed(both).iter("h2")] == ["one", "vcenter-1"]
    again = parsed(map_page({**record(gpu("n1:a", "8Q")), "cluster": "one"}, 120, both))
    assert [text_of(one) for one in again.iter("h2")] == ["one", "vcenter-1"]
    profiles = {seg.get("data-profile") for seg in by_class(again, "seg")}
    assert "A2-8Q" in profiles
    assert "A2-4Q" not in profiles
    assert "as of 1970-01-01 00:02:00 UTC" in text_of(again)


@pytest.mark.parametrize(
    "foreign",
    ["notes of mine", "<html></html>", '<script type="application/octet-stream" id="fleet-data">AAAA</script>'],
)
def test_a_file_of_somebody_else_is_refused(foreign: str) -> None:
    with pytest.raises(NotOurPage, match=r"vgpu\.fleet did not write"):
        map_page(record(gpu("n1:a", "4Q")), 0, foreign)


def test_the_filters_say_in_a_sentence_what_they_want() -> None:
    assert "<h1>GPU fleet</h1>" in map_filter(record())
    for wrong in ("text", [1], {"nodes": []}, 7):
        with pytest.raises(AnsibleFilterError, match="fleet_map draws"):
            map_filter(wrong)
    with pytest.raises(AnsibleFilterError, match="it has no nodes"):
        record_filter({})
