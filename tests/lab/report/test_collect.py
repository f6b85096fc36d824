import json
from dataclasses import replace

import numpy as np
import pytest

from olss.errors import InputError
from olss.lab.experiment import parse
from olss.lab.report.collect import collect
from olss.lab.report.page import render
from olss.lab.report.summary import stream_tables, summarize
from olss.lab.single_run import run_once
from olss.learn import recipe, run
from olss.streams import from_config
from tests.lab.report.made import made, saved
from tests.lab.small import small_spec


def test_runs_are_grouped_by_stream_and_method(runs):
    groups = collect([runs]).groups
    assert [group.title for group in groups] == [
        "Permuted digits, 8 tasks",
        "Rotated digits, 8 tasks",
    ]
    labels = [method.label for method in groups[0].methods]
    assert labels == ["sgd", "ewc", "gem", "er", "olss", "olss-balanced"]
    assert [run.seed for run in groups[0].methods[0].runs] == ["0", "1", "2"]


def test_half_finished_and_missing_runs_are_told_and_not_used(runs):
    collection = collect([runs])
    told = {problem.where: problem.what for problem in collection.problems}
    assert told["rotated/gem/seed-3"] == "half-finished: 5 of 8 tasks"
    assert told["Rotated digits, 8 tasks: ewc"] == "missing seeds 2"
    gem = collection.groups[1].methods[2]
    assert [run.seed for run in gem.runs] == ["0", "1", "2"]


def test_a_run_without_record_is_not_finished(tmp_path):
    saved(tmp_path, "sgd", 0)
    (tmp_path / "permuted" / "sgd" / "seed-1" / "checkpoint").mkdir(parents=True)
    collection = collect([tmp_path])
    assert [p.where for p in collection.problems] == ["permuted/sgd/seed-1"]
    assert "not finished" in collection.problems[0].what


def test_checkpoints_are_not_records(tmp_path):
    saved(tmp_path, "sgd", 0)
    going = tmp_path / "permuted" / "sgd" / "seed-1"
    for done in (1, 2):
        made("sgd", 1, done=done).save(going / "checkpoint" / f"after-{done:04d}")
    collection = collect([tmp_path])
    assert len(collection.groups[0].methods[0].runs) == 1
    assert [(p.where, p.what) for p in collection.problems] == [
        ("permuted/sgd/seed-1", "not finished, 2 tasks saved: the same command continues it")
    ]


def test_a_folder_may_be_called_checkpoint(tmp_path):
    saved(tmp_path / "checkpoint", "sgd", 0)
    assert len(collect([tmp_path / "checkpoint"]).groups) == 1


def test_learners_an_experiment_names_and_never_ran_are_told(tmp_path):
    saved(tmp_path, "sgd", 0)
    experiment = {"name": "permuted", "learner": [{"name": "sgd"}, {"name": "a b"}]}
    (tmp_path / "permuted" / "experiment.json").write_text(json.dumps(experiment))
    (tmp_path / "experiment.json").write_text("[]")
    assert [(p.where, p.what) for p in collect([tmp_path]).problems] == [
        ("permuted/a b", "not run")
    ]


def test_a_stream_cut_short_on_purpose_is_whole(tmp_path):
    record = made("sgd", done=3)
    record.config["stream"]["first_tasks"] = 3
    record.save(tmp_path)
    assert collect([tmp_path]).problems == []


@pytest.mark.parametrize(
    "change",
    [
        {"protocol": "validation rows"},
        {"head": "task"},
        {"stream": "rotated"},
        {"tasks": 6},
        {"metric": "r2"},
    ],
)
def test_other_protocols_are_kept_apart(tmp_path, change):
    saved(tmp_path / "a", "sgd", 0)
    saved(tmp_path / "b", "sgd", 1, **change)
    groups = collect([tmp_path]).groups
    assert len(groups) == 2
    assert len({group.title for group in groups}) == 2
    assert len({group.slug for group in groups}) == 2
    assert all(len(method.runs) == 1 for group in groups for method in group.methods)


def test_runs_in_python_stand_beside_those_of_experiments(tmp_path):
    stream = {"name": "permuted", "dataset": "digits", "tasks": 2, "train_rows": 100}
    head = {"head": "nearest-mean", "size": 50}
    learners = [{"recipe": "sgd"}, {"recipe": "er", **head}]
    experiment = parse({"name": "x", "net": "mlp-8", "stream": stream, "learner": learners})
    for spec in experiment.run_specs():
        run_once(spec)[0].save(tmp_path / "lab" / spec.label / "seed-0")
    for seed, (name, settings) in enumerate({"sgd": {}, "er": head}.items()):
        learner = recipe(name, net="mlp-8", threads=1, **settings)
        record = run(from_config(stream | {"seed": seed}), learner, seed)
        record.save(tmp_path / name / f"seed-{seed}")
    (group,) = collect([tmp_path]).groups
    assert {m.label: [r.seed for r in m.runs] for m in group.methods} == {
        "sgd": ["0"],
        "er": ["0", "1"],
    }


def test_equal_streams_are_called_by_their_experiments(tmp_path):
    for name in ("first", "second"):
        made("sgd", protocol=f"protocol of {name}").save(tmp_path / name / "sgd" / "seed-0")
        (tmp_path / name / "experiment.json").write_text("{}")
    titles = [group.title for group in collect([tmp_path]).groups]
    assert titles == ["Permuted digits, 8 tasks (first)", "Permuted digits, 8 tasks (second)"]


@pytest.mark.parametrize("head", ["nearest-mean", "product", "mine:Head"])
def test_fitted_heads_compete_among_classes_seen(tmp_path, head):
    saved(tmp_path, "sgd", 0)
    saved(tmp_path, "gem", 0, head=head)
    (stream,) = summarize(collect([tmp_path]))["streams"]
    assert "all classes seen so far compete" in stream["protocol_words"]


def test_equal_names_with_other_settings_are_told_apart(tmp_path):
    for size in (200, 500):
        record = made("er")
        record.config["learner"]["size"] = size
        record.save(tmp_path / str(size))
    labels = [method.label for method in collect([tmp_path]).groups[0].methods]
    assert labels == ["er (size 200)", "er (size 500)"]


@pytest.mark.parametrize(
    ("changes", "labels"),
    [
        ([{"beta": 0.0}, {"beta": 0.5}], ["er (beta 0)", "er (beta 0.5)"]),
        ([{}, {"mirrored": True}], ["er", "er (mirrored True)"]),
        (
            [{"features": {"name": "a", "width": 1}}, {"features": {"name": "a", "width": 2}}],
            ["er (features a, 1)", "er (features a, 2)"],
        ),
    ],
)
def test_labels_are_never_equal(tmp_path, changes, labels):
    for number, change in enumerate(changes):
        record = made("er")
        record.config["learner"] |= change
        record.save(tmp_path / str(number))
    (stream,) = summarize(collect([tmp_path]))["streams"]
    assert [method["label"] for method in stream["methods"]] == labels


def test_runs_of_other_code_of_ones_own_are_another_method(tmp_path):
    spec = small_spec("sgd", tasks=1)
    for seed, code in enumerate(["a" * 64, "a" * 64, "b" * 64]):
        record, _ = run_once(replace(spec, seed=seed, code={"mine": code}))
        record.save(tmp_path / "small" / "sgd" / f"seed-{seed}")
    methods = collect([tmp_path]).groups[0].methods
    assert [(m.label, [run.seed for run in m.runs]) for m in methods] == [
        ("sgd (code mine aaaaaaa)", ["0", "1 (stream 0)"]),
        ("sgd (code mine bbbbbbb)", ["2 (stream 0)"]),
    ]


def test_a_setting_that_an_older_record_lacks_was_off(tmp_path):
    for seed in range(3):
        record = made("er", seed)
        if seed:
            off = {"mirrored": False, "average_steps": 0, "input_mean": None}
            record.config["training"] |= off
        record.save(tmp_path / f"seed-{seed}")
    collection = collect([tmp_path])
    (method,) = collection.groups[0].methods
    assert len(method.runs) == 3
    assert collection.problems == []


def test_the_same_run_twice_counts_once(tmp_path):
    saved(tmp_path / "a", "sgd", 0)
    saved(tmp_path / "b", "sgd", 0)
    collection = collect([tmp_path, tmp_path / "a"])
    assert len(collection.groups[0].methods[0].runs) == 1
    assert [p.what for p in collection.problems] == [
        "the same run again: permuted/sgd/seed-0 is used"
    ]


def test_a_run_under_its_recipes_name_is_the_run_without_a_name(tmp_path):
    record = made("sgd")
    record.save(tmp_path / "a")
    record.config["learner"]["label"] = "sgd"
    record.save(tmp_path / "b")
    (problem,) = collect([tmp_path]).problems
    assert problem.what.startswith("the same run again")


def test_stream_seeds_do_not_part_but_pair(tmp_path):
    for seed in (0, 1):
        record = made("sgd", seed)
        record.config["stream"]["seed"] = 7
        record.save(tmp_path / f"seed-{seed}")
    method = collect([tmp_path]).groups[0].methods[0]
    assert [run.seed for run in method.runs] == ["0 (stream 7)", "1 (stream 7)"]


def test_task_names_that_depend_on_the_seed_become_numbers(tmp_path):
    saved(tmp_path, "sgd", 0, tasks=2)
    record = made("sgd", 2, tasks=2)
    record.tasks = ["12 degrees", "98 degrees"]
    record.save(tmp_path / "other")
    assert collect([tmp_path]).groups[0].tasks == ["task 1", "task 2"]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda text: text[: len(text) // 2], "damaged"),
        (lambda text: json.dumps(json.loads(text) | {"version": 99}), "format version 99"),
        (lambda text: '{"format": "other"}', "not an olss record"),
        (lambda text: text.replace("0.9", "0.8", 1), "checksum"),
    ],
)
def test_unreadable_records_are_told_and_the_rest_used(tmp_path, spoil, words):
    saved(tmp_path, "sgd", 0)
    path = saved(tmp_path, "gem", 0) / "record.json"
    path.write_text(spoil(path.read_text()))
    collection = collect([tmp_path])
    assert [method.label for method in collection.groups[0].methods] == ["sgd"]
    assert words in collection.problems[0].what
    assert str(tmp_path) not in collection.problems[0].what


def test_nothing_to_report_is_an_error_that_says_why(tmp_path):
    with pytest.raises(InputError, match=r"no record\.json was found"):
        collect([tmp_path])
    saved(tmp_path, "sgd", 0, done=2)
    with pytest.raises(InputError, match="half-finished: 2 of 8 tasks"):
        collect([tmp_path])
    with pytest.raises(InputError, match="no such folder"):
        collect([tmp_path / "nowhere"])


def test_an_empty_record_is_not_used(tmp_path):
    saved(tmp_path, "sgd", 0)
    saved(tmp_path, "gem", 0, done=0)
    collection = collect([tmp_path])
    assert [p.what for p in collection.problems] == ["half-finished: 0 of 8 tasks"]


ODD = [None, True, -1, 1.5, 1e308, 10**30, "", "x", [], [1], ["a"], {}, {"name": 5}, [[1, 2], [3]]]


def places(content, path=()):
    """Yield the path of everything in nested JSON."""
    for key, item in content.items() if isinstance(content, dict) else enumerate(content):
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from places(item, (*path, key))


@pytest.mark.filterwarnings("ignore:All-NaN", "ignore:Mean of empty", "ignore:invalid value")
@pytest.mark.parametrize("seed", range(40))
def test_no_hand_edited_record_stops_a_report(tmp_path, seed):
    """Records of version 1 have no sum: whatever stands in them is used or told, never raised."""
    rng = np.random.default_rng(seed)
    saved(tmp_path, "sgd", 1, tasks=3)
    odd = made("olss", tasks=3)
    odd.config["stream"]["steps"] = [{"name": "label_noise", "share": 0.2}]
    content = json.loads(json.dumps(odd.content())) | {"version": 1}
    known = list(places(content))
    *path, last = known[rng.integers(len(known))]
    where = content
    for key in path:
        where = where[key]
    where[last] = ODD[rng.integers(len(ODD))]
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "record.json").write_text(json.dumps(content))
    collection = collect([tmp_path])
    report = summarize(collection)
    tables = {stream["id"]: stream_tables(stream) for stream in report["streams"]}
    page = render(report, tables, {}, {}, [])
    assert "sgd" in page
    assert len(collection.problems) + sum(len(g.methods) for g in collection.groups) >= 2


def test_runs_of_a_file_are_grouped_by_configuration_and_those_of_python_by_words_too(tmp_path):
    for place, words in enumerate(("words of the file", "other words")):
        record = made("sgd", place, protocol=words)
        record.config["learner"]["label"] = "sgd"
        record.save(tmp_path / "file" / f"seed-{place}")
        made("sgd", place, protocol=words).save(tmp_path / "python" / f"seed-{place}")
    assert len(collect([tmp_path / "file"]).groups) == 1
    assert len(collect([tmp_path / "python"]).groups) == 2


def test_a_stream_has_the_title_its_experiment_gives_it(tmp_path):
    record = made("sgd")
    record.config["stream"]["title"] = "Customers by region"
    record.save(tmp_path)
    assert collect([tmp_path]).groups[0].title == "Customers by region"


def test_runs_in_python_join_the_same_stream_of_an_experiment_with_a_title(tmp_path):
    titled = made("sgd")
    titled.config["stream"]["title"] = "Customers by region"
    titled.save(tmp_path / "lab")
    made("er").save(tmp_path / "python")
    (group,) = collect([tmp_path]).groups
    assert group.title == "Customers by region"
    assert [method.label for method in group.methods] == ["sgd", "er"]
    titled.config["stream"]["title"] = "another question"
    titled.save(tmp_path / "other")  # two titles keep two experiments apart
    assert len(collect([tmp_path]).groups) == 3


def test_titles_have_a_number_only_where_no_words_tell_streams_apart(tmp_path):
    for rows in (None, 100):
        record = made("sgd")
        record.config["stream"]["train_rows"] = rows
        record.save(tmp_path / str(rows))
    titles = [group.title for group in collect([tmp_path]).groups]
    assert titles == ["Permuted digits, 8 tasks", "Permuted digits, 8 tasks (train rows 100)"]


def test_learners_of_one_name_and_other_recipes_are_told_apart_by_the_recipe(tmp_path):
    for number, (method, size) in enumerate([("sgd", None), ("er", 200), ("er", 500)]):
        record = made(method)
        record.config["learner"] |= {"label": "mine"} | ({"size": size} if size else {})
        record.save(tmp_path / str(number))
    labels = [method.label for method in collect([tmp_path]).groups[0].methods]
    assert labels == [
        "mine (recipe sgd)",
        "mine (recipe er, size 200)",
        "mine (recipe er, size 500)",
    ]
