"""The page of a sketch file: complete, escaped, and in a real browser as it should be."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from olss import Sketch
from olss.errors import InputError
from olss.files import compress, inspect
from olss.files.page import render_page, write_page
from olss.memory.policies import POLICIES
from tests.browser import Browser, find_chromium
from tests.page_elements import Elements

PROGRAM = find_chromium()
in_browser = pytest.mark.skipif(
    PROGRAM is None, reason="no Chromium found: install the package chromium to test pages"
)
HOSTILE = "<img src=x onerror=document.title='bad'>\x1b[2J"
TITLES = [
    "How good it is", "Over time", "Rows by task", "Weights", "Estimates of everything seen",
    "The most unusual rows", "Columns and their use", "Files ingested",
]  # fmt: skip


def frame(rows=3_000, seed=0):
    rng = np.random.default_rng(seed)
    data = pd.DataFrame(
        {
            "price": rng.standard_t(3, rows) * 20 + 100,
            HOSTILE: rng.choice(["a", HOSTILE, "c"], rows),
            "seats": np.where(rng.random(rows) < 0.1, np.nan, rng.integers(1, 9, rows)),
            "note": [f"<b>{n}</b>" for n in range(rows)],
        }
    )
    data.loc[rows // 2, "price"] = 1e5
    return data.assign(late=rng.choice(["no", "yes & <i>"], rows))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    for month in range(3):
        frame(seed=month).to_parquet(folder / f"month-{month} <b>.parquet")
    return folder


def made(folder, policy, **options):
    path = folder / f"{policy}.sketch.parquet"
    compress(
        str(folder / "month-*"), into=path, size=400, policy=policy, target="late", seed=0,
        fresh=True, **options,
    )  # fmt: skip
    return path


@pytest.fixture(scope="module")
def found(folder):
    return inspect(made(folder, "weighted"), against=[folder / "month-0 <b>.parquet"])


@pytest.fixture(scope="module")
def page(found):
    return render_page(found)


def headings(page):
    return re.findall(r"<h2>([^<]*)</h2>", page)


def test_it_needs_no_network_and_escapes_everything(page):
    elements = Elements(page)
    assert not elements.of("script", "img", "iframe", "object")
    assert [e["href"] for e in elements.of("link")] == ["data:,"]
    assert not re.search(r"@import|url\(|https?:|\x1b", page)
    assert "onerror=document" in page  # told, and not done
    assert "<img" not in page
    assert "<b>.parquet" not in page
    assert "month-0 &lt;b&gt;.parquet" in page
    assert len(page.encode()) < 300_000
    assert elements.of("html")[0]["lang"] == "en"
    assert len(elements.of("h1")) == len(elements.of("main")) == 1
    assert all(e.get("scope") for e in elements.of("th"))
    assert all(e.get("aria-label") for e in elements.of("svg"))


def test_it_says_what_the_sketch_says(found, page):
    assert headings(page) == [TITLES[0], "The new files", *TITLES[1:]]
    text = re.sub(r"<[^>]+>", " ", page)
    assert found.error.promise in text
    for wanted in (0.5, 0.2, 0.1):
        assert f"{found.error.rows_for(wanted):,}" in text
    mean = dict((w, n) for w, n, _ in found.sketch.estimate("price").texts())["mean"]
    assert mean in text
    # The strange row is kept for certain, and its column is named with its value.
    assert re.search(r"<b>price</b> 100000 ", page)
    assert "no drift alarm" in text
    for line in found.files:
        assert f"{line['rows']:,}" in text


def _drawn(text, title):
    """Return how many rows the bars under a title say."""
    lines = text.partition(f"\n{title}")[2].partition("\n\n")[0].splitlines()[1:]
    return sum(int(re.search(r"(?:█|  ) ?([\d,]+)(?: \(.*\))?$", line)[1]) for line in lines)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_has_its_page_and_text(folder, policy):
    """Issue 20.14: results of some policies could not be looked at."""
    for options in ({}, {"moments": True}):
        found = inspect(made(folder, policy, **options))
        assert f"policy {policy}" in str(found)
        assert headings(render_page(found)) == TITLES
        assert (found.error is None) == (not options and POLICIES[policy].leverage_scope != "seen")
        assert _drawn(str(found), "rows by task") == 400
        if "rows by weight" in str(found):
            assert _drawn(str(found), "rows by weight") == 400


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "kind", ["array", "images", "sparse", "tensor", "table", "one row", "all kept", "alike"]
)
def test_what_sketch_save_wrote_is_shown_whatever_the_policy(tmp_path, policy, kind):
    rng = np.random.default_rng(0)
    path = tmp_path / "s.parquet"
    sketch = Sketch(30, policy, seed=0)
    if kind == "images":
        sketch.update(rng.integers(0, 255, (90, 4, 4)).astype(np.uint8), y=np.arange(90) % 3)
    elif kind == "table":
        sketch.update({"x": rng.standard_normal(90), "t": rng.choice(["a", "b"], 90)}, task="one")
    elif kind == "sparse":
        sketch.update(sp.random_array((90, 8), density=0.4, rng=rng, format="csr"))
    elif kind == "tensor":
        torch = pytest.importorskip("torch")
        sketch.update(torch.randn(90, 3), y=torch.randn(90))
    elif kind == "one row":
        sketch.update(np.ones((1, 2)))
    elif kind == "alike":
        weight = 1 + np.arange(90) * 1e-15  # as far apart as rounding puts them
        sketch.update(rng.standard_normal((90, 2)), weight=weight)
    else:
        for task in range(3):
            X = rng.standard_normal((10 if kind == "all kept" else 200, 3))
            sketch.update(X, y=X[:, 0] > 0, task=task)
    sketch.save(path)
    found = inspect(path)
    assert f"policy {policy}" in str(found)
    assert headings(render_page(found))[0] == TITLES[0]
    assert _drawn(str(found), "rows by task") == len(sketch)
    if "rows by weight" in str(found):
        assert _drawn(str(found), "rows by weight") == len(sketch)


def test_it_is_written_whole_or_not_at_all(found, tmp_path):
    write_page(found, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == render_page(found)
    with pytest.raises(InputError, match=r"must end in \.html"):
        write_page(found, tmp_path / "page.parquet")
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


def test_policies_without_weights_promise_nothing_of_them(folder):
    page = render_page(inspect(made(folder, "paper")))
    assert "stand for" not in re.sub("<style>.*</style>", "", page, flags=re.S)
    assert "does not record how many rows" in page
    assert "stand for" in render_page(inspect(made(folder, "balanced")))
    assert "needs known inclusion probabilities" in page


@in_browser
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1180, 390])
def test_in_a_browser(found, tmp_path, dark, width):
    path = tmp_path / "page.html"
    write_page(found, path)
    with Browser(PROGRAM, tmp_path / "profile") as browser:
        browser.open(path, width=width, dark=dark)
        assert browser.messages == []
        assert [url.split(":")[0] for url in browser.requests] == ["file"]
        assert browser.run("document.title") == "weighted.sketch.parquet"
        assert browser.run("document.documentElement.scrollWidth") <= width
        broken = (
            "[...document.querySelectorAll('svg')].some((s) => /NaN|Inf|undef/.test(s.outerHTML))"
        )
        assert not browser.run(broken)
        points = "document.querySelector('polygon.kept').points.length"
        assert browser.run(points) == 2 * 50 + 2
        # The chart is as wide as its section, and letters are as large there as elsewhere.
        chart = "document.querySelector('svg').getBoundingClientRect().width"
        assert browser.run(chart) > 0.8 * browser.run("document.body.clientWidth")
        assert browser.run("document.querySelectorAll('svg text').length") == 0
        # Text is told from what it stands on: contrast of at least 4.5, in either theme.
        assert browser.run(CONTRAST) >= 4.5
        told = browser.run("document.body.innerText")
        assert json.dumps(HOSTILE.replace("\x1b", "\\x1b"))[1:-1] in json.dumps(told)


CONTRAST = """(() => {
  const light = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map((v) => {
    v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
    return .2126 * r + .7152 * g + .0722 * b; };
  const behind = (e) => { for (; e; e = e.parentElement) {
    const c = getComputedStyle(e).backgroundColor;
    if (!/, 0\\)$/.test(c)) return c; } return 'rgb(255,255,255)'; };
  let least = 99;
  for (const e of document.querySelectorAll('p, td, th, h1, h2, h3, span, b, text')) {
    if (!e.textContent.trim()) continue;
    const style = getComputedStyle(e);
    const a = light(e.tagName === 'text' ? style.fill : style.color), b = light(behind(e));
    least = Math.min(least, (Math.max(a, b) + .05) / (Math.min(a, b) + .05));
  }
  return least;
})()"""


def test_the_newest_tasks_and_the_largest_classes_are_shown(tmp_path):
    """Task names sort against the stream: the newest has the name that sorts first."""
    rng = np.random.default_rng(0)
    sketch = Sketch(10_000, "reservoir", seed=0)
    for day in range(60):
        label = np.where(rng.random(70) < 0.1, rng.integers(0, 60, 70), 7 + day % 30)
        sketch.update(rng.standard_normal((70, 2)), label, task=f"day-{99 - day}")
    sketch.save(tmp_path / "s.parquet")
    found = inspect(tmp_path / "s.parquet")
    for text, lines in ((render_page(found), 30), (str(found), 20), (str(found.description), 40)):
        assert f"newest {lines} of 60" in text
        assert "day-40" in text
        assert "day-99" not in text
    assert "largest 30 of" in render_page(found)
    assert len(found.to_dict()["tasks"]) == 60


def test_the_axis_begins_with_the_first_row_held(tmp_path):
    X = np.random.default_rng(0).standard_normal((5_000, 2))
    Sketch(500, "recent").update(X).save(tmp_path / "s.parquet")
    page = render_page(inspect(tmp_path / "s.parquet"))
    assert "None of the first 4,500 is kept" in page
    assert '<div class="ticks"><span>4,500</span>' in page


def test_a_direction_that_is_missing_is_no_guarantee_and_named(tmp_path):
    X = np.random.default_rng(0).standard_normal((2_000, 4))
    X[:, 3] = 0
    X[0, 3] = 1.0
    sketch = Sketch(100, policy="reservoir", moments=True, seed=0).update(X)
    assert 0 not in sketch.index
    sketch.save(tmp_path / "some.sketch.parquet")
    found = inspect(tmp_path / "some.sketch.parquet")
    for text in (str(found), render_page(found)):
        assert "No guarantee" in text
        assert "column 3" in text
        assert "infinite" in text
    assert "<b>no guarantee</b>" in render_page(found)
    assert "<b>none</b>" not in render_page(found)
