from __future__ import annotations

import hashlib
import json
import math
import sys
import tomllib
from datetime import date
from importlib import invalidate_caches
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from olss.errors import InputError
from olss.lab.experiment import Experiment, apply_change, find_code, load, parse, safe_name
from olss.lab.single_run import check
from olss.streams import Dataset, from_config
from tests.lab.small import small_content, small_experiment, write_experiment

FILES = sorted((Path(__file__).parents[2] / "experiments").glob("*.toml"))
GRID = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0}
# Shape of a picture, classes, rows of a class.
SHAPES = {
    "digits": ((8, 8), 10, 200),
    "mnist": ((28, 28), 10, 6_000),
    "cifar100": ((3, 32, 32), 100, 500),
}


def stand_in(name: str) -> Dataset:
    """A data set with the right shapes and no content: nothing is read from disk."""
    shape, classes, each = SHAPES[name]
    y = np.repeat(np.arange(classes), each)
    X = np.broadcast_to(np.uint8(0), (len(y), *shape))
    return Dataset(name, X, y, X[::10], y[::10], 255.0)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_experiment_builds_its_learners_and_its_stream(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("olss.streams.builders.load_dataset", stand_in)
    experiment = load(path)
    assert experiment.name == path.stem
    assert experiment.protocol
    assert path.read_text(encoding="utf-8").startswith("# ")
    assert check(experiment.run_specs()) == experiment.stream["tasks"]
    stream = from_config(experiment.run_specs()[0].stream)
    # Rows asked for are there: the last task can be drawn.
    assert len(stream[len(stream) - 1].y) > 0
    if "paper" in path.stem:
        assert {spec.settings["lr"] for spec in experiment.run_specs()} <= GRID


def test_the_paper_s_settings_are_the_paper_s() -> None:
    rates = {
        "rotated-mnist": {"sgd": 0.1, "ewc": 0.3, "gem": 0.3, "olss": 0.3},
        "permuted-mnist": {"sgd": 0.001, "ewc": 0.1, "gem": 0.1, "olss": 0.1},
        "incremental-cifar100": {"sgd": 0.1, "ewc": 0.1, "gem": 0.3, "icarl": 0.01, "olss": 1.0},
    }
    folder = FILES[0].parent
    for stream, by_learner in rates.items():
        experiment = load(folder / f"paper-{stream}.toml")
        found = {spec.label: spec.settings["lr"] for spec in experiment.run_specs()}
        assert {name: found[name] for name in by_learner} == by_learner
        passes = (experiment.train["epochs"], experiment.train["batch"])
        assert passes == ((10, 100) if "cifar" in stream else (5, 200))
        assert experiment.stream["tasks"] == 20
        assert "train_rows" not in experiment.stream


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"steam": {}}, "'steam'. Did you mean 'stream'"),
        ({"stream": {}}, "must have a \\[stream\\]"),
        ({"stream": 3}, "stream of the experiment must be a table, found 3"),
        ({"learner": {"name": "sgd"}}, "two brackets"),
        ({"learner": []}, "must have a \\[learner\\]"),
        ({"learner": [{"lr": 0.1}]}, "learner 1 of the experiment must have a recipe"),
        ({"learner": [{"name": "sgd"}, {"name": "SGD", "recipe": "sgd"}]}, "share a folder"),
        ({"learner": [{"name": "er", "sweep": {"size": 3}}]}, "sweep.size of er must be a list"),
        (
            {"learner": [{"name": "er", "size": 5, "sweep": {"size": [3]}}]},
            r"size of er is 5 and is swept, too.*--set learner.er.sweep.size=",
        ),
        ({"seeds": "a"}, "seeds must be like"),
        ({"seeds": []}, "seeds must name at least one"),
        ({"seeds": [True]}, "seeds must be like"),
        ({"net": 3}, "net of the experiment must be"),
        ({"tune": {"metod": "grid"}}, "'metod'. Did you mean 'method'"),
        ({"train": {"lr": math.nan}}, "train.lr of the experiment must be a finite number"),
        (
            {"train": {"lr": 10**400}},
            "train.lr of the experiment must be an integer of at most",
        ),
        ({"train": {"day": date(2026, 1, 1)}}, r"train.day .* date in quotes"),
        ({"stream": {"name": "permuted", "steps": 5}}, "stream.steps .* a list of tables, found 5"),
        ({"title": "\x1b[2J"}, "title of the experiment must be .* without control char"),
        ({"seeds": "0-99999999999"}, "seeds must be at most 10,000"),
        ({"seeds": str(2**64)}, "seeds must be at most 10,000, none above 9223372036854775807"),
        ({"tune": {"share": 2}}, "tune.share must be a number above 0 and below 1, found 2"),
        ({"tune": {"method": "guess"}}, "tune.method.*'guess'"),
        ({"tune": {"trials": 0}}, "tune.trials must be"),
        ({"tune": {"space": {"lr": 3}}}, "space of lr in the experiment must be a list"),
    ],
)
def test_mistakes_are_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse({**small_content(), **change})


oddities = st.recursive(
    st.sampled_from([math.nan, math.inf, 10**400, -(2**70), date(2026, 1, 1), "\x1b[0m", "", "a:b"])
    | st.integers()
    | st.booleans()
    | st.none()
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)
PLACES = [
    "name", "title", "seeds", "net", "device", "protocol", "stream", "stream.steps", "train",
    "train.lr", "learner", "learner.sgd.lr", "learner.sgd.sweep", "learner.sgd.tune", "tune",
    "tune.space", "tune.seeds", "tune.tasks", "tune.share", "tune.prune",
]  # fmt: skip


@given(st.sampled_from(PLACES), oddities)
def test_whatever_stands_in_a_file_is_taken_or_named(place: str, value: Any) -> None:
    content = small_content()
    apply_change(content, f"{place}=0")
    where: Any = content
    *path, last = place.split(".")
    if path[:1] == ["learner"]:
        where, path = content["learner"][0], []
    for key in path:
        where = where[key]
    where[last] = value
    try:
        experiment = parse(content)
        specs = experiment.run_specs()
    except InputError:
        return
    json.dumps([experiment.content(), specs[0].content()], allow_nan=False)


def test_mistakes_in_settings_name_the_learner() -> None:
    experiment = small_experiment(learner=[{"name": "mine", "recipe": "olss", "polcy": "paper"}])
    with pytest.raises(InputError, match=r"learner 'mine': .*'polcy'. Did you mean 'policy'"):
        check(experiment.run_specs())


def test_changes_from_the_command_line(tmp_path: Path) -> None:
    path = write_experiment(tmp_path)
    changes = ["train.epochs=7", "learner.sketch.lr=0.3", "stream.name=rotated", "seeds=0-2"]
    experiment = load(path, [*changes, "tune.space.lr=[1.0]", "name=other"])
    assert experiment.train["epochs"] == 7
    assert experiment.learner("sketch").settings["lr"] == 0.3
    assert experiment.learner("sgd").settings == {}
    assert experiment.stream["name"] == "rotated"
    assert experiment.seeds == (0, 1, 2)
    assert experiment.tune.space == {"lr": [1.0]}
    assert experiment.name == "other"
    assert [spec.settings["lr"] for spec in experiment.run_specs()[:2]] == [0.1, 0.3]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("train.epochs", "--set takes a.b=value"),
        (".epochs=1", "--set takes a.b=value"),
        ("net.width=3", "net is not a table"),
        ("learner.skecth.lr=1", "no learner 'skecth'. Did you mean 'sketch'"),
        ("trian.epochs=1", "'trian'. Did you mean 'train'"),
    ],
)
def test_wrong_changes_are_named(tmp_path: Path, change: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        load(write_experiment(tmp_path), [change])


def test_files_that_are_no_experiments(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("a = = b")
    with pytest.raises(InputError, match="not valid TOML"):
        load(tmp_path / "bad.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not a text file"):
        load(tmp_path / "bytes.toml")


def test_several_recipes_are_a_list_or_joined() -> None:
    learners = [{"name": "a", "recipe": ["olss", "der++"]}, {"name": "b", "recipe": "olss+der++"}]
    first, second = small_experiment(learner=learners).learners
    assert first.recipe == second.recipe


def test_a_sweep_is_a_learner_for_each_combination() -> None:
    sweep = {"policy": ["paper", "reservoir"], "size": [10, 20]}
    experiment = small_experiment(learner=[{"name": "olss", "sweep": sweep, "lr": 0.3}])
    assert [learner.name for learner in experiment.learners] == [
        "olss policy=paper size=10",
        "olss policy=paper size=20",
        "olss policy=reservoir size=10",
        "olss policy=reservoir size=20",
    ]
    last = experiment.learners[-1].settings
    assert last == {"lr": 0.3, "policy": "reservoir", "size": 20}


def test_the_run_s_seed_makes_the_stream_unless_it_has_its_own() -> None:
    experiment = small_experiment(seeds="3,5")
    assert [spec.stream["seed"] for spec in experiment.run_specs()] == [3, 3, 5, 5]
    fixed = small_experiment(stream={**small_content()["stream"], "seed": 9}, seeds=[3])
    assert [spec.stream["seed"] for spec in fixed.run_specs()] == [9, 9]


def test_only_some_learners() -> None:
    experiment = small_experiment().only(["sketch", "sketch"])
    assert [learner.name for learner in experiment.learners] == ["sketch"]
    with pytest.raises(InputError, match=r"no learner 'sktch'. Did you mean 'sketch'"):
        experiment.only(["sktch"])


def test_only_takes_all_values_of_a_sweep_by_its_name() -> None:
    learners = [
        {"name": "er", "sweep": {"size": [20, 50], "policy": ["paper", "recent"]}},
        {"name": "er more", "recipe": "er", "sweep": {"size": [30]}},
    ]
    experiment = small_experiment(learner=learners)

    def chosen(*names: str) -> list[str]:
        return [learner.name for learner in experiment.only(names).learners]

    assert chosen("er") == [s.name for s in experiment.learners[:4]]
    assert chosen("er size=50") == ["er size=50 policy=paper", "er size=50 policy=recent"]
    assert chosen("er more", "er size=20 policy=paper") == [
        "er more size=30",
        "er size=20 policy=paper",
    ]


def test_written_as_toml_it_is_the_same_experiment() -> None:
    def again(experiment: Experiment) -> Experiment:
        return parse(tomllib.loads(tomli_w.dumps(experiment.content())))

    learner = {"name": 'e, "w" ü', "recipe": "ewc", "tune": {"ewc_strength": [1.0, 2.0]}}
    steps = [{"name": "label_noise", "share": 0.2}]
    experiment = small_experiment(
        learner=[learner], stream={**small_content()["stream"], "steps": steps}, tune={"tasks": 2}
    )
    assert again(experiment) == experiment
    for path in FILES:
        assert again(load(path)) == load(path)


def test_folder_names_are_safe() -> None:
    assert safe_name("../a/b c:d") == "a-b-c-d"
    assert safe_name("///") == "unnamed"


def test_words_on_the_protocol_are_those_of_the_configuration(tmp_path: Path) -> None:
    path = write_experiment(tmp_path)
    assert "1 epoch" in load(path).describe_protocol()
    changed = load(path, ["train.epochs=7", "learner.sgd.batch=10"])
    assert "7 epochs" in changed.describe_protocol()
    assert not any("batches" in words for words in changed.describe_protocol())
    # The file's own words are of the file as it is.
    assert load(path, ["seeds=0-3", "tune.tasks=2"]).protocol == "digits, 3 tasks"
    assert changed.protocol == ""


def test_own_parts_are_found_beside_the_file_and_their_code_is_a_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = write_experiment(tmp_path)
    change = "learner.sgd.loss=olss_test_own_part:Mine"
    with pytest.raises(InputError, match=r"loss of small .* put olss_test_own_part.py beside"):
        load(path, [change]).run_specs()
    code = tmp_path / "olss_test_own_part.py"
    code.write_text("class Mine: ...\n")
    invalidate_caches()
    sgd, sketch = load(path, [change]).run_specs()
    assert sgd.settings["loss"] == "olss_test_own_part:Mine"
    assert sgd.content()["code"] == {
        "olss_test_own_part": hashlib.sha256(code.read_bytes()).hexdigest()
    }
    assert "code" not in sketch.content()
    code.write_text("class Mine: x = 1\n")
    assert load(path, [change]).run_specs()[0].code != sgd.code


def test_reading_an_experiment_runs_no_code_of_the_user(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "mine_unread"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "parts.py").write_text("raise SystemExit('imported')")
    assert list(find_code({"loss": "mine_unread.parts:Loss"}, "a file")) == ["mine_unread.parts"]
    with pytest.raises(InputError, match="loss"):
        find_code({"loss": "mine_unread.elsewhere:Loss"}, "a file")
