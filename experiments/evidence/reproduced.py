"""``experiments/REPRODUCED.md``: published numbers beside ours."""

from __future__ import annotations

import json
from collections.abc import Iterator

from benchmarks import gem_protocol

from olss.lab.report.claims import RATIOS
from olss.lab.report.statistics import interval, log_ratio, seconds
from olss.streams.record import Record

from . import der, pages, paper
from .gather import load
from .pages import RESULTS, STREAMS, plain, table

SOURCES = {
    "paper": "Teng & Dasgupta (2019), table of times",
    "gem": "code of Lopez-Paz & Ranzato (2017), run here, three seeds",
    "der": "Buzzega et al. (2020), table 2",
    "survey": "logs of ocl_survey (Soutif-Cormerais et al. 2023)",
}
SURVEY = ("28.2 ± 1.2", RESULTS / "survey-er" / "er")
HEAD = """# Published numbers, and ours

Made by `python -m experiments.evidence` from [`results`](results/README.md). Average accuracy after
the last task, in percent, unless a line says otherwise; ± is half a 95% interval over our seeds,
and none stands beside a single seed. A published ± is what its authors give. What differs from the
published settings stands in a column of its own.

"""


def make() -> None:
    """Write the page."""
    columns = ["method", "protocol", "published", "source", "ours", "seeds", "differs", "command"]
    lines = [*_gem(), *_der(), *_survey(), *_times()]
    pages.write("experiments/REPRODUCED.md", HEAD + table(columns, lines, rule="---"))


def _gem() -> Iterator[list[str]]:
    command = "`python benchmarks/gem_protocol.py`"
    for stream, published in gem_protocol.PUBLISHED.items():
        protocol = f"GEM's: {stream} of MNIST, 20 x 1,000, one epoch, batches of 10"
        for method, numbers in published.items():
            # The published EWC takes the squared mean gradient for Fisher's information.
            ours = f"{method}, squared mean gradient" if method == "ewc" else method
            runs = json.loads(gem_protocol.place(stream, ours).read_text(encoding="utf-8"))
            found = interval([100 * run["average"] for run in runs])
            average, deviation = numbers.split(" | ")[0].split()
            told = f"{average}, s.d. {deviation.strip('()')}"
            differs = "each seed draws its own permutations or angles"
            yield [
                method.upper(), protocol, told, SOURCES["gem"], plain(found), str(found.count),
                differs, command,
            ]  # fmt: skip


def _der() -> Iterator[list[str]]:
    chosen = "rates and weights chosen on our validation rows; three seeds, there ten"
    forms = [  # method, words, file, what differs
        ("er", "ER", "runs.csv", chosen),
        ("der++", "DER++", "as-published.csv", chosen),
        ("der++", "DER++, the default", "runs.csv",
         f"terms averaged, distances over their spread; {chosen}"),
    ]  # fmt: skip
    for stream in STREAMS:
        command = f"`olss run experiments/der-protocol-{stream}.toml`"
        for method, name, file, differs in forms:
            rows = load("der-protocol", file)
            for size, told in zip(der.SIZES, der.PUBLISHED[stream, method], strict=True):
                found = der.of(rows, stream, size, method.upper())
                protocol = f"DER's: {stream} MNIST, 20 x 60,000, one epoch, {size:,} rows"
                ours = [plain(found), str(found.count), differs]
                made_by = "version 0.1 of olss" if file != "runs.csv" else command
                yield [name, protocol, f"{told:.1f}", SOURCES["der"], *ours, made_by]


def _survey() -> Iterator[list[str]]:
    told, folder = SURVEY
    records = [Record.load(path.parent) for path in sorted(folder.glob("seed-*/record.json"))]
    if records:
        found = interval([100 * record.average_accuracy[-1] for record in records])
        protocol = "survey's: CIFAR-100, 20 x 5 classes, 2,000 rows, 3 passes of 10 + 10 rows"
        command = "`olss run experiments/survey-er.toml`"
        yield [
            "ER", protocol, told, SOURCES["survey"], plain(found), str(found.count), "bfloat16",
            command,
        ]  # fmt: skip


def _times() -> Iterator[list[str]]:
    """Yield the paper's only numbers: wall-clock times as multiples of SGD's."""
    for folder, title in paper.DRAWN.items():
        records = paper.records_of(RESULTS / "paper" / folder)
        base = {seed: seconds(record) for seed, record in records.get("sgd", {}).items()}
        for method, told in RATIOS.items():
            times = {s: seconds(record) for s, record in records.get(method, {}).items()}
            found = log_ratio(times, base)
            published = told.get(folder.split("-")[1])
            if published and found.count:
                protocol = f"the paper's: {title}; time / SGD's, not accuracy"
                name = folder.removesuffix("-bfloat16")
                short = name != folder
                precision = " --set train.precision=bfloat16" if short else ""
                differs = "time of the processor, there wall-clock" + ", bfloat16" * short
                yield [
                    paper.SHOWN[method], protocol, f"{published:.2f}", SOURCES["paper"],
                    f"{found.mean:.2f}", str(found.count), differs,
                    f"`olss run experiments/{name}.toml{precision}`",
                ]  # fmt: skip
