"""What a release says of itself: one version, links that hold on a package page, Pythons tried."""

import re
import tomllib
from pathlib import Path

import pytest

import olss

ROOT = Path(__file__).parents[1]
HOME = "https://forge.example/somebody/olss"
README = (ROOT / "README.md").read_text()


def test_version_and_date_are_the_same_everywhere():
    changes = (ROOT / "CHANGELOG.md").read_text()
    newest = re.search(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", changes, re.M)
    citation = (ROOT / "CITATION.cff").read_text()
    assert newest[1] == olss.__version__ == re.search(r"^version: (\S+)$", citation, re.M)[1]
    assert newest[2] == re.search(r"^date-released: (\S+)$", citation, re.M)[1]


def test_a_package_page_has_whole_links_to_files_that_exist():
    hatch_build = pytest.importorskip("hatch_build")
    text = hatch_build.page(README, HOME, "1.2.3")
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert len(targets) == len(re.findall(r"\]\(([^)]+)\)", README)) > 10
    for target in targets:
        assert target.startswith("https://"), target
        if target.startswith(HOME):
            kind, version, path = target.removeprefix(f"{HOME}/").split("/", 2)
            assert (ROOT / path.partition("#")[0]).exists(), path
            assert version == "v1.2.3"
            assert kind == ("raw" if path.endswith(".png") else "blob")


def test_without_a_home_no_link_of_a_package_page_leads_nowhere():
    hatch_build = pytest.importorskip("hatch_build")
    text = hatch_build.page(README, "", "1.2.3")
    assert all(target.startswith("https://") for target in re.findall(r"\]\(([^)]+)\)", text))
    assert "What is in it" in text
    assert "We know of no other library that combines" in text  # the text of a link stays
    whole = "[a](https://b.example) [c](#d)"
    assert hatch_build.page(whole, "", "1") == hatch_build.page(whole, HOME, "1") == whole
    assert list(hatch_build.links("", "1.2.3")) == ["Paper"]


def test_every_python_that_is_promised_is_tried():
    yaml = pytest.importorskip("yaml")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    promised = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    tried = workflow["jobs"]["checks"]["strategy"]["matrix"]["python"]
    assert set(promised) <= set(tried)
    assert f">={promised[0]}" == project["requires-python"]


@pytest.mark.parametrize(
    "path",
    sorted(
        [*ROOT.glob(".github/**/*.yml"), ROOT / ".pre-commit-config.yaml", ROOT / "CITATION.cff"]
    ),
    ids=lambda path: path.name,
)
def test_files_for_other_tools_can_be_read(path):
    yaml = pytest.importorskip("yaml")
    assert isinstance(yaml.safe_load(path.read_text()), dict)
