import numpy as np
import pytest

from olss.errors import InputError
from olss.util import checks


@pytest.mark.parametrize("value", [0, -1, True, 1.0, "1", None, np.bool_(True), np.float64(2)])
def test_what_is_no_positive_whole_number(value):
    with pytest.raises(InputError, match="size must be"):
        checks.integer("size", value)


@pytest.mark.parametrize("value", [1, np.int8(1), np.uint64(1)])
def test_whole_numbers_of_any_kind_become_int(value):
    assert type(checks.integer("size", value)) is int


@pytest.mark.parametrize("value", [np.nan, np.inf, True, "1", None, 0, -1])
def test_what_is_no_number_above_zero(value):
    with pytest.raises(InputError, match="lr must be a number above 0, found"):
        checks.number("lr", value, above=0)


def test_the_bound_itself_is_of_the_bound_or_more():
    assert checks.number("ridge", 0, minimum=0) == 0


@pytest.mark.parametrize("value", [-1, 1.5, True, "a"])
def test_what_is_no_seed(value):
    with pytest.raises(InputError, match="seed must be"):
        checks.generator(value)


def test_a_generator_is_passed_on():
    rng = np.random.default_rng(0)
    assert checks.generator(rng) is rng
    assert checks.generator(7).random() == np.random.default_rng(7).random()


@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan, True, "half"])
def test_what_is_no_share(value):
    with pytest.raises(InputError, match="share must be a number from 0 to 1"):
        checks.fraction("share", value)


def test_numbers_too_large_for_a_float_are_refused_like_infinity():
    with pytest.raises(InputError, match="ridge must be a number"):
        checks.number("ridge", 10**400, minimum=0)


@pytest.mark.parametrize(
    ("bounds", "inside", "outside", "words"),
    [
        ({"above": 0, "maximum": 0.9}, 0.9, [0, 0.91], "above 0 and at most 0.9"),
        ({"minimum": 0, "below": 1}, 0, [-0.1, 1], "of at least 0 and below 1"),
        ({"minimum": 1, "maximum": 2}, 2, [0.9, 2.1], "from 1 to 2"),
    ],
)
def test_bounds_are_kept_and_said(bounds, inside, outside, words):
    assert checks.number("x", inside, **bounds) == inside
    for value in outside:
        with pytest.raises(InputError, match=f"x must be a number {words}, found {value}"):
            checks.number("x", value, **bounds)


@pytest.mark.parametrize("value", [-1, 4])
def test_a_whole_number_has_both_ends(value):
    assert checks.integer("k", 3, minimum=0, maximum=3) == 3
    with pytest.raises(InputError, match="k must be"):
        checks.integer("k", value, minimum=0, maximum=3)


def test_a_message_does_not_print_a_whole_array():
    with pytest.raises(InputError) as error:
        checks.integer("size", list(range(1_000)))
    assert len(str(error.value)) < 200
