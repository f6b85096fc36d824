"""What is wrong with a cluster is said at once and in a line."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from olss.errors import InputError
from olss.util import dask
from olss.util.dask import ClusterLostError, ClusterWatch, connect

pytest.importorskip("distributed")


@pytest.mark.parametrize(
    "address",
    ["", "nonsense", "tcp://", "tcp://127.0.0.1", "foo://host:1", "tcp://host:99999", "a b:1",
     "tcp://host:port", "tcp://host:0", "http://10.0.0.5:8786/status", "\x1b[31m:80"],
)  # fmt: skip
def test_what_is_no_address_is_refused_at_once(address: str) -> None:
    began = time.monotonic()
    with pytest.raises(InputError, match="scheduler must be an address such as") as caught:
        connect(address)
    assert repr(address) in str(caught.value)
    assert time.monotonic() - began < 1


def test_nobody_there_is_told_at_once_and_without_noise(capfd: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        began = time.monotonic()
        with pytest.raises(InputError, match="no Dask scheduler at"):
            connect(f"tcp://127.0.0.1:{taken.getsockname()[1]}")
    assert time.monotonic() - began < 1
    assert capfd.readouterr().err == ""


def test_somebody_who_is_no_scheduler_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask, "CONNECT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        began = time.monotonic()
        with pytest.raises(InputError, match="no Dask scheduler at"):
            connect(f"127.0.0.1:{mute.getsockname()[1]}")
        assert time.monotonic() - began < 3


class FakeClient:
    """A client whose scheduler has as many workers as the test says."""

    def __init__(self, workers: Iterator[int]) -> None:
        self.status, self.workers = "running", workers
        self.scheduler = SimpleNamespace(address="tcp://10.0.0.5:8786")

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        return {"workers": dict.fromkeys(range(next(self.workers)))}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    made = SimpleNamespace(now=0.0, monotonic=lambda: made.now)
    monkeypatch.setattr(dask, "time", made)
    return made


def test_workers_gone_are_told_once_and_given_up_in_the_end(clock: SimpleNamespace) -> None:
    told: list[str] = []
    counts = iter([2, 0, 0, 2, 0, 0, 0, 0])
    watch = ClusterWatch(FakeClient(counts), told.append)
    for clock.now in (0, 1, 10, 12, 13, 24, 30):
        watch.check()
        # Two short gaps of up to ten seconds are a worker being replaced.
        assert len(told) == (clock.now > 23)
    assert "all workers of the Dask cluster are gone" in told[0]
    clock.now = 13 + dask.GIVE_UP_SECONDS + 1
    with pytest.raises(ClusterLostError, match=r"no worker for 300 s.*dask worker tcp://10.0.0.5"):
        watch.check()


def test_a_scheduler_that_is_gone_is_told() -> None:
    client = FakeClient(iter([1]))
    watch = ClusterWatch(client, print)
    watch.check()
    client.status = "connecting"
    with pytest.raises(ClusterLostError, match="the Dask scheduler was lost"):
        watch.check()
