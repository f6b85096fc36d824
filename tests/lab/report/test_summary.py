import json

import numpy as np
import pytest

from olss.lab.report.collect import collect
from olss.lab.report.summary import summarise
from tests.lab.report.made import METHODS, made, saved


def test_everything_is_plain_json_and_as_computed(content):
    json.dumps(content, allow_nan=False)
    stream = content["streams"][0]
    assert [m["recipe"] for m in stream["methods"]] == [*list(METHODS)[:-1], "olss"]
    gem = stream["methods"][2]
    runs = [made("gem", seed) for seed in range(3)]
    expected = np.mean([run.average_accuracy for run in runs], axis=0)
    assert gem["curves"]["average"]["mean"] == pytest.approx(expected, abs=1e-5)
    expected = np.mean([run.accuracy[:, 0] for run in runs], axis=0)
    assert gem["curves"]["first"]["mean"] == pytest.approx(expected, abs=1e-5)
    expected = np.mean([run.accuracy[-1] for run in runs], axis=0)
    assert gem["curves"]["final"]["mean"] == pytest.approx(expected, abs=1e-5)
    assert gem["memory_rows"][-1] == [256] * 8
    assert gem["values"]["ratio"]["mean"] == pytest.approx(40, rel=0.02)


def test_a_method_looks_the_same_on_every_stream(content):
    looks = [
        {m["label"]: (m["colour"], m["dash"]) for m in s["methods"]} for s in content["streams"]
    ]
    assert looks[0] == looks[1]


def test_settings_all_share_are_protocol_and_others_are_the_methods(tmp_path):
    saved(tmp_path, "sgd", 0)
    other = made("ewc")
    other.config["training"]["lr"] = 0.3
    other.save(tmp_path / "ewc")
    (stream,) = summarise(collect([tmp_path]))["streams"]
    assert "5 epochs" in stream["protocol_words"]
    assert not any("learning rate" in words for words in stream["protocol_words"])
    assert "lr 0.1" in stream["methods"][0]["settings"]
    assert "lr 0.3" in stream["methods"][1]["settings"]


def test_every_training_setting_that_differs_is_the_methods_own(tmp_path):
    saved(tmp_path, "sgd", 0)
    saved(tmp_path, "er", 0)
    for method, training in {
        "ewc": {"loss": "logit-adjusted", "tau": 1.0, "augment": "flip"},
        "olss": {"average_steps": 100, "precision": "bfloat16"},
    }.items():
        record = made(method)
        record.config["training"] |= training | {"mirrored": False}
        record.save(tmp_path / method)
    (stream,) = summarise(collect([tmp_path]))["streams"]
    told = {method["label"]: method["settings"] for method in stream["methods"]}
    assert "loss logit-adjusted, augment flip, tau 1.0" in told["ewc"]
    assert "average steps 100, precision bfloat16" in told["olss"]
    assert "mirrored" not in told["ewc"]
    assert told["sgd"] == "regime task"


def test_the_protocol_says_rows_and_steps_of_the_configuration_and_no_other_words(tmp_path):
    record = made("sgd", protocol="as in the paper of 2017")
    steps = [{"name": "label_noise", "share": 0.2, "seed": 0}]
    record.config["stream"] |= {"train_rows": 1000, "test_rows": 500, "steps": steps}
    record.save(tmp_path)
    (stream,) = summarise(collect([tmp_path]))["streams"]
    for words in ("1,000 training rows a task", "500 test rows a task", "label noise share 0.2"):
        assert words in stream["protocol_words"]
    assert "2017" not in " ".join(stream["protocol_words"])
