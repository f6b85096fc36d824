"""Process parts in several threads, with results that do not depend on their number.

A BLAS product on all cores leaves the copies and sums between products to one of them, and spins
when it is small. So parts are processed in parallel, in as many threads as BLAS may have, with one
BLAS thread each, and results are combined in the order of the parts. If BLAS is limited to one
thread, by `threadpoolctl` or the environment, one thread is used here, too.

A signal handler may raise at any instant, but CPython runs it, like other threads, only where a
function begins or a loop jumps back, and after a call has returned. What must not be interrupted
is therefore written without a call, or as one call of a function in C, such as ``list(map(...))``.
Nothing here takes a lock, so none can stay locked.
"""

from __future__ import annotations

import ctypes
import os
import sys
from _thread import start_new_thread
from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from functools import cache, partial
from importlib import import_module
from itertools import count, product, repeat
from operator import call
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from threadpoolctl import ThreadpoolController

P = TypeVar("P")
R = TypeVar("R")

# Each thread has its own memory, so neither may grow with the machine.
MAX_THREADS = 8
MAX_BYTES = 256_000_000
# Matrices of more columns are worth several BLAS threads, and their spinning afterwards.
WIDE = 1024


if sys.version_info >= (3, 12) or TYPE_CHECKING:
    from functools import cached_property as cached_property
else:  # functools' takes a lock that all objects of a class share: threads compute in turn

    class cached_property:  # noqa: N801
        """An attribute computed when it is first asked for."""

        def __init__(self, function: Callable[[Any], Any]) -> None:
            self.function, self.__doc__ = function, function.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self.name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            found = vars(instance)[self.name] = self.function(instance)
            return found


def ordered_map(
    parts: Sequence[P],
    work: Callable[[Iterator[P]], Iterator[R]],
    take: Callable[[R], object] | None = None,
    *,
    bytes_each: int = 0,
    most: int = MAX_THREADS,
) -> None:
    """Process parts in parallel, and hand on the results one at a time, in order.

    BLAS has one thread meanwhile, as long as any call wants that.

    Parameters
    ----------
    parts : sequence
    work : generator function
        Is given an iterator of parts and yields one result for each. It runs once in every thread,
        each time with some of the parts, at most one result ahead of those taken.
    take : function of a result, optional
        Called in the caller's thread.
    bytes_each : int
        Memory that each thread needs. If there is room for one thread only, BLAS keeps its threads.
    most : int
        Bound on the number of threads, for other callers in the meantime, too.

    Examples
    --------
    >>> def squares(numbers):
    ...     for number in numbers:
    ...         yield number**2
    >>> found = []
    >>> ordered_map([3, 1, 2], squares, found.append)
    >>> found
    [9, 1, 4]
    """
    room = min(MAX_THREADS, MAX_BYTES // max(bytes_each, 1))
    state = _state
    shared, own = _pools()
    mine = {_User(most, object())} if room > 1 else set()
    read = map(call, [pool.get for pool in shared])
    put_back: Iterator[object] = iter(())
    threads = 1
    state.users |= mine
    try:
        if mine:
            if state.before is None:  # then no number read is one that was set here
                counts = list(read)
                state.before = counts, map(call, [pool.set for pool in shared], counts)
            counts = state.before[0] + [pool.get() for pool in own]
            put_back = map(call, [pool.set for pool in own], counts[len(shared) :])
            list(map(call, [pool.set for pool in (*shared, *own)], repeat(1)))
            allowed = min(user.most for user in list(state.users))
            threads = min([*counts, allowed, room, len(parts)]) if counts else 1
        if threads <= 1 or not _run_parallel(parts, work, take, threads):
            for result in work(iter(parts)):
                if take is not None:
                    take(result)
    finally:
        try:
            list(put_back)
        finally:
            state.users -= mine
            if not state.users and state.before is not None:
                last, state.before = state.before, None
                list(last[1])


def call_with_one_blas_thread(
    function: Callable[[], R], *, columns: int = 1, most: int = MAX_THREADS
) -> R:
    """Call a function while BLAS has one thread.

    Parameters
    ----------
    function : function without arguments
    columns : int
        Columns of its matrices; if there are more than `WIDE`, BLAS keeps its threads.
    most : int
        Threads that `ordered_map` may use meanwhile.
    """
    if columns > WIDE:
        return function()
    found: list[R] = []
    ordered_map([function], partial(map, call), found.append, most=most)
    return found[0]


def call_with_blas_threads(threads: int, function: Callable[[], R]) -> R:
    """Call a function while BLAS has this many threads; `ordered_map` then uses as many."""
    pools = [*_pools().shared, *_pools().own]
    before = list(map(call, [pool.get for pool in pools]))
    put_back = map(call, [pool.set for pool in pools], before)
    try:
        list(map(call, [pool.set for pool in pools], repeat(threads)))
        return function()
    finally:
        list(put_back)


def _run_parallel(
    parts: Sequence[P],
    work: Callable[[Iterator[P]], Iterator[R]],
    take: Callable[[R], object] | None,
    threads: int,
) -> bool:
    """Process parts in other threads and take the results in this one.

    Returns False, with nothing done, if no thread can be started.
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
            except RuntimeError:  # none can be started, as when the interpreter ends
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
    """The threads of a BLAS library: two C functions, which do not let other threads run."""

    get: Callable[[], int]
    set: Callable[[int], object]


class _Pools(NamedTuple):
    """Pools with one number of threads for the process, and those with one per thread."""

    shared: list[_Pool]
    own: list[_Pool]


_SYMBOLS = {
    "openblas": ("openblas_get_num_threads", "openblas_set_num_threads"),
    "flexiblas": ("flexiblas_get_num_threads", "flexiblas_set_num_threads"),
    "blis": ("bli_thread_get_num_threads", "bli_thread_set_num_threads"),
    "mkl": ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
}
_OPENMP = ("omp_get_max_threads", "omp_set_num_threads")


@cache  # finding them takes much longer than setting them
def _pools() -> _Pools:
    """Return the BLAS libraries, SciPy's among them, which may not have been loaded yet."""
    import_module("scipy.linalg")
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
    """A call that wants BLAS to have one thread."""

    most: int
    key: object


class _State:
    """Calls that want BLAS to have one thread, what it had before, and what restores that."""

    def __init__(self) -> None:
        self.users: set[_User] = set()
        self.before: tuple[list[int], Iterator[object]] | None = None


_state = _State()


if hasattr(os, "register_at_fork"):
    # A child has one thread only; the next call restores what others held.
    os.register_at_fork(after_in_child=_state.users.clear)
