"""Build wheel and sdist and use them as a stranger would: ``python -m tests.try_package``.

The memory half is installed alone into an empty environment. Then the laboratory is added by the
very command that its error message gives; the packages it needs are lent by the environment this
runs in, and not fetched again.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LAB = ("torch", "sklearn", "matplotlib", "pandas", "pooch", "safetensors")

MEMORY = """
import importlib.util, numpy as np, pyarrow as pa, pyarrow.parquet as pq
import olss
assert "site-packages" in olss.__file__, olss.__file__
assert not any(map(importlib.util.find_spec, {lab!r})), "something of the laboratory is here"
rng = np.random.default_rng(0)
sketch = olss.Sketch(size=100, seed=0)
for day in range(3):
    hour, carrier = rng.integers(5, 23, 500), rng.choice(["UA", "AA"], 500)
    sketch.update({{"carrier": carrier, "hour": hour, "delay": 2.0 * hour}}, y="delay")
assert len(sketch) == 100 and sketch.seen == 1500
print(sketch.estimate("delay", by="carrier"))
print(sketch.error())
sketch.save("memory.parquet")
table = pa.table({{"x": rng.normal(size=2000), "label": rng.integers(0, 3, 2000)}})
pq.write_table(table, "big.parquet")
"""

EXPERIMENT = """
seeds = [0]
net = "mlp-20"
stream = { name = "rotated", dataset = "digits", tasks = 2, train_rows = 200 }
train = { lr = 0.1, epochs = 1, batch = 20 }
learner = [{ name = "sgd" }, { name = "olss" }]
"""


def build(into: Path) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it; return both."""
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(into), str(ROOT)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    (wheel,), (sdist,) = into.glob("*.whl"), into.glob("*.tar.gz")
    return wheel, sdist


def check_contents(wheel: Path, sdist: Path) -> None:
    """Assert that each holds what it should and nothing more."""
    inside = zipfile.ZipFile(wheel).namelist()
    parts = {name.split("/")[0] for name in inside}
    assert parts == {"olss", wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info"}, parts
    held = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/olss").rglob("*.*")}
    missing = {name for name in held if "__pycache__" not in name} - set(inside)
    assert not missing, missing
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("LICENSE", "CHANGELOG.md", "README.md", "dev.py", "constraints.txt", "mkdocs.yml"):
        assert name in names, name
    assert {"tests", "docs", "examples"} <= {name.partition("/")[0] for name in names}


class Clean:
    """An environment of its own, and an empty folder to work in."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        venv.create(folder / "venv", with_pip=True)
        self.bin = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
        hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
        self.environment = {k: v for k, v in os.environ.items() if k not in hidden}

    def __call__(self, *words: str, code: int = 0) -> str:
        """Run one of its programs; return what it says."""
        done = subprocess.run(
            [self.bin / words[0], *words[1:]], cwd=self.work, env=self.environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        said = done.stdout + done.stderr
        assert done.returncode == code, f"{words} ended with {done.returncode}:\n{said}"
        return said

    def install(self, *words: str) -> None:
        """Have pip install something."""
        constraints = str(ROOT / "constraints.txt")
        self("python", "-m", "pip", "install", "-q", "--no-compile", "-c", constraints, *words)

    def lend(self, packages: str) -> None:
        """Make the packages of another folder importable here, too."""
        site = self("python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
        (Path(site.strip()) / "lent.pth").write_text(packages + "\n")


def try_memory(clean: Clean, wheel: Path) -> None:
    """Install the memory half alone and use it."""
    clean.install(str(wheel))
    clean("python", "-c", MEMORY.format(lab=LAB))
    version = wheel.name.split("-")[1]
    assert clean("olss", "--version") == f"olss {version}\n"
    assert "compress" in clean("olss", "--help")
    compress = "compress big.parquet --into small.parquet --size 50 --target label"
    clean("olss", *compress.split())
    clean("olss", "inspect", "small.parquet", "--html", "small.html")
    assert "delay" in clean("olss", "estimate", "memory.parquet", "--mean", "delay")
    assert "weighted" in clean("olss", "list", "policies")


def try_lab(clean: Clean) -> None:
    """Add the laboratory by the command the error gives, and use it."""
    (clean.work / "try.toml").write_text(EXPERIMENT)
    for words in (("demo",), ("run", "try.toml")):
        said = clean("olss", *words, code=1)
        assert "Traceback" not in said, said
    command = shlex.split(said.partition("pip install ")[2])
    assert any("[lab]" in word for word in command), said
    clean.lend(sysconfig.get_path("purelib"))
    clean.install(*command)
    where = clean("python", "-c", "import olss, torch; print(olss.__file__)")
    assert Path(where).is_relative_to(clean.bin.parent), where
    clean("olss", "run", "try.toml")
    clean("olss", "report", "runs/try")
    page = next(clean.work.rglob("index.html")).read_text(encoding="utf-8")
    assert "olss" in page
    assert "<svg" in page


def main() -> None:
    """Build, look inside, try, and keep what was built in ``dist/``."""
    began = time.perf_counter()

    def say(text: str) -> None:
        print(f"{time.perf_counter() - began:5.1f} s  {text}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        wheel, sdist = build(Path(folder) / "dist")
        check_contents(wheel, sdist)
        say(f"{wheel.name} and {sdist.name} are built")
        clean = Clean(Path(folder))
        try_memory(clean, wheel)
        say("the memory half works alone")
        try_lab(clean)
        say("the laboratory works once it is installed as its error says")
        (ROOT / "dist").mkdir(exist_ok=True)
        for made in (wheel, sdist):
            (ROOT / "dist" / made.name).write_bytes(made.read_bytes())


if __name__ == "__main__":
    main()
