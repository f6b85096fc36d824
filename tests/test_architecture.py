"""The table of layers in docs/architecture.md is true of every import in the package."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "olss"


def layers():
    """Return {module: layer} and {layer: layers it may import} from the documentation."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| (\w+) \| ((?:`\w+` ?)+)\| ?([\w, ]*?) ?\|$", text, flags=re.M)
    modules = {m: layer for layer, names, _ in rows for m in re.findall(r"`(\w+)`", names)}
    allowed = {layer: set(re.findall(r"\w+", may)) | {layer} for layer, _, may in rows}
    return modules, allowed


def imported(path):
    """Yield the olss modules a file imports anywhere, by their first name below olss."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names = [
                f"{node.module}.{a.name}" if node.module == "olss" else node.module
                for a in node.names
            ]
        else:
            continue
        for name in names:
            if name and name.startswith("olss."):
                yield name.split(".")[1]


MODULES, ALLOWED = layers()
FILES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def test_the_table_is_read_and_lists_every_module():
    assert len(ALLOWED) == 10
    present = {p.stem for p in PACKAGE.glob("*.py")} | {
        p.parent.name for p in PACKAGE.glob("*/__init__.py")
    }
    assert present - {"__init__"} <= set(MODULES)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    layer = MODULES[path.relative_to(PACKAGE).parts[0].removesuffix(".py")]
    for name in imported(path):
        # `import olss` for its version, or a public name of the memory half
        target = MODULES.get(name)
        if target is None:
            continue
        assert target in ALLOWED[layer], f"{path.name} ({layer}) imports olss.{name} ({target})"
