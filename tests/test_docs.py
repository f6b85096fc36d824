"""The pages: every Python block runs, every quick command runs, and the site builds without a flaw.

A block that is not run is preceded by the comment ``<!-- not run: why -->``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^>]+-->\s*)?^```(?P<kind>python|bash)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
# One thread: small computations on a busy machine wait for each other otherwise.
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "100"}


def blocks(page):
    """Yield (kind, code, line of its first line) of the blocks to run."""
    text = page.read_text()
    for found in BLOCK.finditer(text):
        if not found["skip"]:
            yield found["kind"], found["code"], text.count("\n", 0, found.start("code"))


def commands(code):
    """Yield the olss commands of a bash block; other lines are for reading."""
    for line in code.replace("\\\n", " ").splitlines():
        if line.startswith("olss "):
            yield shlex.split(line, comments=True)


NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if any(blocks(page))]


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    names = {"__name__": "__main__"}
    for kind, code, line in blocks(page):
        if kind == "python":
            # Blank lines before it, so that an error names the line of the page.
            exec(compile("\n" * line + code, page, "exec"), names)
            continue
        for command in commands(code):
            olss = Path(sys.executable).with_name(command[0])
            done = subprocess.run(
                [olss, *command[1:]], env=ENVIRONMENT, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{page}:{line}: {command}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_runs_from_top_to_bottom(notebook, tmp_path, monkeypatch):
    """Its cells are plain Python, so no Jupyter is needed; what it shows was made by them."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    pyplot.switch_backend("Agg")
    cells = [
        cell
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "code"
    ]
    names = {"__name__": "__main__"}
    for number, cell in enumerate(cells, start=1):
        assert cell["execution_count"] == number, "run it from top to bottom before it is saved"
        exec(compile("".join(cell["source"]), f"{notebook.name}, cell {number}", "exec"), names)
    pyplot.close("all")
    assert any(cell["outputs"] for cell in cells)


def test_the_first_page_needs_no_more_than_it_says_to_install(tmp_path):
    """`pip install ".[sklearn]"`: nothing of the laboratory, no pandas, no polars."""
    absent = ("torch", "pandas", "polars", "matplotlib", "jinja2", "pooch", "safetensors", "dask")
    refuse = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] in {absent!r}:\n"
        "            raise ModuleNotFoundError(name + ' is not installed here', name=name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
    )
    found = list(blocks(DOCS / "start.md"))
    code = "".join(code for kind, code, _ in found if kind == "python")
    for kind, lines, _ in found:
        for command in commands(lines) if kind == "bash" else ():
            code += f"\nsys.argv = {command}\ntry:\n    import olss.__main__ as m; m.main()\n"
            code += "except SystemExit as end:\n    assert not end.code, sys.argv\n"
    done = subprocess.run(
        [sys.executable, "-c", refuse + code],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "balanced-random" in done.stdout  # the last command was run, too


@pytest.mark.parametrize("figure", sorted(DOCS.rglob("*.png")), ids=lambda path: path.stem)
def test_figures_are_opaque_and_can_be_read_in_the_dark(figure):
    image = pytest.importorskip("PIL.Image").open(figure)
    least, _ = image.convert("RGBA").getchannel("A").getextrema()
    assert least == 255


def test_blocks_are_found_and_those_marked_are_left_out(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# Title\n\n```python\na = 1\n```\n\n<!-- not run: an hour -->\n```bash\nolss run it\n```\n"
        "```bash\npip install it\nolss data list  # quick\n```\n"
    )
    (python, first, line), (bash, second, _) = blocks(page)
    assert (python, first, line) == ("python", "a = 1\n", 3)
    assert bash == "bash"
    assert list(commands(second)) == [["olss", "data", "list"]]


def test_the_site_builds_strictly_and_asks_nothing_of_other_servers(tmp_path):
    if not all(map(importlib.util.find_spec, ("mkdocs", "mkdocstrings", "latex2mathml"))):
        pytest.skip("mkdocs is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    fetched = re.compile(r"""<(?:script|link|img)[^>]*(?:src|href)=["']?(?:https?:)?//[^"'> ]+""")
    for page in tmp_path.rglob("*.html"):
        links = [
            link for link in fetched.findall(page.read_text()) if 'rel="canonical"' not in link
        ]
        assert not links, f"{page.name} fetches {links[0]}"
    formulas = (tmp_path / "mathematics.html").read_text()
    assert "<math" in formulas
    assert "\\tau" not in formulas  # none was left as it is written
