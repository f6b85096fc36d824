"""Keep a few rows of many with olss and with what people would pick instead, side by side.

    python -m benchmarks.peers                     # half an hour on two idle cores, 5 GB of disk
    python -m benchmarks.peers --only duckdb olss  # some of the libraries
    python -m benchmarks.peers --times 1           # each time once, not the best of two

Each library is installed into a virtual environment of its own, from the package index, below
``~/.cache/olss/peers`` (or ``--cache``), and each measurement is a process of its own, stopped
after a number of seconds or gigabytes; a library that fails, or cannot do it, is a line of the
table like the others, with its reason. Times are of one core, as ratios to reading the same rows
in the same run; processor time, which other work on the machine disturbs little.

Prints tables and writes ``measurements.csv``, ``properties.csv`` and ``peers.png`` into
``experiments/results/peers`` (or ``--into``); ``python -m experiments.evidence`` puts them into
docs/comparison.md.
"""
