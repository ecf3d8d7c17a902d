"""The page of a fusion: what it says, what a file may do to it, and what a browser makes of it."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import browser, check_answers, check_opens
from typer.testing import CliRunner

import pfnm
import pfnm.cli  # with all its commands
from pfnm.cli.console import app
from pfnm.errors import PFNMError
from pfnm.networks.perceptron import mlp
from pfnm.pages.account import account
from pfnm.pages.classes import classes_known
from pfnm.pages.fusion import fusion_page
from pfnm.pages.page import Table
from pfnm.pages.units import counted_steps, in_words, membership, shared_chart, unit_chart
from pfnm.report.of import report_of

LARGEST = 5_000_000  # bytes
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>'\"&"


def networks(count: int, widths: tuple[int, ...] = (12, 9), seed: int = 0) -> list[pfnm.Network]:
    """Sites whose units come from one stock, so that many are shared."""
    rng = np.random.default_rng(seed)
    sizes = (16, *widths, 3)
    stock = [rng.normal(size=(2 * a, 2 * b)) for a, b in itertools.pairwise(sizes)]
    found = []
    for site in range(count):
        weights = [
            own[:a, :b] + 0.1 * rng.normal(size=(a, b))
            for own, a, b in zip(stock, sizes, sizes[1:], strict=False)
        ]
        found.append(mlp(weights, name=f"site {site}"))
    return found


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def fusion() -> pfnm.Fusion:
    counts = [[5, 10, 0], [0, 20, 7], [3, 1, 30]]
    return pfnm.fuse(networks(3), class_counts=counts, labels=[["a", "b", "c"]] * 3)


def data_of(html: str) -> list[dict[str, Any]]:
    return [
        json.loads(found)
        for found in re.findall(r"<script type='application/json'>(.*?)</script>", html)
    ]


def test_units_of_the_most_sites_stand_first() -> None:
    assignments = [np.array([2, 0]), np.array([0, 1]), np.array([0])]
    np.testing.assert_array_equal(membership(assignments), [[1, -1, 0], [0, 1, -1], [0, -1, -1]])
    chart = unit_chart("hidden", assignments, ["a", "b", "c"])
    assert "1 come from two sites or more, 1 from all" in chart.says
    # site, column, global unit, its unit, sites that share it; site a's own unit before b's
    assert sorted(map(tuple, chart.rows)) == [
        ("a", 0, 0, 1, 3), ("a", 1, 2, 0, 1), ("b", 0, 0, 0, 3), ("b", 2, 1, 1, 1),
        ("c", 0, 0, 0, 3),
    ]  # fmt: skip


def test_what_many_sites_share_is_told_in_words() -> None:
    both = unit_chart("hidden", [np.array([0, 1]), np.array([1, 2])], ["a", "b"])
    assert "2 sites, 3 global units: 1 come from both." in both.says
    most = 1000
    chart = shared_chart({"hidden": [1] * most}, {"hidden": "red"})
    assert [row[0] for row in chart.rows][-2:] == ["257 to 512", "513 to 1000"]
    assert chart.spec["encoding"]["x"]["axis"] == {"labelAngle": -40, "labelOverlap": False}


def test_a_table_with_long_text_can_stack() -> None:
    long = "so much that it cannot stand beside two other columns"
    html = Table(("claim", "holds", "measured"), [["a", "yes", long]]).html("t")
    assert "<div class='scroll whole stacks'" in html
    assert f"data-head='measured'>{long}</td>" in html
    assert "stacks" not in Table(("option", "value"), [["a", long]]).html("t")


def test_the_few_classes_that_a_site_does_not_know_are_named() -> None:
    known = np.array([[1, 1, 1], [1, 0, 1], [0, 1, 0]], dtype=bool)
    assert classes_known(known, ["a", "b", "c"]) == ["all", "all but b", "b"]
    assert classes_known(np.ones((2, 3), dtype=bool), ["a", "b", "c"]) == []


def test_colours_stand_for_all_numbers_of_sites() -> None:
    for most in (1, 2, 7, 8, 10, 100, 1000):
        edges = counted_steps(most)
        words = in_words(edges, most)
        assert len(words) == len(edges) + 1 <= 7
        assert words[0].startswith("1 ")
        assert words[-1].endswith(("sites", "site"))


def test_a_page_is_one_file_and_says_what_was_found(fusion: pfnm.Fusion, tmp_path: Path) -> None:
    page = fusion.report(tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text()
    assert html == page.html
    assert len(html.encode()) < LARGEST
    assert not re.search(r"(src|href)=['\"](https?:)?//", html)
    assert "3 networks became one" in html
    titles = [own["spec"]["description"].split(".")[0] for own in data_of(html)]
    assert titles[:2] == ["Layer hidden1", "Layer hidden2"]
    assert {"Parameters", "Widths", "How sure the matches are", "Who holds which classes"} <= {
        *titles
    }
    assert page._repr_html_().startswith("<iframe")
    with pytest.raises(PFNMError, match="exists already"):
        fusion.report(tmp_path / "page.html")
    with pytest.raises(PFNMError, match=r"\.html"):
        fusion.report(tmp_path / "page.pdf")


def test_every_unit_of_every_site_is_in_the_picture(fusion: pfnm.Fusion) -> None:
    for own, group in zip(data_of(fusion.report().html), fusion.widths, strict=False):
        assert len(own["rows"]) == sum(found.size for found in fusion.assignments[group])


def test_a_saved_file_shows_what_its_record_has(fusion: pfnm.Fusion, tmp_path: Path) -> None:
    path = tmp_path / "fused.safetensors"
    fusion.save(path)
    html = report_of(path).html
    assert "does not hold which site gave which unit" in html
    assert "Candidates" in html
    fusion_shared = fusion.record()["shared"]
    assert [sum(own) for own in fusion_shared.values()] == list(fusion.widths.values())
    many = replace(fusion.network, metadata={"kind": "fusion", "widths": fusion.widths})
    pfnm.save(many, tmp_path / "many.npz")  # as one of thousands of sites is
    assert report_of(tmp_path / "many.npz").title == "Many became one"
    paths = [tmp_path / f"{own.name}.npz" for own in networks(3, (12,))]
    for own, place in zip(networks(3, (12,)), paths, strict=True):
        pfnm.save(own, place)
    pfnm.fuse_many(paths).save(tmp_path / "three.npz")
    page = report_of(tmp_path / "three.npz")
    assert page.title == "3 networks became one"
    assert [own.name for own in page.sections][:1] == ["Units"]
    assert "1 thing that nobody told was assumed" in page.html  # like shares of the classes
    pfnm.save(networks(1)[0], tmp_path / "plain.npz")
    with pytest.raises(PFNMError, match="no record of a fusion"):
        report_of(tmp_path / "plain.npz")


@pytest.mark.parametrize(
    "damage",
    [
        {"shared": {"hidden1": [HOSTILE, 3]}, "trace": 3, "candidates": [{"sure_agreement": "x"}]},
        {"options": {"class_counts": [[1], [2, 3]], HOSTILE: [HOSTILE]}, "versions": []},
        {"assumed": [HOSTILE, {"what": HOSTILE}], "warnings": [HOSTILE, None], "polish": 1},
        {"sites": [{"name": HOSTILE, "widths": {HOSTILE: 2}, "sha256": 5}]},
        {"widths": {HOSTILE: 3}, "objective": "nan", "agreement": [1]},
    ],
    ids=lambda damage: next(iter(damage)),
)
def test_whatever_a_record_holds_is_escaped(fusion: pfnm.Fusion, damage: dict[str, Any]) -> None:
    record = {**json.loads(json.dumps(fusion.record())), **damage}
    html = fusion_page(account(record, "file"), fusion.network, 5, origin=HOSTILE).html
    shown = html.split("<body>")[1].split("</main>")[0]
    assert "<img" not in shown.replace("<img src='data:", "")
    assert "<script>" not in shown


def test_a_thousand_sites_are_drawn_together(tmp_path: Path) -> None:
    fusion = thousand()
    page = fusion.report(tmp_path / "many.html")
    assert len(page.html.encode()) < LARGEST
    assert len(fusion.widths) == 3


def thousand() -> pfnm.Fusion:
    """1000 sites of three layers: the assignments are made up, all else is real."""
    fusion = pfnm.fuse(networks(2, (20, 20, 20)), method="topdown")
    rng = np.random.default_rng(0)
    sites = replace(
        fusion.sites,
        networks=[
            replace(fusion.sites.networks[0], name=f"hospital {number}") for number in range(1000)
        ],
        weights=np.ones(1000),
        known=np.ones((1000, 3), dtype=bool),
        hashes=(),
    )
    counts = rng.integers(0, 50, size=(1000, 3)).tolist()
    chances = np.geomspace(1, 1e-3, 600)
    assignments = {
        group: tuple(
            rng.choice(600, 20, replace=False, p=chances / chances.sum()) for _ in range(1000)
        )
        for group in fusion.widths
    }
    popularity = {
        group: np.bincount(np.concatenate(own), minlength=600) for group, own in assignments.items()
    }
    options = {**fusion.options, "class_counts": counts}
    return replace(
        fusion, sites=sites, assignments=assignments, popularity=popularity, options=options
    )


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 390)])
def test_a_browser_shows_a_fusion(
    chromium: Any, fusion: pfnm.Fusion, tmp_path: Path, scheme: str, width: int
) -> None:
    fusion.report(tmp_path / "page.html")
    check_opens(chromium, tmp_path / "page.html", scheme, width)


def test_the_page_answers(chromium: Any, fusion: pfnm.Fusion, tmp_path: Path) -> None:
    fusion.report(tmp_path / "page.html")
    check_answers(chromium, tmp_path / "page.html")


def test_the_demos_page_opens_and_answers(
    chromium: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert not CliRunner().invoke(app, ["demo"]).exit_code
    page = tmp_path / "pfnm-demo" / "report.html"
    check_opens(chromium, page, "light", 390)
    check_opens(chromium, page, "dark", 1200)
    check_answers(chromium, page)


def test_a_browser_shows_a_thousand_sites(chromium: Any, tmp_path: Path) -> None:
    thousand().report(tmp_path / "many.html")
    check_opens(chromium, tmp_path / "many.html", "light", 1200)


def test_hostile_names_do_nothing_in_a_browser(chromium: Any, tmp_path: Path) -> None:
    sites = [replace(own, name=f"{HOSTILE}{place}") for place, own in enumerate(networks(3))]
    pfnm.fuse(sites).report(tmp_path / "page.html")
    check_opens(chromium, tmp_path / "page.html", "dark", 1200)


def test_sites_that_know_different_classes_tell_which(tmp_path: Path) -> None:
    labels = [["a", "b", "c"], ["b", "c", "<i>"], ["a", "b", "c"]]
    html = pfnm.fuse(networks(3), labels=labels).report().html
    assert "classes it knows" in html
    assert "<td class='text'>all but &lt;i&gt;</td>" in html
