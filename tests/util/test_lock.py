import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from olss.util.files import file_lock, lock_holder

HOLD = """
import sys, pathlib
from olss.util.files import file_lock
with file_lock(pathlib.Path(sys.argv[1])) as mine:
    print("got" if mine else "not", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def elsewhere(tmp_path):
    """Another process that holds the lock until it is told to let go."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path / "lock"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "got\n"
    yield process
    process.kill()
    process.communicate()


def test_one_process_holds_it_and_the_others_know_which(tmp_path, elsewhere):
    with file_lock(tmp_path / "lock") as mine:
        assert not mine
    found = lock_holder(tmp_path / "lock")
    assert found.pid == elsewhere.pid
    assert timedelta(0) <= datetime.now(UTC) - found.since < timedelta(minutes=1)
    assert str(found).startswith(f"process {elsewhere.pid}, since 20")


def test_waiting_says_for_whom_and_ends_when_the_lock_is_free(tmp_path, elsewhere):
    told = []

    def let_go(words):
        told.append(words)
        elsewhere.stdin.write("\n")
        elsewhere.stdin.flush()

    with file_lock(tmp_path / "lock", wait=True, waiting=let_go) as mine:
        assert mine
        assert lock_holder(tmp_path / "lock").pid == os.getpid()
    assert len(told) == 1
    assert str(elsewhere.pid) in told[0]


def test_waiting_may_have_an_end(tmp_path, elsewhere):
    start = time.monotonic()
    with file_lock(tmp_path / "lock", wait=0.3) as mine:
        assert not mine
    assert 0.3 <= time.monotonic() - start < 10
    assert lock_holder(tmp_path / "lock").pid == elsewhere.pid  # whoever gave up took nothing away


def test_it_is_free_once_its_holder_was_killed(tmp_path, elsewhere):
    elsewhere.kill()
    elsewhere.wait()
    with file_lock(tmp_path / "lock") as mine:
        assert mine
    assert lock_holder(tmp_path / "lock") is None


def test_what_is_no_name_of_a_holder_is_none(tmp_path):
    assert lock_holder(tmp_path / "absent") is None
    for content in ("", "{}", "[1]", '{"pid": "x", "since": 1, "machine": "a"}', "\x00"):
        (tmp_path / "lock").write_text(content)
        assert lock_holder(tmp_path / "lock") is None
    with file_lock(tmp_path / "lock") as mine:
        assert mine
