from olss.lab.report import figures
from olss.lab.report.figures import PLOTS
from tests.lab.report.made import LEARNERS


def test_every_figure_is_there_in_both_forms(report, content):
    for stream in content["streams"]:
        for name in ("curves", "final", "measures", "matrices", "memory", "time", "pareto"):
            svg = (report / "figures" / f"{stream['id']}-{name}.svg").read_text()
            png = (report / "figures" / f"{stream['id']}-{name}.png").read_bytes()
            assert svg.rstrip().endswith("</svg>")
            assert "mathdefault" not in svg  # a formula left unread
            assert png.startswith(b"\x89PNG")


def test_lines_are_labelled_by_name_in_their_colour(report, content):
    stream = content["streams"][0]
    svg = (report / "figures" / f"{stream['id']}-curves.svg").read_text()
    for method in stream["methods"]:
        assert f">{method['label']}</text>" in svg
        assert method["colour"].lower() in svg.lower()
    assert len(stream["methods"]) == len(LEARNERS)


def test_the_same_content_gives_the_same_bytes(report, content, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "PLOTS", {k: PLOTS[k] for k in ("curves", "memory")})
    for name in figures.draw_figures(content["streams"][0], tmp_path):
        for file in (f"{name}.svg", f"{name}.png"):
            assert (tmp_path / file).read_bytes() == (report / "figures" / file).read_bytes()
