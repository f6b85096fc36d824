"""Parts worked on side by side: in order, to the byte, and leaving BLAS as it was."""

import random
import signal
import subprocess
import sys
import threading
import time
import timeit
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest
import scipy.linalg  # its BLAS is one of those that are looked at
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

import olss
from olss.util import threads
from olss.util.threads import (
    cached_property,
    call_with_blas_threads,
    call_with_one_blas_thread,
    ordered_map,
)

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
        ordered_map(PARTS, uneven, taken.append)
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
        ordered_map(PARTS, work, take)
    assert ahead == 0
    assert most <= 2 * 3


@pytest.mark.parametrize("count", [1, 2, 3])
def test_there_are_as_many_threads_as_blas_may_have_and_each_has_one_of_blas(count):
    together = threading.Barrier(count)
    found = set()

    def work(numbers):
        together.wait(timeout=30)
        for _ in numbers:
            found.add(threading.current_thread())
            assert set(blas_threads()) == {1}
            time.sleep(0.002)
            yield

    with threadpool_limits(count, user_api="blas"):
        ordered_map(PARTS, work)
        assert set(blas_threads()) == {count}
    assert len(found) == count


def test_work_that_yields_too_few_results_ends():
    def none(numbers):
        for _ in numbers:
            return
        yield

    with threadpool_limits(2, user_api="blas"):
        ordered_map(PARTS, none)


def test_memory_that_a_result_is_in_may_be_used_again_after_the_next_one():
    def work(numbers):
        room = np.zeros(2)
        for turn, number in enumerate(numbers):
            room[turn % 2] = number
            yield room[turn % 2 :][:1]
            time.sleep(0.001 * (number % 4))

    taken = []
    with threadpool_limits(3, user_api="blas"):
        ordered_map(PARTS, work, lambda result: taken.append(int(result[0])))
    assert taken == PARTS


def test_there_are_no_more_threads_than_memory_allows(monkeypatch):
    monkeypatch.setattr(threads, "MAX_BYTES", 100)
    found = set()

    def work(numbers):
        for _ in numbers:
            found.add((threading.current_thread(), *blas_threads()))
            yield

    with threadpool_limits(2, user_api="blas"):
        ordered_map(PARTS, work, bytes_each=60)
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
            ordered_map(PARTS, work, take)
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
            ordered_map(PARTS, overflows)
        with np.errstate(over="ignore"):
            ordered_map(PARTS, overflows)


def test_blas_has_its_threads_again_when_the_last_of_several_has_done():
    inside, leave = threading.Event(), threading.Event()

    def other():
        inside.set()
        leave.wait(timeout=30)

    def first():
        thread.start()
        inside.wait(timeout=30)

    with threadpool_limits(2, user_api="blas"):
        thread = threading.Thread(target=call_with_one_blas_thread, args=(other,))
        call_with_one_blas_thread(first)
        assert set(blas_threads()) == {1}
        leave.set()
        thread.join()
        assert set(blas_threads()) == {2}


def test_threads_that_come_and_go_all_the_time_leave_blas_as_it_was():
    wrong = []

    def work():
        for _ in range(300):
            call_with_one_blas_thread(lambda: wrong.extend(n for n in fast_counts() if n != 1))

    fast_counts = counter()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with threadpool_limits(2, user_api="blas"):
            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert set(blas_threads()) == {2}
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


def test_each_library_has_its_own_number_again():
    libraries = [pool["filepath"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    if len(libraries) < 2:
        pytest.skip("NumPy and SciPy share one BLAS here")
    with threadpool_limits({libraries[0]: 3, libraries[1]: 2}):
        before = blas_threads()
        assert set(before) == {2, 3}
        call_with_one_blas_thread(lambda: None)
        assert blas_threads() == before


def test_callers_may_bound_the_threads_of_all():
    def threads_used():
        found = set()
        ordered_map(PARTS, lambda numbers: (found.add(threading.current_thread()) for _ in numbers))
        return found

    with threadpool_limits(2, user_api="blas"):
        assert threading.current_thread() not in threads_used()
        alone = call_with_one_blas_thread(threads_used, most=1)
        assert alone == {threading.current_thread()}


@pytest.mark.parametrize("count", [1, 3])
def test_blas_has_as_many_threads_as_asked_for_and_then_those_it_had(count):
    with threadpool_limits(2, user_api="blas"):
        assert set(call_with_blas_threads(count, blas_threads)) == {count}
        with pytest.raises(ZeroDivisionError):
            call_with_blas_threads(count, lambda: 1 / 0)
        assert set(blas_threads()) == {2}


def counter():
    """Return a function that tells the threads of each BLAS much faster than a search for them."""
    pools = ThreadpoolController().select(user_api="blas").lib_controllers
    return lambda: [pool.get_num_threads() for pool in pools]


class RaisedError(Exception):
    """What a signal handler raises."""


def product_of_parts():
    X = np.ones((50, 10))
    ordered_map(range(4), lambda numbers: (X.T @ X for _ in numbers), lambda result: None)


def linear_algebra():
    call_with_one_blas_thread(lambda: scipy.linalg.cholesky(np.eye(8)))


def nested():
    call_with_one_blas_thread(product_of_parts)


# What is raised in a callback of the garbage collector, such as Dask's, goes nowhere.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers here")
@pytest.mark.parametrize("work", [product_of_parts, linear_algebra, nested])
def test_a_signal_handler_that_raises_leaves_blas_as_it_was(work):
    """Thousands of real signals at random instants: settings as before, nothing left waiting."""
    rng = random.Random(0)
    counts = counter()
    armed = False

    def handle(*_):
        if armed:
            raise RaisedError

    before = signal.signal(signal.SIGALRM, handle)
    length = min(timeit.repeat(work, number=1, repeat=20))
    threads = threading.active_count()
    raised = 0
    try:
        with threadpool_limits(2, user_api="blas"):
            for trial in range(20_000):
                if trial >= 2_000 and raised > 100:  # on a busy machine signals often come late
                    break
                try:
                    armed = True
                    signal.setitimer(signal.ITIMER_REAL, 1e-6 + rng.random() * length)
                    work()
                    armed = False
                except RaisedError:
                    raised += 1
                    armed = False
                assert counts() == [2] * len(counts()), f"after trial {trial}"
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert raised > 100
    time.sleep(0.1)
    assert threading.active_count() == threads
    taken = []
    ordered_map(PARTS, uneven, taken.append)
    assert taken == PARTS


def test_public_calls_leave_thread_settings_as_they_were(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2_000, 20))
    np.save(tmp_path / "good.npy", X)
    (tmp_path / "bad.npy").write_bytes((tmp_path / "good.npy").read_bytes()[:9_000])
    holed = X.copy()
    holed[1_900, 3] = np.inf

    def fail(pool, rng):
        pool.leverage()
        raise RuntimeError

    def squeeze(name):
        return olss.compress(tmp_path / name, into=tmp_path / "out.parquet", size=50, fresh=True)

    def fit():
        return olss.Sketch(50, seed=0).update(X, X[:, 0]).linear_model()

    with threadpool_limits(2, user_api="blas"):
        before = threadpool_info()
        for call, error in (
            (lambda: olss.leverage_scores(X), None),
            (lambda: olss.leverage_scores(holed), olss.DataError),
            (lambda: olss.Sketch(50, seed=0).update(X).error(), None),
            (lambda: olss.Sketch(50, seed=0).update(holed), olss.DataError),
            (lambda: olss.Sketch(50, policy=fail, seed=0).update(X), RuntimeError),
            (fit, None),
            (lambda: squeeze("good.npy"), None),
            (lambda: squeeze("bad.npy"), olss.OlssError),
        ):
            with nullcontext() if error is None else pytest.raises(error):
                call()
            assert threadpool_info() == before


def test_where_no_thread_can_be_started_the_caller_does_it_all(monkeypatch):
    def none(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "start_new_thread", none)
    taken = []
    with threadpool_limits(2, user_api="blas"):
        ordered_map(PARTS, uneven, taken.append)
    assert taken == PARTS


SCORES = """
import atexit, multiprocessing, sys
import numpy as np, olss
from olss.core import blocks
blocks.PIECE_BYTES = 50_000
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


def test_threads_compute_attributes_of_different_objects_at_the_same_time():
    together = threading.Barrier(2)

    class Slow:
        @cached_property
        def answer(self):
            """Wait for the other."""
            together.wait(timeout=20)
            return object()

    pair = Slow(), Slow()
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda slow: slow.answer, pair))
    assert [slow.answer for slow in pair] == answers  # computed once
    assert Slow.answer.__doc__ == "Wait for the other."
