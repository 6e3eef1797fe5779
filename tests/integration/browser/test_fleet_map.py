"""The map of a fleet in a real browser: what is shown is what the records say, also for whoever has no mouse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.map import fleet_map, plan_map
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.plan import fleet_plan
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.record import fleet_record, gpus_of

from tests.integration.browser import demo_fleet
from tests.unit.plugins.module_utils.fleets import fleet, gpu
from tests.unit.plugins.plugin_utils.views.fleet_samples import berlin, berlin_info, vcenter
from tests.unit.plugins.plugin_utils.views.results import harvester_info

Json = dict[str, Any]
Show = Callable[..., Any]
IMAGES = Path(__file__).parents[3] / "docs/images"
EVIL = "<script>alert(1)</script>"

SHOWN_GPUS = "() => [...document.querySelectorAll('.gpu')].filter(e => e.checkVisibility()).map(e => e.dataset.name)"
CARDS = """() => Object.fromEntries(
  [...document.querySelectorAll('.card')].map(e => [e.dataset.count, +e.querySelector('b').textContent]))"""
UNNAMED = """() => [...document.querySelectorAll('input, select, button')]
  .filter(e => !(e.labels?.length || e.textContent.trim())).length"""
SEGMENTS = """() => [...document.querySelectorAll('.gpu')].map(card => ({
  gpu: card.dataset.name,
  whole: card.querySelector('.bar').getBoundingClientRect().width,
  parts: [...card.querySelectorAll('.bar .seg')].map(seg => ({
    state: seg.dataset.state, profile: seg.dataset.profile, holder: seg.dataset.holder,
    width: seg.querySelector('.b').getBoundingClientRect().width,
  })),
}))"""


def names(*records: Json) -> list[str]:
    return [one["name"] for record in records for _node, one in gpus_of(record)]


def having(record: Json, wanted: Callable[[Json, Json], bool]) -> list[str]:
    return [one["name"] for node, one in gpus_of(record) if wanted(node, one)]


def test_every_vgpu_is_drawn_to_scale_with_its_state_profile_and_vm(show: Show) -> None:
    records = [berlin(), vcenter()]
    page = show(fleet_map(records))
    drawn = {one["gpu"]: one for one in page.evaluate(SEGMENTS)}
    assert list(drawn) == names(*records)
    for record in records:
        for _node, one in gpus_of(record):
            parts = [part for part in drawn[one["name"]]["parts"] if part["state"]]
            assert [(part["state"], part["profile"], part["holder"]) for part in parts] == [
                (vgpu["state"], vgpu["short"], ", ".join(holder["path"] for holder in vgpu["holders"]))
                for vgpu in one["vgpus"]
            ]
            for part, vgpu in zip(parts, one["vgpus"], strict=True):
                share = vgpu["framebuffer_mib"] / one["framebuffer_mib"]
                assert part["width"] / drawn[one["name"]]["whole"] == pytest.approx(share, abs=0.01)


def test_the_numbers_at_the_top_are_those_of_the_records(show: Show) -> None:
    records = [berlin(), vcenter()]
    page = show(fleet_map(records))
    cards = page.evaluate(CARDS)
    states = Counter(
        {state: sum(record[state] for record in records) for state in ("in_use", "claimed", "free", "drifted")}
    )
    assert cards["GPUs"] == len(names(*records))
    assert (cards["vGPUs in use"], cards["vGPUs claimed"], cards["vGPUs free"], cards["vGPUs drifted"]) == tuple(
        states.values()
    )


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        ("node", "gpu-a", lambda node, one: node["name"] == "gpu-a"),
        ("board", "A100", lambda node, one: one["board"] == "A100"),
        (
            "profile",
            "A2-8Q",
            lambda node, one: "A2-8Q" in {v["short"] for v in (*one["vgpus"], *one["available_profiles"])},
        ),
        ("state", "claimed", lambda node, one: one["claimed"] > 0),
        (
            "holder",
            "default/trainer",
            lambda node, one: any(h["path"] == "default/trainer" for v in one["vgpus"] for h in v["holders"]),
        ),
    ],
)
def test_filters_leave_what_matches(show: Show, field: str, value: str, wanted: Callable[[Json, Json], bool]) -> None:
    record = berlin()
    page = show(fleet_map([record]))
    control = page.locator(f"[name={field}]")
    control.select_option(value) if field in ("board", "profile", "state") else control.fill(value)
    expected = having(record, wanted)
    assert 0 < len(expected) < len(names(record))
    assert page.evaluate(SHOWN_GPUS) == expected
    assert page.locator("#shown").inner_text() == f"{len(expected)} of {len(names(record))} GPUs match."
    page.get_by_role("button", name="Clear").click()
    page.wait_for_function("() => !location.hash")
    assert page.evaluate(SHOWN_GPUS) == names(record)


def test_a_filter_for_a_vm_dims_the_vgpus_of_others_and_a_filter_without_a_match_says_so(show: Show) -> None:
    page = show(fleet_map([berlin()]))
    page.locator("[name=holder]").fill("renderer")
    bright = page.evaluate(
        "() => [...document.querySelectorAll('.gpu:not([hidden]) .seg:not(.dim)')].map(e => e.dataset.holder)"
    )
    assert bright == ["default/renderer"]
    page.locator("[name=holder]").fill("nobody-at-all")
    assert page.evaluate(SHOWN_GPUS) == []
    assert page.get_by_text("No GPU matches these filters.").is_visible()


def test_filters_are_in_the_address_so_that_a_view_can_be_passed_on(show: Show) -> None:
    page = show(fleet_map([berlin(), vcenter()]), fragment="#board=A40&node=esx2")
    assert page.evaluate(SHOWN_GPUS) == ["esx2-00003b000", "esx2-00003d000"]
    page.locator("[name=node]").fill("esx1")
    assert page.evaluate("() => location.hash") == "#node=esx1&board=A40"


def test_the_keyboard_reaches_everything(show: Show) -> None:
    page = show(fleet_map([fleet_record(harvester_info(fleet(gpu("n1:a", "4Q@web 4Q"))), cluster="lab")]))
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.textContent") == "Skip to the GPUs"
    page.locator(".node > summary").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.classList.contains('bar')")
    reading = page.locator(".gpu .reading")
    page.keyboard.press("ArrowRight")
    assert reading.inner_text() == "A2-4Q, 4 GiB, in use - VM default/web - n1:a-00"
    page.keyboard.press("ArrowRight")
    assert reading.inner_text() == "A2-4Q, 4 GiB, free - n1:a-01"
    page.keyboard.press("End")
    assert reading.inner_text().startswith("8 GiB in no vGPU.")
    page.keyboard.press("Escape")
    assert reading.inner_text() == ""
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.textContent") == "2 vGPUs as a table"
    page.keyboard.press("Enter")
    assert page.get_by_role("row", name="A2-4Q in use default/web").is_visible()


def test_a_screen_reader_gets_each_bar_as_a_sentence_and_each_gpu_as_a_table(show: Show) -> None:
    page = show(fleet_map([berlin()]))
    assert page.get_by_role("img", name="A2 gpu-a-000041000: 1 in use, 1 claimed.").count() == 1
    assert page.evaluate(UNNAMED) == 0


def test_names_of_a_cluster_stay_text(show: Show) -> None:
    """A dialog, an error or a second script would fail the test by itself."""
    record = fleet_record(harvester_info(fleet(gpu("n1:a", f"4Q@{EVIL} 4Q"))), cluster=f"{EVIL}'\"&")
    record["nodes"][0]["name"] = f"'\"><img src=x onerror=alert(2)>{EVIL}"
    page = show(fleet_map([record], title=EVIL))
    assert page.locator("h1").inner_text() == EVIL
    assert page.locator("h3").inner_text() == record["nodes"][0]["name"]
    assert page.locator(".bar .seg").first.get_attribute("data-holder") == f"default/{EVIL}"
    assert page.locator("img, script").count() == 1
    page.locator("[name=holder]").fill(EVIL)
    assert page.evaluate(SHOWN_GPUS) == ["n1:a"]


@pytest.fixture(scope="module")
def large() -> str:
    """The page of a thousand GPUs."""
    gpus = (
        gpu(f"node-{number // 8:03}:{number % 8}", f"4Q@vm-{number} 4Q 4Q@batch-{number}- 4Q") for number in range(1000)
    )
    return fleet_map([fleet_record(harvester_info(fleet(*gpus)), cluster="large")])


def test_a_thousand_gpus_are_folded_and_a_filter_finds_one_of_them(show: Show, large: str) -> None:
    page = show(large)
    assert page.locator(".node[open]").count() == 0
    assert page.evaluate("() => document.querySelectorAll('.gpu').length") == 1000
    # What is folded is not laid out, which is what keeps the page quick.
    assert page.evaluate("() => [...document.querySelectorAll('.gpu')].filter(e => e.checkVisibility()).length") == 0
    page.locator("[name=holder]").fill("vm-777")
    assert page.evaluate(SHOWN_GPUS) == ["node-097:1"]
    assert page.locator("#shown").inner_text() == "1 of 1000 GPUs match."
    assert page.locator(".node:not([hidden])").count() == 1


def test_a_folded_node_shows_its_gpus_in_miniature_until_it_is_unfolded(show: Show, large: str) -> None:
    page = show(large)
    first = page.locator(".node").first
    assert first.locator(".mini").count() == 8
    assert first.locator(".strip").is_visible()
    first.locator("summary").first.click()
    assert not first.locator(".strip").is_visible()
    assert first.locator(".bar").first.is_visible()


def test_a_thousand_gpus_can_be_unfolded_and_only_those_on_the_screen_are_laid_out(show: Show, large: str) -> None:
    page = show(large)
    page.get_by_role("button", name="Unfold all").click()
    assert page.locator(".node[open]").count() == 125
    drawn = page.evaluate(
        "() => [...document.querySelectorAll('.gpu')]"
        ".filter(e => e.checkVisibility({ contentVisibilityAuto: true })).length"
    )
    assert 0 < drawn < 100
    page.locator("[name=node]").fill("node-124")
    assert page.evaluate(SHOWN_GPUS) == [f"node-124:{number}" for number in range(8)]
    page.get_by_role("button", name="Fold all", exact=True).click()
    assert page.evaluate(SHOWN_GPUS) == []


LONG = "a-name-without-end-" * 8


@pytest.mark.parametrize("width", [360, 768, 1440])
def test_nothing_sticks_out_on_a_phone_or_on_a_desk(show: Show, width: int) -> None:
    record = berlin()
    record["cluster"] = record["nodes"][0]["name"] = LONG
    record["nodes"][0]["unavailable_reason"] = LONG
    for vgpu in record["nodes"][0]["gpus"][0]["vgpus"]:
        vgpu.update(short=LONG, findings=[{"kind": "x", "device": "d", "text": LONG, "restart": "vm"}])
        for holder in vgpu["holders"]:
            holder["path"] = f"{LONG}/{LONG}"
    page = show(fleet_map([record, vcenter()], title=LONG), width=width)
    # What is off the screen is laid out as well.
    page.add_style_tag(content=".node, .gpu { content-visibility: visible !important }")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    # A text that does not fit into its segment ends with an ellipsis.
    cut = page.locator(".bar .in_use .words span").first
    assert cut.evaluate("e => e.scrollWidth > e.clientWidth && getComputedStyle(e).textOverflow") == "ellipsis"


def test_a_thousand_gpus_on_paper_are_all_unfolded_without_filters(show: Show, large: str) -> None:
    page = show(large)
    page.emulate_media(media="print")
    assert not page.locator("#filters").is_visible()
    page.evaluate("() => window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    assert page.evaluate("() => [...document.querySelectorAll('.gpu .bar')].filter(e => e.clientHeight).length") == 1000
    page.evaluate("() => window.dispatchEvent(new Event('afterprint'))")
    assert page.locator(".node[open]").count() == 0


def test_a_printed_fleet_is_a_document_of_pages(show: Show) -> None:
    """Chromium prints with the page's own handlers, as a person's browser does."""
    printed = show(fleet_map([berlin(), vcenter()])).pdf(format="A4")
    assert printed.startswith(b"%PDF")
    assert printed.count(b"/Type /Page\n") in range(2, 8)


CONTRAST = """() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgb = (text) => {
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const linear = (value) => value <= .03928 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4;
  const light = (text) => rgb(text).reduce((sum, value, i) => sum + linear(value / 255) * [.2126, .7152, .0722][i], 0);
  const ratio = (one, other) => {
    const [less, more] = [light(one), light(other)].sort((a, b) => a - b);
    return (more + .05) / (less + .05);
  };
  const fill = (seg) => getComputedStyle(seg.querySelector('.b')).fill;
  const segments = [...document.querySelectorAll('.bar .seg.in_use')];
  const body = getComputedStyle(document.body);
  const ink = (seg) => getComputedStyle(seg.querySelector('.words b')).color;
  return [ratio(body.color, body.backgroundColor), ...segments.map(seg => ratio(ink(seg), fill(seg)))];
}"""


@pytest.mark.parametrize("dark", [False, True])
def test_words_can_be_read_in_light_and_dark(show: Show, dark: bool) -> None:
    contents = [f"{size}@vm" for size in ("1Q", "2Q", "4Q", "8Q", "16Q", "1A", "2A", "4A", "8A", "16A", "1B", "2B")]
    record = fleet_record(
        harvester_info(fleet(*(gpu(f"n{n}:a", words) for n, words in enumerate(contents)))), cluster="lab"
    )
    page = show(fleet_map([record]), dark=dark)
    ratios = page.evaluate(CONTRAST)
    assert len(ratios) == 13
    assert min(ratios) >= 4.5


def planned() -> Json:
    def step(
        action: str, gpu: str, slot: str | None = None, before: str | None = None, after: str | None = None
    ) -> Json:
        return {"action": action, "node": gpu[:5], "gpu": gpu, "slot": slot, "before": before, "after": after}

    steps = [
        step("enable", "gpu-b-000041000", "gpu-b-000041004", after="NVIDIA A2-8Q"),
        step("enable", "gpu-b-000041000", "gpu-b-000041005", after="NVIDIA A2-8Q"),
    ]
    work = {
        "gpus": ["gpu-a-000008000"],
        "before": [],
        "vms": [
            {
                "name": "trainer",
                "namespace": "default",
                "before": [{"profile": "NVIDIA A2-4Q", "count": 2}],
                "after": [{"profile": "NVIDIA A2-8Q", "count": 1}],
            },
            {
                "name": "renderer",
                "namespace": "default",
                "before": [{"profile": "NVIDIA A2-4Q", "count": 1}],
                "after": [{"profile": "NVIDIA A2-8Q", "count": 1}],
            },
        ],
    }
    results = [{"plan": {"steps": steps}}, {"plan": {"work": [work], "lines": []}}]
    return fleet_plan(results, berlin_info(), layout=[{"profile": "A2-8Q", "count": 2}], cluster="berlin")


def test_a_plan_shows_what_changes_twice_and_the_rest_when_asked(show: Show) -> None:
    page = show(plan_map([planned()]))
    assert page.evaluate(SHOWN_GPUS) == ["gpu-a-000008000", "gpu-b-000041000"]
    assert page.locator(".gpu:not([hidden]) .bar").count() == 4
    assert page.locator(".plan .steps li").count() == len(planned()["steps"])
    assert page.locator(".plan .stops li").all_inner_texts() == planned()["stops"]
    page.get_by_label("only what changes").uncheck()
    assert page.evaluate(SHOWN_GPUS) == names(berlin())


@pytest.mark.parametrize("dark", [False, True])
def test_the_pictures_of_the_docs_show_the_fleet_of_the_demo(show: Show, tmp_path: Path, dark: bool) -> None:
    clusters = demo_fleet.clusters()
    page = show(fleet_map(clusters, generated=demo_fleet.WHEN), width=1440, height=980, dark=dark)
    assert page.evaluate(SHOWN_GPUS) == names(*clusters)
    keep(page, "fleet-map-dark" if dark else "fleet-map", tmp_path)


def test_the_picture_of_a_plan_shows_the_dry_run_of_the_demo(show: Show, tmp_path: Path) -> None:
    plans = demo_fleet.plans()
    page = show(plan_map(plans, generated=demo_fleet.WHEN), width=1280, height=860)
    assert page.locator(".plan .steps li").all_inner_texts() == plans[0]["steps"]
    keep(page, "fleet-plan", tmp_path)


def test_a_picture_of_every_state_is_made_for_the_docs(show: Show, tmp_path: Path) -> None:
    """The demo has no drift, no MIG and no findings, so this one is of clusters that have."""
    page = show(fleet_map([berlin()], generated=demo_fleet.WHEN), width=1280, height=980)
    keep(page, "fleet-states", tmp_path)


def keep(page: Any, name: str, folder: Path) -> None:
    """Save a picture where the docs have it, unless there is one: fonts differ between machines.

    To renew the pictures, remove those in docs/images and run the test.
    """
    made = folder / f"{name}.png"
    page.screenshot(path=str(made))
    assert made.stat().st_size < 400_000
    kept = IMAGES / made.name
    if not kept.exists():
        IMAGES.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(made.read_bytes())
