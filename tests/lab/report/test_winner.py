from olss.lab.report.collect import collect
from olss.lab.report.summary import winner
from tests.lab.report.made import made


def group_of(folder, averages, **options):
    """Save one-task records whose averages are given for each label and seed."""
    for label, by_seed in averages.items():
        for seed, average in enumerate(by_seed):
            record = made("sgd", seed, tasks=1, accuracy=[[average]], **options)
            recipe = "joint" if label == "joint" else "sgd"
            record.config["learner"] |= {"label": label, "recipe": recipe}
            record.save(folder / label / f"seed-{seed}")
    return collect([folder]).groups[0]


def test_the_lead_is_over_the_next_best_and_the_upper_line_is_out_of_the_contest(tmp_path):
    scores = {"a": [0.80, 0.82, 0.81], "b": [0.70, 0.72, 0.712], "joint": [0.9, 0.9, 0.9]}
    # Paired differences 10.0, 10.0 and 9.8 points: mean 9.93, s.d. 0.115, t(2) = 4.30.
    assert winner(group_of(tmp_path, scores)) == (
        "Permuted digits, 1 task: a ends highest, 81.0 ± 2.5 % over all tasks, "
        "9.9 ± 0.3 points above b."
    )


def test_what_seeds_cannot_tell_is_said(tmp_path):
    close = group_of(tmp_path / "two", {"a": [0.80, 0.82], "b": [0.81, 0.80]})
    assert winner(close).endswith("above b, which 2 seeds cannot tell from chance.")
    single = group_of(tmp_path / "one", {"a": [0.8], "b": [0.7]})
    assert winner(single).endswith(
        "10.0 points above b (too few seeds to say whether that is chance)."
    )


def test_a_lead_that_other_seeds_made_is_no_lead(tmp_path):
    # By all seeds a has 70.0 and b 65.0, by the two that both have b leads by ten points.
    said = winner(group_of(tmp_path, {"a": [0.5, 0.6, 1.0], "b": [0.6, 0.7]}))
    assert said == (
        "Permuted digits, 1 task: a ends highest, 70.0 ± 65.7 % over all tasks, "
        "but 10.0 ± 0.0 points below b on the 2 seeds both have."
    )


def test_one_method_has_nobody_to_beat(tmp_path):
    said = winner(group_of(tmp_path, {"a": [0.5]}, metric="r2"))
    assert said == "Permuted digits, 1 task: a ends at 0.500 R² over all tasks."
