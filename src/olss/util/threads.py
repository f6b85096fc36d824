"""Parts worked on by several threads, put together in their order whatever their number.

A matrix product that runs on all cores leaves what is between products, copies and sums, to one of
them, and spins where it is small. So parts are worked on side by side, as many as BLAS may have
threads, and BLAS has one thread in each: what comes of a part does not depend on how many others
are worked on, and what comes of all is put together in the order of the parts. Whoever gives BLAS
one thread, by `threadpoolctl` or the environment, gets one thread here, too.

A signal handler may raise at any instant, but CPython runs it, like other threads, only where a
function begins or a loop jumps back, and after a call has returned. What must not be torn is
therefore written without a call, or as one call of a function in C, such as ``list(map(...))``.
Nothing here takes a lock, so none can stay locked.
"""

from __future__ import annotations

import ctypes
import os
from _thread import start_new_thread
from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from functools import cache
from itertools import count, product, repeat
from operator import call
from queue import SimpleQueue
from typing import NamedTuple, TypeVar

from threadpoolctl import ThreadpoolController

__all__ = ["in_turn", "with_blas_threads", "with_one_blas_thread"]

P = TypeVar("P")
R = TypeVar("R")

# Each thread has memory of its own, so that neither may grow with the machine.
MOST_THREADS = 8
MOST_BYTES = 256_000_000
# Beyond, several BLAS threads on one matrix are worth their waking up and spinning afterwards.
WIDE = 1024


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
        Called by the caller's thread.
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

    def run(threads: int) -> None:
        if min(threads, len(parts)) <= 1 or not _side_by_side(parts, work, take, threads):
            for result in work(iter(parts)):
                if take is not None:
                    take(result)

    if most > 1:
        _hold(lambda threads: run(min(threads, most, len(parts))), MOST_THREADS)
    else:
        run(1)


def with_one_blas_thread(
    function: Callable[[], R], *, columns: int = 1, most: int = MOST_THREADS
) -> R:
    """Call a function while BLAS has one thread.

    Parameters
    ----------
    function : function without arguments
    columns : int
        Columns of its matrices. If these are many, BLAS keeps the threads it has.
    most : int
        Threads that `in_turn` may use meanwhile.
    """
    return _hold(lambda _: function(), most) if columns <= WIDE else function()


def with_blas_threads(threads: int, function: Callable[[], R]) -> R:
    """Call a function while BLAS has so many threads; `in_turn` then uses as many."""
    pools = [*_pools().shared, *_pools().own]
    before = list(map(call, [pool.get for pool in pools]))
    put_back = map(call, [pool.set for pool in pools], before)
    try:
        list(map(call, [pool.set for pool in pools], repeat(threads)))
        return function()
    finally:
        list(put_back)


def _side_by_side(
    parts: Sequence[P],
    work: Callable[[Iterator[P]], Iterator[R]],
    take: Callable[[R], object] | None,
    threads: int,
) -> bool:
    """Work on parts in other threads and take the results in this one.

    Returns False, with nothing done, where no thread can be started.
    """
    numbers = count()
    stopped = False
    errors: list[BaseException] = []
    ended: list[SimpleQueue[None]] = []
    # A thread puts a number, its result, and where it waits for the result to be taken; or None
    # when it ends.
    done: SimpleQueue[tuple[int, R, SimpleQueue[None]] | None] = SimpleQueue()
    rooms: list[SimpleQueue[None]] = [SimpleQueue() for _ in range(threads)]
    wake_all = map(SimpleQueue.put, rooms, repeat(None))

    def run(room: SimpleQueue[None]) -> None:
        number = -1

        def mine() -> Iterator[P]:
            nonlocal number
            while True:
                room.get()
                number = next(numbers)
                if stopped or number >= len(parts):
                    return
                yield parts[number]

        try:
            list(map(call, [pool.set for pool in _pools().own], repeat(1)))
            for result in work(mine()):
                done.put((number, result, room))
        except BaseException as error:
            errors.append(error)
        finally:
            ended.append(room)
            done.put(None)

    ready: dict[int, tuple[R, SimpleQueue[None]]] = {}
    taken = started = 0
    try:
        for room in rooms:
            room.put(None)
            room.put(None)
            try:
                # `threading.Thread` takes a lock of the whole process, in Python. What NumPy does
                # about overflow is set for a context, which threads do not inherit.
                start_new_thread(copy_context().run, (run, room))
            except RuntimeError:  # no more are to be had, as when the interpreter ends
                break
            started += 1
        while len(ended) < started or not done.empty():
            found = done.get()
            if errors:
                raise errors.pop(0)  # held by nothing here, or its frames would live on
            if found is None:
                continue
            ready[found[0]] = found[1:]
            while taken in ready:
                result, room = ready.pop(taken)
                if take is not None:
                    take(result)
                taken += 1
                room.put(None)
        return started > 0
    finally:
        stopped = True
        list(wake_all)
        while len(ended) < started:
            done.get()


class _Pool(NamedTuple):
    """The threads of a BLAS library: two functions in C, which do not let other threads run."""

    get: Callable[[], int]
    set: Callable[[int], object]


class _Pools(NamedTuple):
    """Those whose number of threads is one for the process, and those with one per thread."""

    shared: list[_Pool]
    own: list[_Pool]


_SYMBOLS = {
    "openblas": ("openblas_get_num_threads", "openblas_set_num_threads"),
    "flexiblas": ("flexiblas_get_num_threads", "flexiblas_set_num_threads"),
    "blis": ("bli_thread_get_num_threads", "bli_thread_set_num_threads"),
    "mkl": ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
}
_OPENMP = ("omp_get_max_threads", "omp_set_num_threads")


@cache  # to look for them takes much longer than to set them
def _pools() -> _Pools:
    """Return the BLAS libraries that are loaded."""
    pools = _Pools([], [])
    for info in ThreadpoolController().select(user_api="blas").info():
        own = info["internal_api"] == "openblas" and info["threading_layer"] == "openmp"
        names = _OPENMP if own else _SYMBOLS.get(info["internal_api"], ())
        library = ctypes.PyDLL(info["filepath"])
        for prefix, suffix in product(("", "scipy_"), ("", "64_", "_64")):
            whole = [f"{prefix}{name}{suffix}" for name in names]
            if whole and all(hasattr(library, name) for name in whole):
                (pools.own if own else pools.shared).append(_Pool(*(library[n] for n in whole)))
                break
    return pools


class _User(NamedTuple):
    """Somebody who wants BLAS to have one thread."""

    most: int
    key: object


class _State:
    """Who wants BLAS to have one thread, and what it had before, with what puts that back."""

    def __init__(self) -> None:
        self.users: set[_User] = set()
        self.before: tuple[list[int], Iterator[object]] | None = None


_state = _State()


def _hold(function: Callable[[int], R], most: int) -> R:
    """Give BLAS one thread for as long as anybody asks for it; pass on how many it had.

    `most` bounds that number, for other callers in the meantime, too.
    """
    state = _state
    shared, own = _pools()
    mine = {_User(most, object())}
    read = map(call, [pool.get for pool in shared])
    put_back: Iterator[object] = iter(())
    state.users |= mine
    try:
        if state.before is None:  # then no number read is one that was set here
            counts = list(read)
            state.before = counts, map(call, [pool.set for pool in shared], counts)
        counts = state.before[0] + [pool.get() for pool in own]
        put_back = map(call, [pool.set for pool in own], counts[len(shared) :])
        list(map(call, [pool.set for pool in (*shared, *own)], repeat(1)))
        allowed = min(user.most for user in list(state.users))
        return function(min([*counts, allowed]) if counts else 1)
    finally:
        try:
            list(put_back)
        finally:
            state.users -= mine
            if not state.users and state.before is not None:
                last, state.before = state.before, None
                list(last[1])


if hasattr(os, "register_at_fork"):
    # A child has one thread only; what others held is put back with what comes next.
    os.register_at_fork(after_in_child=_state.users.clear)
