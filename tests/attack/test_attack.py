"""The attack with a small budget; ``python -m tests.attack --budget full`` is the long one."""

from __future__ import annotations

import os

import pytest

from tests.attack.__main__ import BUDGETS, END, START, table, write
from tests.attack.runner import GOOD, run

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and limits are of POSIX")


@pytest.mark.parametrize(
    ("kind", "count", "timeout"), [(kind, *limits) for kind, limits in BUDGETS["ci"].items()]
)
def test_nothing_is_torn_silent_foreign_or_hung(kind, count, timeout):
    tally = run(kind, count, 0, timeout)
    assert tally.tried == count
    assert set(tally.counts) <= set(GOOD), "\n".join(tally.bad)


def test_the_runner_tells_every_end_from_every_other():
    tally = run("pretence", 7, 0, timeout=3)
    assert dict(tally.counts) == {"fine": 2, "clean error": 1, "foreign": 3, "hung": 1}
    assert [line.split(":")[0] for line in tally.bad] == [f"pretence {n}" for n in (2, 3, 4, 5)]


def test_the_same_seed_makes_the_same_trials():
    first, second = (run("hostile_files", 12, 7, timeout=20) for _ in range(2))
    assert (first.counts, first.bad) == (second.counts, second.bad)


def test_counts_are_written_between_the_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{START}\nold\n{END}\nafter\n")
    text = table([run("pretence", 2, 0, timeout=3)])
    assert "| pretence | 2 | 1 | 1 | 0 | 0 | 0 | 0 |" in text
    write(page, text)
    assert page.read_text() == f"before\n{START}\n{text}\n{END}\nafter\n"
    page.write_text("no place")
    with pytest.raises(SystemExit, match="has no place marked"):
        write(page, text)
