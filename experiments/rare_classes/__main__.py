"""Measure the tables named, or all; see the package."""

from __future__ import annotations

import argparse

from threadpoolctl import threadpool_limits

from . import all_rows, groups, samplers, samples
from .models import MODELS
from .tables import TABLES, load

PARTS = ("samples", "samplers", "all-rows", "groups")


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description="Rare classes from a few rows of real tables.")
    parser.add_argument("tables", nargs="*", default=list(TABLES))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    kinds = [sample.policy for sample in samples.SAMPLES]
    parser.add_argument("--policies", nargs="+", choices=kinds, default=kinds)
    parser.add_argument("--sizes", nargs="+", type=int, default=list(samples.SIZES))
    options = parser.parse_args()
    for name in options.tables:
        if "groups" in options.parts and name in groups.TABLES:
            groups.run(name)
        if options.parts == ["groups"]:
            continue
        table = load(name)
        if "samples" in options.parts:
            samples.run(name, table, options.models, options.sizes, options.policies)
        if "samplers" in options.parts:
            samplers.run(name, table, options.models)
        if "all-rows" in options.parts:
            for model in options.models:
                all_rows.run(name, table, model)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
