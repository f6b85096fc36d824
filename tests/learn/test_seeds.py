import itertools

import numpy as np

from olss.learn.training import PURPOSES, Seeds


def test_each_purpose_task_and_seed_has_numbers_of_its_own():
    keys = itertools.product((0, 1), PURPOSES, (0, 1, 2))
    drawn = [Seeds(seed).number(purpose, task) for seed, purpose, task in keys]
    assert len(set(drawn)) == len(drawn)


def test_asking_again_gives_the_same():
    seeds = Seeds(np.int64(3))
    first = seeds.rng("order", 2).permutation(10)
    seeds.rng("memory", 2).permutation(10)
    np.testing.assert_array_equal(seeds.rng("order", 2).permutation(10), first)
