"""The page in a real browser; what needs none is checked without."""

import re

import pytest

from olss.lab.report import write_report
from olss.lab.report.figures import PLOTS
from olss.lab.report.page import _drop_heavy
from tests.browser import Browser, find_chromium
from tests.lab.report.made import METHODS, made, saved
from tests.page_elements import Elements

PROGRAM = find_chromium()
in_browser = pytest.mark.skipif(
    PROGRAM is None, reason="no Chromium found: install the package chromium to test pages"
)


# Whether a chart has a number that is none.
BROKEN = "[...document.querySelectorAll('svg')].some((s) => /NaN|Infinity|undef/.test(s.outerHTML))"


@pytest.fixture(scope="module")
def page(report):
    return (report / "index.html").read_text(encoding="utf-8")


def test_page_needs_no_network_and_is_small(page):
    elements = Elements(page)
    assert len(page.encode()) < 3_000_000
    sources = [e[k] for _, e in elements.found for k in ("src", "srcset", "data") if e.get(k)]
    assert all(source.startswith("data:") for source in sources)
    assert [e["href"] for e in elements.of("link")] == ["data:,"]
    assert not any(e["href"].startswith("http") for e in elements.of("a"))
    assert not re.search(r"@import|url\((?!#)|fetch\(|XMLHttpRequest", page)
    links = re.findall(r'xlink:href="(.*?)"', page)
    assert all(link.startswith(("#", "data:")) for link in links)


def test_page_is_for_everybody(page):
    elements = Elements(page)
    assert elements.of("html")[0]["lang"] == "en"
    assert all(e.get("alt") for e in elements.of("img"))
    assert all(e.get("scope") for e in elements.of("th"))
    assert len(elements.of("h1")) == 1
    assert len(elements.of("main")) == 1
    assert "prefers-color-scheme" in page
    assert "prefers-reduced-motion" in page


def test_figures_and_tables_are_there_without_scripts(page, report, content):
    for label in ("sgd", "olss-balanced"):
        assert f'data-method="{label}"' in page
    assert "missing seeds 2" in page
    assert "half-finished: 5 of 8 tasks" in page
    assert page.count('<svg class="chart"') == len(PLOTS) * len(content["streams"])


def test_what_figures_say_is_what_their_files_say(page, report, content):
    text = re.compile(r"<text [^>]*>([^<]*)</text>")
    embedded = text.findall(page)
    for stream in content["streams"]:
        for name in PLOTS:
            file = report / "figures" / f"{stream['id']}-{name}.svg"
            said = text.findall(file.read_text(encoding="utf-8"))
            assert said == embedded[: len(said)], file
            embedded = embedded[len(said) :]
    assert not embedded


def test_ids_of_the_page_are_unique(page):
    ids = [e["id"] for _, e in Elements(page).found if "id" in e]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#(.*?)\)", page)) <= set(ids)
    assert set(re.findall(r'xlink:href="#(.*?)"', page)) <= set(ids)


def test_files_beside_the_page_exist(page, report):
    links = [e["href"] for e in Elements(page).of("a") if not e["href"].startswith("#")]
    assert len(links) > 30
    assert all((report / link).is_file() for link in links)


def test_a_report_deletes_the_files_of_the_one_it_replaces_and_no_others(tmp_path):
    out = tmp_path / "report"
    saved(tmp_path / "first", "sgd", 0)
    saved(tmp_path / "second", "sgd", 0, stream="rotated")
    write_report([tmp_path / "first"], out)
    (out / "tables" / "permuted-of-my-own.csv").write_text("mine")
    (tmp_path / "outside.csv").write_text("mine")
    path = out / "report.json"
    path.write_text(
        path.read_text().replace('"files":', '"files": ["tables/../../outside.csv"],"x":')
    )
    write_report([tmp_path / "second"], out)
    assert any(out.rglob("permuted-*.svg"))  # of an unreadable list nothing is deleted
    write_report([tmp_path / "first"], out)
    assert not any(out.rglob("rotated-*"))
    assert (out / "tables" / "permuted-of-my-own.csv").exists()
    assert (tmp_path / "outside.csv").exists()


def test_strange_names_cannot_break_the_page(tmp_path):
    label = "--></script><script>alert(1)</script>&\"'"
    record = made("balanced", tasks=2)
    record.config["learner"]["label"] = label
    record.save(tmp_path / "runs")
    text = write_report([tmp_path / "runs"], tmp_path / "out").read_text()
    assert "<script>alert" not in text
    names = [e["data-method"] for _, e in Elements(text).found if "data-method" in e]
    assert len(names) > 20  # rows of tables, and parts of figures
    assert set(names) == {label}


def test_pictures_never_make_the_page_heavy():
    many = {
        name: [{"label": str(i), "source": "x" * 90_000} for i in range(20)] for name in ("a", "b")
    }
    chosen = _drop_heavy(many)
    assert len(chosen["a"]) + len(chosen["b"]) == 11
    assert len(chosen["b"]) >= 5  # every stream has its share


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(PROGRAM, tmp_path_factory.mktemp("profile")) as found:
        yield found


@in_browser
class TestInBrowser:
    @pytest.fixture(autouse=True)
    def opened(self, browser, report):
        browser.messages.clear()
        browser.requests.clear()
        browser.open(report / "index.html")
        yield
        assert browser.messages == []
        assert all(r.startswith(("file://", "data:")) for r in browser.requests)

    def chart(self, name):
        return f'section[data-stream^="permuted"] figure[data-chart="{name}"]'

    def test_every_chart_is_drawn(self, browser):
        empty = browser.run(
            "[...document.querySelectorAll('figure[data-chart]')]"
            ".filter((f) => !f.querySelector('svg.chart')).map((f) => f.dataset.chart)"
        )
        assert empty == []
        assert browser.run(BROKEN) is False

    def test_tables_open_below_their_charts(self, browser, report):
        card = self.chart("matrices")
        assert not browser.run(f"document.querySelector('{card} details').open")
        browser.click(f"{card} summary")
        assert browser.run(f"document.querySelector('{card} table').offsetHeight > 50")
        latex = browser.run(f"latex(document.querySelector('{card} table'))")
        file = report / "tables" / "permuted-digits-8-tasks-matrices.tex"
        assert latex == file.read_text()

    def test_choosing_methods_changes_charts_tables_and_latex(self, browser):
        card = self.chart("average")
        seen = (
            f"[...new Set([...document.querySelectorAll('{card} svg [data-method]')]"
            ".filter((g) => g.getBoundingClientRect().width).map((g) => g.dataset.method))]"
        )
        assert len(browser.run(seen)) == len(METHODS)
        browser.click("nav label:has(input[value=sgd])")
        assert sorted(browser.run(seen)) == ["er", "ewc", "gem", "olss", "olss-balanced"]
        rows = browser.run(f"[...document.querySelectorAll('{card} tbody tr:not(.hidden)')].length")
        assert rows == len(METHODS) - 1
        latex = browser.run(f"latex(document.querySelector('{card} table'))")
        assert "\nsgd &" not in latex
        assert "\newc &" in latex
        assert "\\bottomrule" in latex
        browser.click("nav label:has(input[value=sgd])")
        assert len(browser.run(seen)) == len(METHODS)

    def test_choosing_streams_hides_sections_and_claims(self, browser):
        browser.click("nav label:has(input[value^=rotated])")
        parts = "[...document.querySelectorAll('section[data-stream], div.card[data-stream]')]"
        shown = parts + ".filter((e) => e.offsetHeight).map((e) => e.dataset.stream)"
        assert {s.split("-")[0] for s in browser.run(shown)} == {"permuted"}

    def test_claims_are_chosen_by_verdict(self, browser):
        count = "[...document.querySelectorAll('.claim')].filter((e) => e.offsetHeight).length"
        before = browser.run(count)
        holding = browser.run("document.querySelectorAll('.claim[data-verdict=holds]').length")
        browser.click("button[data-verdict=holds]")
        assert holding > 0
        assert browser.run(count) == before - holding

    def test_latex_is_copied(self, browser):
        # A headless browser has no clipboard to look into; both ways of copying are watched.
        browser.run("window.copied = null; navigator.clipboard && (navigator.clipboard.writeText "
                    "= async (text) => { copied = text; })")  # fmt: skip
        browser.run("document.addEventListener('copy', "
                    "() => { copied = document.activeElement.value; })")  # fmt: skip
        button = "section[data-stream] button[data-copy]"
        browser.click(button)
        browser.wait("copied !== null")
        assert browser.run("copied").startswith("\\begin{table}")
        browser.wait(f"document.querySelector('{button}').textContent === 'Copied'")

    def test_keyboard_reaches_the_controls(self, browser):
        browser.press("Tab")
        assert browser.run("document.activeElement.hash") == "#claims"
        browser.press("Tab")
        assert browser.run("document.activeElement.name") == "stream"

    @pytest.mark.parametrize(
        ("width", "dark"), [(390, False), (390, True), (768, False), (1280, True)]
    )
    def test_fits_any_screen_light_and_dark(self, browser, report, width, dark):
        browser.open(report / "index.html", width=width, height=844, dark=dark)
        assert browser.run("document.documentElement.scrollWidth") <= width
        background = browser.run("getComputedStyle(document.body).backgroundColor")
        light = sum(map(int, re.findall(r"\d+", background)[:3])) > 382
        assert light is not dark


@in_browser
@pytest.mark.parametrize(
    "case",
    [
        {"methods": ["sgd"], "tasks": 3, "seeds": 1},
        {"methods": ["olss", "sgd"], "tasks": 1, "seeds": 2},
        {"methods": ["er"], "tasks": 2, "seeds": 1, "task_seconds": {}, "metric": "r2"},
    ],
)
def test_small_reports_work_too(browser, tmp_path, case):
    case = dict(case)
    methods, seeds = case.pop("methods"), case.pop("seeds")
    for method in methods:
        for seed in range(seeds):
            saved(tmp_path / "runs", method, seed, **case)
    browser.messages.clear()
    browser.open(write_report([tmp_path / "runs"], tmp_path / "out"))
    assert browser.messages == []
    assert browser.run(BROKEN) is False


@in_browser
def test_many_methods_with_long_names_fit(browser, tmp_path):
    for number in range(25):
        record = made("balanced", tasks=3)
        record.config["learner"] |= {"label": f"replay policy=balanced-leverage {number}"}
        record.save(tmp_path / "runs" / str(number))
    page = write_report([tmp_path / "runs"], tmp_path / "out")
    for width in (390, 1280):
        browser.open(page, width=width)
        assert browser.run("document.documentElement.scrollWidth") <= width
        overlaps = browser.run(
            "[...document.querySelectorAll('figure[data-chart=average] [data-method] text')]"
            ".map((t) => t.getBoundingClientRect().top).sort((a, b) => a - b)"
            ".some((top, i, all) => i && top - all[i - 1] < 0.8 * "
            "document.querySelector('figure [data-method] text').getBoundingClientRect().height)"
        )
        assert overlaps is False
