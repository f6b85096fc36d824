"""Connect to a Dask cluster, wait for its results, and explain what is wrong with it.

Dask itself waits silently for a scheduler that is absent, for workers that all died and for an
address that cannot be one.
"""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from olss.errors import InputError, MissingExtraError, OlssError

CONNECT_SECONDS = 10.0  # how long to wait for a scheduler to respond
CHECK_SECONDS = 2.0  # between two checks of a cluster that is waited for
NOTIFY_SECONDS = 10.0  # without workers until it is reported: a dead worker may be replaced
GIVE_UP_SECONDS = 300.0  # without workers until the wait ends

ADDRESS = re.compile(
    r"(?:(?:tcp|tls|ws|wss)://)?(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})"
)
log = logging.getLogger(__name__)


class ClusterLostError(OlssError):
    """The scheduler or all workers of a Dask cluster are gone."""


def import_distributed(purpose: str) -> Any:
    """Return the package dask.distributed, or raise an error with the command that installs it."""
    try:
        return import_module("distributed")
    except ImportError as error:
        raise MissingExtraError("distributed", "dask", purpose) from error


def connect(address: str, purpose: str = "working on a cluster") -> Any:
    """Return a client of the Dask scheduler at an address; a context manager that closes it.

    Raises
    ------
    InputError
        At once if it is not an address; within `CONNECT_SECONDS` if there is no Dask scheduler at
        the address, or one without workers.

    Examples
    --------
    >>> connect("here")
    Traceback (most recent call last):
    olss.errors.InputError: scheduler must be an address such as tcp://10.0.0.5:8786, found 'here'.
    """
    distributed = import_distributed(purpose)
    # Errors are reported below, in one line instead of Dask's forty.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    if not address.startswith("inproc://"):  # a cluster inside this process
        _check_reachable(address)
    try:
        client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise _no_scheduler(address, error) from error
    workers = _count_workers(client)
    if not workers:
        client.close()
        raise InputError(
            f"scheduler: {address!r} has no workers. Start some with `dask worker {address}`."
        )
    log.info("connected to the Dask scheduler at %s with %d workers", address, workers)
    return client


def _check_reachable(address: str) -> None:
    match = ADDRESS.fullmatch(address)
    if not match or not 0 < int(match["port"]) < 65_536:
        raise InputError(
            f"scheduler must be an address such as tcp://10.0.0.5:8786, found {address!r}."
        )
    try:
        host_and_port = (match["host"].strip("[]"), int(match["port"]))
        with socket.create_connection(host_and_port, timeout=CONNECT_SECONDS) as connection:
            # A scheduler sends first, unless the connection is encrypted or a web socket.
            if not address.startswith(("tls:", "ws:", "wss:")) and not connection.recv(1):
                raise OSError("another program answered")
    except (OSError, UnicodeError) as error:
        raise _no_scheduler(address, error) from error


def _no_scheduler(address: str, reason: Exception) -> InputError:
    return InputError(
        f"scheduler: no Dask scheduler at {address!r} ({reason}). Start one with `dask scheduler` "
        "and give the address it prints."
    )


def _count_workers(client: Any) -> int:
    return len(client.scheduler_info(n_workers=-1)["workers"])


class ClusterWatch:
    """Checks a cluster while its results are waited for.

    Parameters
    ----------
    client : distributed.Client
    notify : callable
        Called once, with a message, when no worker is left.
    """

    def __init__(self, client: Any, notify: Callable[[str], None]) -> None:
        self.client, self.notify = client, notify
        self._without_workers_since: float | None = None
        self._notified = False

    def check(self) -> None:
        """Raise `ClusterLostError` if the scheduler is lost, or workers are gone for too long."""
        if self.client.status != "running":
            raise self.lost_error()
        try:
            workers = _count_workers(self.client)
        except (OSError, AttributeError) as error:  # the connection broke during the request
            raise self.lost_error() from error
        if workers:
            self._without_workers_since, self._notified = None, False
            return
        now = time.monotonic()
        self._without_workers_since = self._without_workers_since or now
        elapsed = now - self._without_workers_since
        if elapsed > GIVE_UP_SECONDS:
            raise ClusterLostError(
                f"the Dask cluster has had no worker for {GIVE_UP_SECONDS:.0f} s. Start some with "
                f"`dask worker {self.client.scheduler.address}` and run the same command again."
            )
        if elapsed > NOTIFY_SECONDS and not self._notified:
            self._notified = True
            self.notify(
                "all workers of the Dask cluster are gone; waiting "
                f"{GIVE_UP_SECONDS / 60:.0f} minutes for new ones."
            )

    def result(self, future: Any) -> Any:
        """Wait for a task and return its result, checking the cluster meanwhile."""
        distributed = import_module("distributed")
        while not future.done():
            with contextlib.suppress(Exception):  # raised again below, if it is the task's own
                future.result(timeout=CHECK_SECONDS)
            if not future.done():
                self.check()
        try:
            return future.result()
        except distributed.CancelledError as error:
            raise self.lost_error() from error
        except distributed.KilledWorker as error:
            raise OlssError(
                "the cluster gave up: several workers died on the same task, most likely because "
                f"they ran out of memory ({error})."
            ) from error

    def lost_error(self) -> ClusterLostError:
        """Return the error to raise when the scheduler is gone."""
        return ClusterLostError(
            "the Dask scheduler was lost. Start it again and run the same command: it resumes."
        )
