"""A Dask cluster: connecting to it, waiting for what it makes, saying what is wrong with it.

Dask waits in silence for a scheduler that is not there, for workers that all died and for an
address that cannot be one; a person in front of a terminal should not.
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

__all__ = ["LOOK_SECONDS", "ClusterLostError", "ClusterWatch", "connect", "import_distributed"]

CONNECT_SECONDS = 10.0  # until a scheduler that does not answer is given up
LOOK_SECONDS = 2.0  # between two looks at a cluster that is waited for
TELL_SECONDS = 10.0  # without any worker until it is told: a worker that died may be replaced
GIVE_UP_SECONDS = 300.0  # without any worker until the wait ends

ADDRESS = re.compile(
    r"(?:(?:tcp|tls|ws|wss)://)?(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})"
)
log = logging.getLogger(__name__)


class ClusterLostError(OlssError):
    """The scheduler or all workers of a Dask cluster are gone."""


def import_distributed(purpose: str) -> Any:
    """Return the package dask.distributed, or say how to get it."""
    try:
        return import_module("distributed")
    except ImportError as error:
        raise MissingExtraError("dask.distributed", "dask", purpose) from error


def connect(address: str, purpose: str = "working on a cluster") -> Any:
    """Return a client of the Dask scheduler at an address; a context manager that closes it.

    Raises
    ------
    InputError
        At once if it is no address; within `CONNECT_SECONDS` if nobody answers there, or
        somebody who is no Dask scheduler, or a scheduler without workers.

    Examples
    --------
    >>> connect("here")
    Traceback (most recent call last):
    olss.errors.InputError: scheduler must be an address such as tcp://10.0.0.5:8786, found 'here'.
    """
    distributed = import_distributed(purpose)
    # What goes wrong is said below, in one line instead of Dask's forty.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    if not address.startswith("inproc://"):  # a cluster inside this process
        _check_answers(address)
    try:
        client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(_nobody(address, f"no Dask scheduler: {error}")) from error
    workers = _workers(client)
    if not workers:
        client.close()
        raise InputError(
            f"scheduler: {address!r} has no workers. Start some with `dask worker {address}`."
        )
    log.info("connected to the Dask scheduler at %s with %d workers", address, workers)
    return client


def _check_answers(address: str) -> None:
    found = ADDRESS.fullmatch(address)
    if not found or not 0 < int(found["port"]) < 65_536:
        raise InputError(
            f"scheduler must be an address such as tcp://10.0.0.5:8786, found {address!r}."
        )
    try:
        place = (found["host"].strip("[]"), int(found["port"]))
        with socket.create_connection(place, timeout=CONNECT_SECONDS) as line:
            # A scheduler speaks first, unless what is said is to be encrypted or wrapped.
            if not address.startswith(("tls:", "ws:", "wss:")) and not line.recv(1):
                raise OSError("whoever does is no Dask scheduler")
    except (OSError, UnicodeError) as error:
        raise InputError(_nobody(address, str(error))) from error


def _nobody(address: str, why: str) -> str:
    return (
        f"scheduler: nobody answers at {address!r} ({why}). Start one with `dask scheduler` and "
        "give the address it prints."
    )


def _workers(client: Any) -> int:
    return len(client.scheduler_info(n_workers=-1)["workers"])


class ClusterWatch:
    """Looks after a cluster while something is waited for.

    Parameters
    ----------
    client : distributed.Client
    say : callable
        Told once, in words, when no worker is left.
    """

    def __init__(self, client: Any, say: Callable[[str], None]) -> None:
        self.client, self.say = client, say
        self._alone_since: float | None = None
        self._said = False

    def look(self) -> None:
        """Raise a `ClusterLostError` if the scheduler is lost, or no worker came for long."""
        if self.client.status != "running":
            raise self.lost()
        try:
            workers = _workers(self.client)
        except (OSError, AttributeError) as error:  # the connection broke while it was asked
            raise self.lost() from error
        if workers:
            self._alone_since, self._said = None, False
            return
        now = time.monotonic()
        self._alone_since = self._alone_since or now
        if now - self._alone_since > GIVE_UP_SECONDS:
            raise ClusterLostError(
                f"the Dask cluster has had no worker for {GIVE_UP_SECONDS:.0f} s. Start some with "
                f"`dask worker {self.client.scheduler.address}` and give the same command again."
            )
        if now - self._alone_since > TELL_SECONDS and not self._said:
            self._said = True
            self.say(
                "all workers of the Dask cluster are gone; waiting "
                f"{GIVE_UP_SECONDS / 60:.0f} minutes for others."
            )

    def result(self, future: Any) -> Any:
        """Return what a task makes; look at the cluster until it does."""
        distributed = import_module("distributed")
        while not future.done():
            with contextlib.suppress(Exception):  # raised again below, once it is known whose
                future.result(timeout=LOOK_SECONDS)
            if not future.done():
                self.look()
        try:
            return future.result()
        except distributed.CancelledError as error:
            raise self.lost() from error
        except distributed.KilledWorker as error:
            raise OlssError(
                "the cluster gave up: several workers died at the same work, most likely of too "
                f"little memory ({error})."
            ) from error

    def lost(self) -> ClusterLostError:
        """Return the error that says the scheduler is gone."""
        return ClusterLostError(
            "the Dask scheduler was lost. Start it again; the same command does what is left."
        )
