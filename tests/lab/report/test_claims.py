import math

import numpy as np
import pytest

from olss.lab.report.claims import LEVEL, RATIOS, own_claims, paper_claims, verdict
from olss.lab.report.collect import collect
from olss.lab.report.statistics import Interval, interval
from tests.lab.report.made import made, saved


def between(low, high):
    return Interval((low + high) / 2, low, high, math.nan, 3)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.03, 0.05, "holds"),
        (0.02, 0.05, "holds"),
        (0.01, 0.05, "cannot be told"),
        (-0.05, 0.01, "does not hold"),
        (math.nan, math.nan, "cannot be told"),
    ],
)
def test_verdict_is_where_the_whole_interval_lies(low, high, expected):
    assert verdict(between(low, high), 0.02, math.inf) == expected


def test_a_claim_at_the_edge_is_called_right_at_the_promised_rate():
    """A difference just outside the range must hardly ever be said to lie within."""
    rng = np.random.default_rng(0)
    found = [verdict(interval(rng.normal(0.0, 0.01, 4), LEVEL), 0, math.inf) for _ in range(4000)]
    # 5% beyond either end of the interval, standard error 0.34%; four of them.
    assert abs(found.count("holds") / 4000 - 0.05) < 0.014
    assert abs(found.count("does not hold") / 4000 - 0.05) < 0.014


def claims_of(folder, give):
    (group,) = collect([folder]).groups
    return {claim.claimed: claim for claim in give(group)}


@pytest.fixture
def three(tmp_path):
    for method in ("sgd", "ewc", "gem", "olss"):
        for seed in range(3):
            saved(tmp_path, method, seed)
    return tmp_path


def one(claims, *words):
    (found,) = [claim for text, claim in claims.items() if all(word in text for word in words)]
    return found


def test_claims_of_the_paper_are_computed(three):
    claims = claims_of(three, paper_claims)
    a, b = (
        [made(m, s).average_accuracy[-1] for s in range(3)] for m in ("olss", "sgd")
    )  # the same numbers by another way
    above = one(claims, "OLSS’s average accuracy", "SGD")
    assert above.value.mean == pytest.approx(np.mean(np.subtract(a, b)))
    # Student's quantile of two degrees of freedom with 5% beyond it.
    assert above.value.half == pytest.approx(
        2.920 * np.std(np.subtract(a, b), ddof=1) / 3**0.5, 1e-3
    )
    assert above.verdict == "holds"
    assert "3 shared seeds" in above.measured
    assert above.setting == "not the paper’s setting"
    assert one(claims, "SGD is faster than OLSS").verdict == "holds"
    # The made GEM takes 40 times SGD's time: within a factor of 1.5 of 58.2, but only just.
    assert one(claims, "GEM takes 58.2").value.mean == pytest.approx(40, rel=0.02)
    assert one(claims, "GEM takes 58.2").verdict == "holds"
    assert not any("iCaRL" in text for text in claims)


def test_a_refuted_claim_does_not_hold(tmp_path):
    for seed in range(3):
        saved(tmp_path, "sgd", seed)
        worse = made("olss", seed)
        worse.accuracy -= 0.5
        worse.task_seconds = {k: v / 100 for k, v in worse.task_seconds.items()}
        worse.save(tmp_path / f"seed-{seed}")
    claims = claims_of(tmp_path, paper_claims)
    assert one(claims, "OLSS’s average accuracy", "SGD").verdict == "does not hold"
    assert one(claims, "SGD is faster than OLSS").verdict == "does not hold"
    missing = one(claims, "OLSS’s average accuracy", "GEM")
    assert missing.verdict == "cannot be told"
    assert missing.measured == "a method it speaks of was not run"


def test_tasks_preserved_are_counted(tmp_path):
    for seed in range(3):
        kept = made("olss", seed, tasks=5)
        kept.accuracy[:] = np.where(np.isnan(kept.accuracy), np.nan, 0.9)
        kept.accuracy[-1] = [0.5, 0.87, 0.885, 0.95, 0.9]  # two of four within two points
        kept.save(tmp_path / f"olss-{seed}")
        lost = made("gem", seed, tasks=5)
        lost.accuracy[:] = np.where(np.isnan(lost.accuracy), np.nan, 0.9)
        lost.accuracy[-1, 0] = 0.85
        lost.save(tmp_path / f"gem-{seed}")
    claims = claims_of(tmp_path, paper_claims)
    olss, gem = one(claims, "OLSS preserves most"), one(claims, "GEM preserves most")
    assert (olss.value.mean, olss.verdict) == (0.5, "does not hold")
    assert (gem.value.mean, gem.verdict) == (0.75, "holds")
    assert "75 % of the tasks before the last" in gem.measured


def test_one_seed_tells_nothing(tmp_path):
    for method in ("sgd", "gem", "ewc", "olss"):
        saved(tmp_path, method, 0)
    claims = claims_of(tmp_path, paper_claims)
    assert {claim.verdict for claim in claims.values()} == {"cannot be told"}
    assert "one seed" in one(claims, "OLSS’s average accuracy", "SGD").measured


def test_a_single_run_that_is_better_does_not_take_the_place_of_three(three):
    better = made("sgd", 0)
    better.accuracy += 0.05
    better.config["learner"]["label"] = "sgd at another rate"
    better.save(three / "better")
    above = one(claims_of(three, paper_claims), "OLSS’s average accuracy", "SGD")
    assert "olss − sgd, 3 shared seeds" in above.measured


def test_the_papers_setting_is_recognised(tmp_path):
    for seed in range(2):
        record = made("olss", seed, tasks=20)
        record.config["stream"]["dataset"] = "mnist"
        record.config["training"] |= {"epochs": 5, "batch": 200}
        record.save(tmp_path / f"seed-{seed}")
    claims = claims_of(tmp_path, paper_claims)
    assert {c.setting for c in claims.values()} == {"rows, epochs and batch as in the paper"}


def test_a_method_trained_otherwise_than_in_the_paper_is_named(tmp_path):
    for method, epochs in (("olss", 5), ("sgd", 1)):
        record = made(method, tasks=20)
        record.config["stream"]["dataset"] = "mnist"
        record.config["training"] |= {"epochs": epochs, "batch": 200}
        record.save(tmp_path / method)
    claims = claims_of(tmp_path, paper_claims)
    said = "rows, epochs and batch as in the paper, but for sgd"
    assert {c.setting for c in claims.values()} == {said}


def test_only_the_papers_own_policy_is_the_papers_method(tmp_path):
    saved(tmp_path, "sgd", 0)
    saved(tmp_path, "balanced", 0)
    record = made("olss", 0)
    record.config["learner"]["features"] = "penultimate"
    record.save(tmp_path / "features")
    assert claims_of(tmp_path, paper_claims) == {}


def test_ratios_are_those_of_the_papers_seconds():
    sgd = {"rotated": 158, "permuted": 152, "incremental": 780}
    table = {
        "ewc": (944, 896, 1213), "gem": (8688, 8846, 17868), "icarl": (None, None, 2802),
        "olss": (496, 455, 1363),
    }  # fmt: skip
    for name, values in table.items():
        found = {k: v / sgd[k] for k, v in zip(sgd, values, strict=True) if v}
        assert RATIOS[name] == pytest.approx(found, rel=0.005)


def test_incremental_streams_have_icarl_and_another_order(tmp_path):
    for seed in range(2):
        for method in ("sgd", "olss"):
            saved(tmp_path, method, seed, stream="incremental")
    claims = claims_of(tmp_path, paper_claims)
    assert one(claims, "iCaRL takes 3.59")
    assert one(claims, "EWC is faster than OLSS")
    assert one(claims, "slightly below GEM")


def test_a_memory_is_compared_with_a_reservoir_of_its_size_and_no_other(tmp_path):
    for seed in range(3):
        saved(tmp_path, "er", seed)
        saved(tmp_path, "balanced", seed)
        larger = made("er", seed)
        larger.config["learner"] |= {"size": 5000, "label": "large reservoir"}
        larger.save(tmp_path / "large" / f"seed-{seed}")
    claims = claims_of(tmp_path, own_claims)
    beats = [claim for text, claim in claims.items() if "beats a reservoir" in text]
    assert [claim.claimed for claim in beats] == [
        "olss-balanced beats a reservoir at equal memory (er)"
    ]
    assert beats[0].verdict == "holds"


def test_mixing_and_distilling_are_compared_with_going_without(tmp_path):
    variants = {
        "plain": {"regime": "sketch"},
        "mixed": {"regime": "mix", "share": 0.5},
        "distilled": {"regime": "sketch", "alpha": 0.5, "beta": 0.5},
    }
    for label, settings in variants.items():
        for seed in range(2):
            record = made("balanced", seed)
            record.config["learner"] |= settings | {"label": label}
            record.save(tmp_path / label / f"seed-{seed}")
    claims = claims_of(tmp_path, own_claims)
    assert "mixed beats training on the sketch alone, at equal memory (plain)" in claims
    assert "distilled beats the same memory without distillation (plain)" in claims
    assert sum("beats" in text for text in claims) == 2


def test_a_memory_that_grows_is_found_out(tmp_path):
    record = made("balanced")
    record.stored_examples[-1] = 1001
    record.save(tmp_path)
    claim = one(claims_of(tmp_path, own_claims), "more rows than its size")
    assert claim.verdict == "does not hold"
    assert "at most 100.1% of the size" in claim.measured
    assert "olss-balanced" in claim.measured


def test_runs_are_paired_within_one_precision(tmp_path):
    """Half precision changes time by more than methods do, so no pair mixes precisions."""

    def slow(method, seed, precision):
        record = made(method, seed)
        record.config["training"]["precision"] = precision
        if precision == "float32":
            for phase in record.task_seconds.values():
                phase *= 10
        record.save(tmp_path / precision / method / f"seed-{seed}")

    for seed in (1, 2):
        for method in ("sgd", "olss"):
            slow(method, seed, "bfloat16")
    for method in ("sgd", "ewc", "olss"):
        slow(method, 0, "float32")
    slow("sgd", 1, "float32")
    slow("olss", 1, "float32")
    claims = claims_of(tmp_path, paper_claims)
    points = one(claims, "OLSS’s average", "above SGD")
    assert "3 shared seeds, 2 precisions" in points.measured
    a, b = ([made(m, s).average_accuracy[-1] for s in range(3)] for m in ("olss", "sgd"))
    assert points.value.mean == pytest.approx(np.mean(np.subtract(a, b)))
    assert one(claims, "OLSS takes").value.mean == pytest.approx(3, rel=0.1)
    against_ewc = one(claims, "OLSS’s average", "above EWC")
    assert "one seed" in against_ewc.measured
    assert against_ewc.verdict == "cannot be told"
    for name in ("GEM", "SI"):
        found = {c.measured for text, c in claims.items() if name in text}
        assert found == {"a method it speaks of was not run"}
