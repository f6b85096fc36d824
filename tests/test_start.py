"""A light start: the memory half needs none of the heavy packages."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HEAVY = ("torch", "sklearn", "pandas", "matplotlib", "pyarrow", "dask", "optuna", "jinja2")
NUMERIC = ("scipy", "array_api_compat", "threadpoolctl", "distributed", "filelock")

WITHOUT = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {heavy!r}:
            raise ImportError(name + " is not installed here")
sys.meta_path.insert(0, Refuse())
"""


def python(code):
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def loaded(code, names):
    return python(f"import sys\n{code}\nprint([m for m in {names} if m in sys.modules])").strip()


def test_importing_olss_loads_nothing_heavy():
    assert loaded("import olss", ("numpy", *HEAVY, *NUMERIC)) == "[]"


def test_a_sketch_loads_no_command_line():
    assert loaded("import olss; olss.Sketch", (*HEAVY, "typer", "rich")) == "[]"


def test_help_loads_nothing_heavy():
    code = (
        "from typer.testing import CliRunner\n"
        "from olss.cli import app\n"
        "for words in (['--help'], ['run', '--help'], ['compress', '--help']):\n"
        "    result = CliRunner().invoke(app, words)\n"
        "    assert result.exit_code == 0, result.output"
    )
    assert loaded(code, ("numpy", *HEAVY, *NUMERIC)) == "[]"


def test_a_sketch_works_without_torch_or_scikit_learn():
    refused = tuple(name for name in HEAVY if name != "pyarrow")
    python(
        WITHOUT.format(heavy=refused) + "import numpy as np, olss\n"
        "X = np.random.default_rng(0).standard_normal((500, 4))\n"
        "s = olss.Sketch(50, seed=0)\n"
        "s.update(X, y=X[:, 0] > 0)\n"
        "assert len(s) == 50\n"
        "assert abs(olss.leverage_scores(X).sum() - 4) < 1e-6\n"
        "olss.FrequentDirections(3).update(X).matrix\n"
    )


def test_compressing_and_continuing_load_no_pandas(tmp_path):
    for day in ("monday", "tuesday"):
        x = np.random.default_rng(len(day)).standard_normal(500)
        table = pa.table({"x": x, "kind": ["a", "b"] * 250, "label": [True, False] * 250})
        pq.write_table(table, tmp_path / f"{day}.parquet")
    code = (
        "from olss.files import compress\n"
        "for day in ('monday', 'tuesday'):\n"
        f"    file = f'{tmp_path}/{{day}}.parquet'\n"
        f"    compress(file, into='{tmp_path}/out.parquet', size=50, target='label')\n"
    )
    assert loaded(code, ("pandas", "pyarrow.dataset", "torch", "sklearn")) == "[]"
