"""The tables of the documentation are those of the results in the repository."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
PLACE = re.compile(r"<!-- table (\S+) -->\n(.*?)<!-- end -->", re.DOTALL)


@pytest.fixture
def evidence() -> ModuleType:
    pytest.importorskip("matplotlib")
    spec = importlib.util.spec_from_file_location("evidence", ROOT / "experiments/evidence.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_table_is_made_from_the_results(
    evidence: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, str] = {}
    monkeypatch.setattr(evidence, "fill", made.__setitem__)
    monkeypatch.setattr(evidence, "draw", lambda *args: None)
    evidence.make()
    pages = [path.read_text(encoding="utf-8") for path in evidence.PAGES]
    places = {name: text for page in pages for name, text in PLACE.findall(page)}
    assert places
    for name, text in places.items():
        assert text.strip() == made.get(name, "").strip(), (
            f"run experiments/evidence.py: table {name}"
        )


def test_figures_are_drawn(
    evidence: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drawn: list[str] = []

    def draw(folder: str, name: str, make: object) -> None:
        make().savefig(tmp_path / f"{name}.png", dpi=20)  # type: ignore[operator]
        drawn.append(name)

    monkeypatch.setattr(evidence, "fill", lambda *args: None)
    monkeypatch.setattr(evidence, "draw", draw)
    evidence.make()
    assert drawn
    for name in drawn:
        assert (ROOT / "docs/images" / f"{name}.png").exists()
