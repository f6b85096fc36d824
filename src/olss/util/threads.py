"""Parts worked on by several threads, put together in their order whatever their number.

A matrix product that runs on all cores leaves what is between products, copies and sums, to one of
them, and spins where it is small. So parts are worked on side by side, as many as BLAS may have
threads, and BLAS has one thread in each: what comes of a part does not depend on how many others
are worked on, and what comes of all is put together in the order of the parts. Whoever gives BLAS
one thread, by `threadpoolctl` or the environment, gets one thread here, too.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from functools import cached_property
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from threadpoolctl import ThreadpoolController

__all__ = ["in_turn", "one_blas_thread"]

P = TypeVar("P")
R = TypeVar("R")

# Each thread has memory of its own, so that neither may grow with the machine.
MOST_THREADS = 8
MOST_BYTES = 256_000_000
# Beyond, several BLAS threads on one matrix are worth their waking up and spinning afterwards.
WIDE = 1024
_NONE: Any = object()


def in_turn(
    parts: Sequence[P],
    work: Callable[[Iterator[P]], Iterator[R]],
    take: Callable[[R], object] | None = None,
    *,
    bytes_each: int = 0,
) -> None:
    """Work on parts side by side, and take what comes of them one at a time, in their order.

    Parameters
    ----------
    parts : sequence
    work : generator function
        Is given parts and yields one result for each. It runs once in every thread, each time with
        some of the parts, at most one result ahead of those taken.
    take : function of a result, optional
    bytes_each : int
        Memory that each thread has of its own. If it is so much that there is room for one thread
        only, BLAS keeps those it has.

    Examples
    --------
    >>> def squares(numbers):
    ...     for number in numbers:
    ...         yield number**2
    >>> found = []
    >>> in_turn([3, 1, 2], squares, found.append)
    >>> found
    [9, 1, 4]
    """
    most = min(MOST_THREADS, MOST_BYTES // max(bytes_each, 1))
    if most <= 1:
        _Line(parts, work, take).done_by(1)
        return
    with _blas.alone() as threads:
        _Line(parts, work, take).done_by(min(threads, most, len(parts)))


def one_blas_thread(columns: int) -> AbstractContextManager[object]:
    """Give BLAS one thread for work on matrices of so many columns, if these are not many."""
    return _blas.alone() if columns <= WIDE else nullcontext()


class _Line(Generic[P, R]):
    """Parts in line, each taken up by the first thread that is free."""

    def __init__(
        self,
        parts: Sequence[P],
        work: Callable[[Iterator[P]], Iterator[R]],
        take: Callable[[R], object] | None,
    ) -> None:
        self._next = iter(enumerate(parts))
        self._work = work
        self._take = take
        self._results: dict[int, R] = {}
        self._taken = 0
        self._error: BaseException | None = None
        self._asking = threading.Lock()
        self._moved = threading.Condition()

    def done_by(self, threads: int) -> None:
        """Work until all is done, on this thread and others; raise what was raised first."""
        try:
            helpers = [helper for _ in range(threads - 1) for helper in self._helper()]
            self._help()
            for helper in helpers:
                helper.join()
        except BaseException as error:  # of this thread, while it did no work
            self._stop(error)
        if self._error is not None:
            raise self._error

    def _helper(self) -> list[threading.Thread]:
        def run() -> None:
            if self._error is None:
                _blas.set_one()
            self._help()

        # What NumPy does about overflow is set for a context, which threads do not inherit.
        helper = threading.Thread(target=copy_context().run, args=(run,), daemon=True)
        try:
            helper.start()
        except RuntimeError:  # no more are to be had, as when the interpreter ends
            return []
        return [helper]

    def _help(self) -> None:
        number = before = -1

        def mine() -> Iterator[P]:
            nonlocal number
            while self._error is None:
                with self._asking:
                    number, part = next(self._next, (-1, _NONE))
                if part is _NONE:
                    return
                yield part

        try:
            for result in self._work(mine()):
                if self._take is not None:
                    self._give(number, result, self._take, before)
                before = number
        except BaseException as error:
            self._stop(error)

    def _give(self, number: int, result: R, take: Callable[[R], object], before: int) -> None:
        """Have a result taken when it is its turn; wait until the one before has been."""
        with self._moved:
            self._results[number] = result
            while self._error is None and self._taken in self._results:
                take(self._results.pop(self._taken))
                self._taken += 1
                self._moved.notify_all()
            self._moved.wait_for(lambda: self._taken > before or self._error is not None)

    def _stop(self, error: BaseException) -> None:
        with self._moved:
            self._error = self._error or error
            self._moved.notify_all()


class _User:
    """Somebody who wants BLAS to have one thread."""


class _Blas:
    """The threads of NumPy's and SciPy's BLAS, which are one setting for the whole process."""

    def __init__(self) -> None:
        self._threads: list[int] = []
        self._given_one = False
        self.begin()

    def begin(self) -> None:
        """Begin with nobody asking, as in a child process, which has one thread only."""
        self._lock = threading.RLock()  # a signal handler may come in again
        # Weak, since who is interrupted on the way out does not sign off.
        self._users: WeakSet[_User] = WeakSet()

    @cached_property
    def _pools(self) -> list[Any]:
        # To look for them takes much longer than to set them.
        return list(ThreadpoolController().select(user_api="blas").lib_controllers)

    @contextmanager
    def alone(self) -> Iterator[int]:
        """Give BLAS one thread for as long as anybody asks for it; say how many it had.

        It is one, too, if another thread decides about BLAS and did not give it one.
        """
        me = _User()
        try:
            with self._lock:
                first = not self._users
                if first:
                    if self._given_one and set(self._now()) == {1}:
                        self._set(self._threads)  # the last user was interrupted on the way out
                    self._threads = self._now()
                self._users.add(me)
                if first:
                    self._given_one = True
                    self._set([1] * len(self._threads))
            yield min(self._threads, default=1) if set(self._now()) == {1} else 1
        finally:
            with self._lock:
                if set(self._users) == {me}:
                    self._set(self._threads)
                    self._given_one = False
                self._users.discard(me)

    def _now(self) -> list[int]:
        return [pool.num_threads for pool in self._pools]

    def _set(self, threads: list[int]) -> None:
        for pool, count in zip(self._pools, threads, strict=True):
            pool.set_num_threads(count)
            # Whoever sets threads alone decides about them until this is said.
            getattr(pool, "clear_controlling_thread", lambda: None)()

    def set_one(self) -> None:
        """Give BLAS one thread where each thread has a number of its own, as with OpenMP."""
        if set(self._now()) != {1}:
            self._set([1] * len(self._pools))


_blas = _Blas()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_blas.begin)
