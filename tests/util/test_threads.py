"""Parts worked on side by side: in order, to the byte, and leaving BLAS as it was."""

import gc
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  its BLAS is one of those that are looked at
from threadpoolctl import threadpool_info, threadpool_limits

from olss.util import threads
from olss.util.threads import in_turn, one_blas_thread

PARTS = list(range(40))


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def uneven(numbers):
    for number in numbers:
        time.sleep(0.001 * (number % 3))
        yield number


@pytest.mark.parametrize("count", [1, 2, 3])
def test_results_are_taken_in_the_order_of_parts(count):
    taken = []
    with threadpool_limits(count, user_api="blas"):
        in_turn(PARTS, uneven, taken.append)
    assert taken == PARTS


def test_a_thread_is_at_most_one_result_ahead_of_those_taken():
    ahead, most = 0, 0

    def work(numbers):
        nonlocal ahead, most
        for number in numbers:
            time.sleep(0.05 if number == 0 else 0)
            ahead += 1
            most = max(most, ahead)
            yield number

    def take(number):
        nonlocal ahead
        ahead -= 1

    with threadpool_limits(3, user_api="blas"):
        in_turn(PARTS, work, take)
    assert ahead == 0
    assert most <= 2 * 3


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (2, 2), (3, 3)])
def test_there_are_as_many_threads_as_blas_may_have_and_one_is_the_callers(count, expected):
    together = threading.Barrier(expected)
    found = set()

    def work(numbers):
        together.wait(timeout=30)
        for _ in numbers:
            found.add(threading.current_thread())
            assert set(blas_threads()) == {1}
            time.sleep(0.002)
            yield

    with threadpool_limits(count, user_api="blas"):
        in_turn(PARTS, work)
        assert set(blas_threads()) == {count}
    assert len(found) == expected
    assert threading.current_thread() in found


def test_there_are_no_more_threads_than_memory_allows(monkeypatch):
    monkeypatch.setattr(threads, "MOST_BYTES", 100)
    found = set()

    def work(numbers):
        for _ in numbers:
            found.add((threading.current_thread(), *blas_threads()))
            yield

    with threadpool_limits(2, user_api="blas"):
        in_turn(PARTS, work, bytes_each=60)
        assert found == {(threading.current_thread(), *blas_threads())}


@pytest.mark.parametrize("where", ["work", "take"])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_is_raised_ends_the_work_and_leaves_blas_as_it_was(where, count, error):
    taken = []

    def work(numbers):
        for number in numbers:
            if where == "work" and number == 5:
                raise error
            yield number

    def take(number):
        if where == "take" and number == 5:
            raise error
        taken.append(number)

    before = threading.active_count()
    with threadpool_limits(count, user_api="blas"):
        with pytest.raises(error):
            in_turn(PARTS, work, take)
        assert set(blas_threads()) == {count}
    assert taken == PARTS[: len(taken)]
    assert len(taken) <= 5
    assert threading.active_count() == before


def test_threads_heed_what_numpy_was_told_about_overflow():
    def overflows(numbers):
        for _ in numbers:
            time.sleep(0.001)
            yield np.float32(3e38) * np.float32(10)

    with threadpool_limits(2, user_api="blas"):
        with np.errstate(over="raise"), pytest.raises(FloatingPointError):
            in_turn(PARTS, overflows)
        with np.errstate(over="ignore"):
            in_turn(PARTS, overflows)


def test_blas_has_its_threads_again_when_the_last_of_several_has_done():
    inside, leave = threading.Event(), threading.Event()

    def other():
        with one_blas_thread(1):
            inside.set()
            leave.wait(timeout=30)

    with threadpool_limits(2, user_api="blas"):
        thread = threading.Thread(target=other)
        with one_blas_thread(1):
            thread.start()
            inside.wait(timeout=30)
        assert set(blas_threads()) == {1}
        leave.set()
        thread.join()
        assert set(blas_threads()) == {2}


def test_blas_has_its_threads_again_after_one_that_was_interrupted_on_the_way_out(monkeypatch):
    def interrupted(threads):
        raise KeyboardInterrupt

    with threadpool_limits(2, user_api="blas"):
        with monkeypatch.context() as p, pytest.raises(KeyboardInterrupt), one_blas_thread(1):
            p.setattr(threads._blas, "_set", interrupted)
        assert set(blas_threads()) == {1}
        gc.collect()
        with one_blas_thread(1):
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {2}


def test_where_no_thread_can_be_started_the_caller_does_it_all(monkeypatch):
    def none(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none)
    taken = []
    with threadpool_limits(2, user_api="blas"):
        in_turn(PARTS, uneven, taken.append)
    assert taken == PARTS


SCORES = """
import atexit, multiprocessing, sys
import numpy as np, olss
from olss.core import row_blocks
row_blocks.PIECE_BYTES = 50_000
A = np.random.default_rng(0).standard_normal((3_000, 20))
def score(*_):
    print(float(olss.leverage_scores(A).sum()), flush=True)
"""


@pytest.mark.parametrize(
    "then",
    [
        "atexit.register(score)",
        "score()\nprocess = multiprocessing.get_context('fork').Process(target=score)\n"
        "process.start(); process.join(); sys.exit(process.exitcode)",
    ],
    ids=["at the end of the interpreter", "in a forked child"],
)
@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_scores_are_to_be_had(then):
    done = subprocess.run(
        [sys.executable, "-c", SCORES + then], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert all(abs(float(line) - 20) < 1e-6 for line in done.stdout.split())
    assert done.stdout
