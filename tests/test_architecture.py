"""The table of floors in docs/architecture.md is true of every import in the package."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "olss"
FILES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def floors():
    """Return {floor: floors it may import} from the documentation, what those may included."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| [^|]+\| ?([\w, ]*?) ?\|$", text, flags=re.M)
    allowed = {}
    for floor, may in rows:  # a floor stands below those that import it
        below = re.findall(r"\w+", may)
        allowed[floor] = {floor}.union(*(allowed[name] for name in below))
    return allowed


def module_of(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {module_of(path) for path in FILES}


def imported(path, *, at_run_time=False):
    """Yield the modules below olss that a file imports, by their dotted names.

    At run time means on import: not inside functions, not for types only.
    """
    for node in _nodes(ast.parse(path.read_text()), at_run_time):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith("olss."):
                below = name.removeprefix("olss.")
                yield below if below in MODULES else below.rpartition(".")[0]


def _nodes(node, at_run_time):
    for child in ast.iter_child_nodes(node):
        yield child
        later = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        typing = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        if not (at_run_time and (later or typing)):
            yield from _nodes(child, at_run_time)


ALLOWED = floors()


def test_the_table_names_every_floor_and_no_other():
    present = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in FILES}
    assert present - {"__main__"} == set(ALLOWED)


def test_every_module_and_name_of_the_journeys_exists():
    text = (ROOT / "docs" / "architecture.md").read_text().partition("## Four journeys")[2]
    names = re.findall(rf"`((?:{'|'.join(ALLOWED)})(?:\.\w+)+)", text)
    assert len(names) > 30
    for name in names:
        inside = name.split(".")
        module = ".".join(inside)
        while module not in MODULES:
            module = module.rpartition(".")[0]
            assert module, f"{name} is not a module"
        path = PACKAGE / Path(*module.split("."))
        source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        defined = re.findall(r"^ *(?:def|class) (\w+)", source.read_text(), flags=re.M)
        rest = inside[module.count(".") + 1 :]
        assert set(rest) <= set(defined), f"{name} is not defined in {source.name}"


def test_few_modules_are_left_in_the_root():
    assert len(list(PACKAGE.glob("*.py"))) <= 8


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down_only(path):
    floor = module_of(path).split(".")[0]
    may = ALLOWED["cli" if floor == "__main__" else floor]
    for name in filter(None, imported(path)):
        target = name.split(".")[0]
        assert target in may, f"{path.name} ({floor}) imports olss.{name} ({target})"


@pytest.mark.parametrize("at_run_time", [True, False], ids=["run time", "anywhere"])
def test_no_modules_import_each_other_in_a_circle(at_run_time):
    graph = {
        module_of(path): {n for n in imported(path, at_run_time=at_run_time) if n in MODULES}
        - {module_of(path)}
        for path in FILES
        if path.name != "__init__.py"  # what a package shows of its modules
    }
    TopologicalSorter(graph).prepare()  # raises CycleError with the circle


def public_classes():
    """Yield (class, module) of all public classes of the package."""
    for path in FILES:
        tree = ast.parse(path.read_text())
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, module_of(path)


def test_no_two_public_classes_share_a_name():
    homes = {}
    for name, module in public_classes():
        homes.setdefault(name, []).append(module)
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_private_names_are_imported_from_other_modules(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("olss."):
            private = [alias.name for alias in node.names if alias.name.startswith("_")]
            assert not private, f"{path.name} imports {private} from {node.module}"
