import os
import signal
import threading

import numpy as np
import pytest

import olss
from olss.common.uninterrupted import uninterrupted
from olss.memory.store import Rows


def test_an_interrupt_waits_for_the_end_of_the_block():
    done = []

    def work():
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("inside")
        done.append("after")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["inside"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_go_through():
    seen = []

    def work():
        with uninterrupted():
            seen.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [1]


def test_ctrl_c_while_rows_are_written_leaves_the_update_whole(monkeypatch):
    """The interrupt comes in the middle of the writing; rows, labels and counts still agree."""
    X = np.arange(300.0).reshape(100, 3) + 1
    sketch, calm = (olss.Sketch(20, policy="reservoir", seed=0) for _ in range(2))
    sketch.update(X, y=X[:, 0])
    calm.update(X, y=X[:, 0]).update(X + 7, y=X[:, 0] + 7)
    replace = Rows.replace

    def interrupted(self, *args):
        os.kill(os.getpid(), signal.SIGINT)
        return replace(self, *args)

    monkeypatch.setattr(Rows, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sketch.update(X + 7, y=X[:, 0] + 7)
    assert sketch.seen == 200
    np.testing.assert_array_equal(sketch.X[:, 0], sketch.y)
    np.testing.assert_array_equal(sketch.X, calm.X)
    np.testing.assert_array_equal(sketch.weight, calm.weight)
