"""Whatever interrupts an operation, and whenever: the sketch is as before, or it is done."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_info

import olss
from olss.errors import DataError
from olss.sketch import Sketch
from tests.sketches import fed, fingerprint, stream

*BEFORE, LAST = stream(rows=300)


def table(rows, seed):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {"a": rng.standard_normal(rows), "t": rng.choice(["x", "y"], rows), "y": rng.random(rows)}
    )


def of_arrays(policy="weighted"):
    return fed(Sketch(100, policy, seed=0), BEFORE)


def of_tables():
    return Sketch(100, seed=0).update(table(1500, 0), y="y")


OPERATIONS = {
    "update": (of_arrays, lambda sketch: sketch.update(**LAST)),
    "a row that waits": (of_arrays, lambda sketch: sketch.update(**stream(1, 2)[0])),
    "update of a table": (of_tables, lambda sketch: sketch.update(table(1500, 1), y="y")),
    "balanced": (lambda: of_arrays("balanced"), lambda sketch: sketch.update(**LAST)),
    "merge": (of_arrays, lambda sketch: sketch.merge(fed(Sketch(100, seed=9), [LAST]))),
    "remove": (of_arrays, lambda sketch: sketch.remove(sketch.index[:70].copy())),
    "remove from a table": (of_tables, lambda sketch: sketch.remove(where={"t": "x"})),
}


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


class Interrupted(BaseException):
    """As a signal handler may raise it."""


PACKAGE = str(Path(olss.__file__).parent)


def interrupted_at(event, operation):
    """Raise at the n-th instant in the package; return whether there is one, and it was raised.

    Instants are those at which CPython handles signals: where a function begins, and where one
    written in C has returned.
    """
    left = event

    def profile(frame, what, argument):
        nonlocal left
        if what in ("call", "c_return") and frame.f_code.co_filename.startswith(PACKAGE):
            left -= 1
            if left == 0:
                raise Interrupted

    sys.setprofile(profile)
    try:
        operation()
    except Interrupted:
        return True, True
    finally:
        sys.setprofile(None)
    return left <= 0, False


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.filterwarnings("ignore")
def test_an_interrupted_operation_changes_nothing(name):
    make, operation = OPERATIONS[name]
    threads = blas_threads()
    start = make()
    before = fingerprint(start)
    done = start.copy()
    operation(done)
    after = fingerprint(done)
    assert before != after
    event, stride = 1, 1
    while True:
        sketch = start.copy()
        came, raised = interrupted_at(event, lambda sketch=sketch: operation(sketch))
        found = fingerprint(sketch)
        # Once removed rows are being overwritten, there is no way back: it is done.
        is_done = name.startswith("remove") and raised and found == after
        assert found == (before if raised and not is_done else after), f"at event {event}"
        if not came:
            break
        if raised and not is_done:
            operation(sketch)
            assert fingerprint(sketch) == after
        # Every instant of a short operation, a hundred or so of a long one, other ones each time.
        stride = max(1, event // 40)
        event += stride
    # The last instants, in which the new state takes the place of the old, one by one.
    for last in range(max(1, event - stride), event):
        sketch = start.copy()
        _, raised = interrupted_at(last, lambda sketch=sketch: operation(sketch))
        found = fingerprint(sketch)
        is_done = name.startswith("remove") and raised and found == after
        assert found == (before if raised and not is_done else after), f"at event {last}"
    assert blas_threads() == threads


def test_threads_that_update_one_sketch_lose_and_mix_nothing():
    sketch = Sketch(10_000, "reservoir", seed=0)
    barrier = threading.Barrier(3)

    def work(number):
        barrier.wait()
        for block in range(60):
            X = np.full((20, 2), 1000 * number + block, dtype=np.float64)
            sketch.update(X, X[:, 0].astype(np.int64), task=number, extra={"id": X[:, 0]})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sketch.seen == len(sketch) == 3 * 60 * 20
    np.testing.assert_array_equal(sketch.X[:, 0], sketch.y)
    np.testing.assert_array_equal(sketch.X[:, 0], sketch.extra["id"])
    np.testing.assert_array_equal(sketch.y // 1000, sketch.task)
    assert sorted(sketch.index) == list(range(3600))


def test_an_update_that_fails_leaves_those_of_other_threads():
    sketch = Sketch(100, "reservoir", seed=0).update(np.ones((10, 2)))

    lock = sketch._lock

    class Between:
        """Lets another thread update in the instant in which the lock is given back."""

        def __enter__(self):
            return lock.__enter__()

        def __exit__(self, *error):
            lock.__exit__(*error)
            if error[0] is not None:
                thread = threading.Thread(target=sketch.update, args=(np.ones((20, 2)),))
                sketch._lock = lock
                thread.start()
                thread.join()

    sketch._lock = Between()
    with pytest.raises(DataError):
        sketch.update(np.ones((5, 3)))
    assert sketch.seen == 30


def test_two_sketches_that_merge_each_other_do_not_wait_for_ever():
    for _ in range(20):
        pair = [Sketch(50, "reservoir", seed=s).update(np.ones((2000, 2))) for s in (0, 1)]
        barrier = threading.Barrier(2)

        def work(one, other, barrier=barrier):
            barrier.wait()
            one.merge(other)

        threads = [
            threading.Thread(target=work, args=order, daemon=True) for order in (pair, pair[::-1])
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()


def test_removed_rows_are_gone_from_arrays_taken_before():
    X = np.arange(1.0, 401.0).reshape(200, 2)
    sketch = Sketch(200, "reservoir", seed=0).update(X)
    taken, copied = sketch.X, sketch.X.copy()
    gone = np.arange(0, 200)[::2]
    assert sketch.remove(gone) == 100
    assert (taken[::2] == 0).all()
    np.testing.assert_array_equal(taken[1::2], copied[1::2])
    np.testing.assert_array_equal(sketch.X, copied[1::2])
