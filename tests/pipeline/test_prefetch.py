"""A step in a thread of its own: the same values in the same order, the first error, and an end that is clean."""

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evs_cli.pipeline.prefetch import Prefetcher


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "evs-ahead"]


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    yield
    assert threads() == []


def counting(total, made, *, closed=None, fails_at=None):
    """0, 1, …; what was made is noted, and where it was closed."""
    try:
        for k in range(total):
            if k == fails_at:
                raise ValueError(f"item {k}")
            made.append(k)
            yield k
    finally:
        if closed is not None:
            closed.append(threading.current_thread().name)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(total=st.integers(0, 20), depth=st.integers(1, 3), steps=st.integers(1, 3))
def test_a_chain_of_steps_gives_what_the_steps_give(total, depth, steps):
    chain = counting(total, [])
    for _ in range(steps):
        chain = Prefetcher((2 * value for value in chain), depth=depth)
    with chain:
        assert list(chain) == [2**steps * value for value in range(total)]
        assert next(chain, None) is None


def test_it_works_ahead_as_far_as_it_may_and_no_further():
    made = []
    with Prefetcher(counting(10, made), depth=2) as ahead:
        assert next(ahead) == 0
        while len(made) < 4:  # one handed out, two waiting, one in the making
            time.sleep(0.001)
        time.sleep(0.05)
        assert made == [0, 1, 2, 3]


@pytest.mark.parametrize("fails_at", [0, 1, 5])
def test_an_error_comes_in_its_place(fails_at):
    with Prefetcher(counting(9, [], fails_at=fails_at)) as ahead:
        assert [next(ahead) for _ in range(fails_at)] == list(range(fails_at))
        with pytest.raises(ValueError, match=f"item {fails_at}"):
            next(ahead)
        assert next(ahead, "end") == "end"


def test_a_reader_that_leaves_stops_the_steps_before_it():
    """The generator is closed in its own thread, and told to end at once."""
    made, closed, told = [], [], []
    with Prefetcher(counting(10**9, made, closed=closed), on_close=lambda: told.append("inner")) as inner:
        with Prefetcher((value for value in inner), on_close=inner.close) as outer:
            assert next(outer) == 0
        assert threads() == []
    assert closed == ["evs-ahead"]
    assert told == ["inner"]
    assert len(made) < 10


def test_the_readers_own_error_ends_the_thread():
    def read_and_fail():
        with Prefetcher(counting(10**9, [])) as ahead:
            next(ahead)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_and_fail()


def test_a_source_that_is_told_need_not_make_another_item():
    """As a decoder that looks for its cancellation at every packet."""
    cancelled = threading.Event()

    def waiting():
        yield 0
        assert cancelled.wait(30)  # for ever, were it not told

    with Prefetcher(waiting(), on_close=cancelled.set) as ahead:
        assert next(ahead) == 0


def test_an_item_that_takes_long_is_not_waited_for():
    """Nothing can interrupt a step of a library; its thread ends behind the item."""
    begun, may_end, made = threading.Event(), threading.Event(), []

    def slow():
        begun.set()
        may_end.wait(30)
        made.append(0)
        yield 0
        made.append(1)  # nobody asks for it

    with Prefetcher(slow()):
        begun.wait(30)
    (thread,) = threads()
    assert made == []
    may_end.set()
    thread.join(30)
    assert made == [0]
