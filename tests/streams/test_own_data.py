import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

from olss.errors import DataError, InputError, OlssWarning
from olss.streams import from_arrays
from olss.streams.own_data import LabelCodes, TaskRows, make_stream
from tests.streams.conftest import rows

RNG = np.random.default_rng(0)
X = np.arange(90.0)[:, None] + np.zeros(3)
Y = np.arange(90) % 3


def test_a_list_of_pairs_is_split_by_class() -> None:
    stream = from_arrays([(X[:30], Y[:30]), (X[30:], Y[30:])], test=0.3)
    assert stream.names == ("task 1", "task 2")
    assert stream.classes == (0, 1, 2)
    first, second = stream
    assert rows(first.X, first.X_test) == list(range(30))
    assert rows(second.X, second.X_test) == list(range(30, 90))
    assert np.bincount(first.y_test).tolist() == [3, 3, 3]
    assert np.bincount(second.y_test).tolist() == [6, 6, 6]
    assert [int(x) % 3 for x in first.X[:, 0]] == first.y.tolist()


def test_given_test_rows_are_kept_apart() -> None:
    task = from_arrays([(X[:40], Y[:40], X[40:50], Y[40:50])])[0]
    assert (rows(task.X), rows(task.X_test)) == (list(range(40)), list(range(40, 50)))


def test_one_table_is_split_by_a_column() -> None:
    month = np.array(["2024-03", "2024-01", "2024-02"])[Y]
    stream = from_arrays(X, Y % 2, by=month)
    assert stream.names == ("2024-01", "2024-02", "2024-03")
    assert rows(stream[0].X, stream[0].X_test) == list(range(1, 90, 3))


def test_data_frames_and_tensors_are_read() -> None:
    torch = pytest.importorskip("torch")
    frame = pd.DataFrame({"a": X[:, 0], "b": 1.0, "state": np.array(["well", "ill", "ill"])[Y]})
    stream = from_arrays([(frame[["a", "b"]], frame["state"]), (frame[["a", "b"]], frame["state"])])
    assert stream.class_names == ("ill", "well")
    by_row = {int(x): label for x, label in zip(X[:, 0], Y, strict=True)}
    task = stream[1]
    assert all(
        (label == 1) == (by_row[int(x)] == 0) for x, label in zip(task.X[:, 0], task.y, strict=True)
    )
    tensors = from_arrays([(torch.tensor(X), torch.tensor(Y))])
    assert isinstance(tensors[0].X, np.ndarray)


@pytest.mark.parametrize(
    ("labels", "names"), [(Y - 1, ("-1", "0", "1")), (Y > 0, ("False", "True")), (Y + 4, None)]
)
def test_labels_become_numbers_from_0_up(labels: np.ndarray, names: tuple[str, ...] | None) -> None:
    stream = from_arrays([(X, labels), (X, labels)])
    assert stream.class_names == names
    assert stream[0].y.dtype == np.int64
    if names is None:
        assert stream.classes == (4, 5, 6)
    else:
        assert stream.classes == tuple(range(len(names)))


def test_labels_are_the_same_numbers_in_tasks_that_miss_some() -> None:
    stream = from_arrays([(X[:20], np.full(20, "b")), (X[20:40], np.repeat(["a", "c"], 10))])
    assert stream.class_names == ("a", "b", "c")
    assert [task.classes for task in stream] == [(1,), (0, 2)]


def test_targets_are_told_from_labels() -> None:
    assert from_arrays([(X, Y / 2)]).classes is None
    assert from_arrays([(X, Y.astype(float))]).classes == (0, 1, 2)
    assert from_arrays([(X, X[:, 0])]).classes is None
    assert from_arrays([(X, Y.astype(float))], kind="classes").classes == (0, 1, 2)
    assert from_arrays([(X, Y)], kind="values")[0].y.dtype == np.float64
    both = from_arrays([(X, np.stack([Y, Y + 1], axis=1))])
    assert (both.classes, both[0].y.shape) == (None, (72, 2))


def test_tasks_of_different_width_are_padded_on_request() -> None:
    parts = [(X[:, :2], X[:, :1]), (X, X)]
    stream = from_arrays(parts, pad=True)
    assert [task.X.shape[1] for task in stream] == [3, 3]
    assert [task.y.shape[1] for task in stream] == [3, 3]
    assert (stream[0].X[:, 2] == 0).all()
    assert (stream[0].X[:, 1] == stream[0].X[:, 0]).all()
    assert from_arrays(parts, pad=10)[0].X_test.shape[1] == 10
    with pytest.raises(DataError, match="pad=True"):
        from_arrays(parts)
    with pytest.raises(DataError, match="2 columns"):
        from_arrays(parts, pad=2)[1]


def test_validation_holds_out_training_rows() -> None:
    stream = from_arrays([(X, Y)] * 2, seed=3)
    for task, tuning in zip(stream, stream.validation(0.25), strict=True):
        assert rows(tuning.X, tuning.X_test) == rows(task.X)
        assert np.bincount(tuning.y_test).tolist() == [6, 6, 6]


def test_validation_seed_decides_the_rows_held_out() -> None:
    stream = from_arrays([(X, Y)])
    held = [rows(stream.validation(0.25, seed=seed)[0].X_test) for seed in (0, 0, 1)]
    assert held[0] == held[1] != held[2]


def test_seed_decides_the_split() -> None:
    splits = [rows(from_arrays([(X, Y)], seed=seed)[0].X_test) for seed in (0, 0, 1)]
    assert splits[0] == splits[1] != splits[2]


def test_images_are_scaled_by_255_and_config_has_a_hash() -> None:
    images = RNG.integers(0, 256, (20, 4, 4), dtype=np.uint8)
    stream = from_arrays([(images, Y[:20])])
    assert stream.scale == stream[0].scale == 255
    assert from_arrays([(images, Y[:20])], scale=2.0)[0].scale == 2
    assert stream.config["sha256"] != from_arrays([(images // 2, Y[:20])]).config["sha256"]


def nan_at(row: int) -> np.ndarray:
    bad = X.copy()
    bad[row, 1] = np.nan
    return bad


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((X, Y),), "task 1 must be"),
        ((X,), "data .*ndarray without y"),
        (([],), "data "),
        ((X, Y), r"by must .* pass a list of \(X, y\)"),
        ((pd.DataFrame({"a": X[:, 0], "b": Y}), "b"), r"y must .* pass frame\['b'\]"),
        ((X, Y, "site"), r"by must hold a value for each row, found 'site'"),
        (
            (pd.DataFrame({"a": X[:, 0], "b": "s"}), Y, Y),
            "X must hold only numbers or only strings",
        ),
        (([(X, Y[:-1])],), "task 1: y .*90 rows"),
        (([(X[:0], Y[:0])],), "X must have rows"),
        (([(nan_at(7), Y)],), "task 1: X is not finite in 1 rows, the first is row 7"),
        (([(X, nan_at(7)[:, 1])],), "task 1: y is not finite"),
        (([(X.astype(str), Y)],), "X must hold numbers"),
        (([(X, np.array(["a", None] * 45, dtype=object))],), "task 1: y has missing values"),
        (([(X[:, 0], Y)],), "X must have rows and columns"),
        (([(X[:1], Y[:1])],), "has 1 row"),
        (
            ([([[1, 2], [3]], [0, 1])],),
            "task 1: X must be an array, found rows of",
        ),
        (([(sparse.csr_array(X), Y)],), "task 1: X must be dense, found a sparse csr_array"),
        (([(torch.tensor(X).to_sparse(), Y)],), "task 1: X must be dense, found a sparse Tensor"),
        (([(X.astype(np.longdouble), Y)],), "X .*64 bits"),
        (([(X.astype(complex), Y)],), "X must hold numbers"),
        (([(np.ma.masked_less(X, 5), Y)],), "task 1: X has masked values"),
        (([(X, np.array([2**70] * 90, dtype=object))],), "y .*64 bits"),
        (([(X, np.array([{}] * 90))],), "y .*dict"),
        (([(X, np.int64(3))],), "task 1: y "),
        (([(X, Y.astype(str)), (X, Y)],), "y holds strings"),
        ((X, Y, np.full(90, np.nan)), "by has missing values"),
        ((X, Y, [[1], [2, 3]]), "by must be an array"),
        (([(X, Y, X[:, :2], Y)],), r"rows of one shape, found \(3,\) and \(2,\)"),
    ],
)
def test_bad_data_are_named(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_arrays(*arguments[:2], **({"by": arguments[2]} if len(arguments) > 2 else {}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": 0}, "test "),
        ({"kind": "labels"}, "kind"),
        ({"names": ["a", "b"]}, "names"),
        ({"seed": "x"}, "seed must be"),
        ({"seed": -1}, "seed must be"),
        ({"names": "a"}, "names"),
        ({"pad": -2}, "pad must be"),
        ({"scale": 0}, "scale"),
    ],
)
def test_bad_options_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_arrays([(X, Y)], **options)  # type: ignore[arg-type]


def test_fractions_are_no_classes() -> None:
    with pytest.raises(DataError, match="kind="):
        from_arrays([(X, Y / 2)], kind="classes")


def test_by_of_another_length_is_named() -> None:
    with pytest.raises(DataError, match="X, y and by"):
        from_arrays(X, Y, by=Y[:5])


OPTIONS = {"test": 0.2, "kind": "auto", "pad": False, "scale": None, "seed": 0}


def test_labels_of_all_tasks_are_numbered_together() -> None:
    labels = LabelCodes.fit([np.array(["b", "c"]), np.array(["aa", "b"])])
    assert labels.names == ("aa", "b", "c")
    assert labels.encode(np.array(["c", "aa", "b"])).tolist() == [2, 0, 1]


def test_whole_numbers_stay() -> None:
    labels = LabelCodes.fit([np.array([7, 3], np.uint8), np.array([3, 9])])
    assert (labels.classes, labels.names) == ((3, 7, 9), None)
    assert labels.encode(np.array([9, 3])).tolist() == [9, 3]


def test_labels_of_2_to_the_63_and_more_do_not_wrap() -> None:
    y = np.array([2**63 + 1, 3, 2**64 - 1], np.uint64)
    labels = LabelCodes.fit([y, np.array([3])])
    assert labels.names == ("3", "9223372036854775809", "18446744073709551615")
    assert labels.encode(y).tolist() == [1, 0, 2]


def test_large_labels_of_several_kinds_keep_all_their_digits() -> None:
    labels = LabelCodes.fit([np.array([2**53 + 1], np.uint64), np.array([2**53])])
    assert labels.classes == (2**53, 2**53 + 1)


def test_a_label_nobody_saw_is_an_error() -> None:
    labels = LabelCodes.fit([np.array([7, 3])])
    with pytest.raises(DataError, match=r"Oslo has the label 5, .* data have changed"):
        labels.encode(np.array([3, 5]), "Oslo")


@pytest.mark.parametrize(
    ("targets", "kind"),
    [
        ([np.arange(3), np.arange(3)], "classes"),
        ([np.array(["a", "b"]), np.array(["a", "a"])], "classes"),
        ([np.arange(3), np.arange(3.0)], "classes"),
        ([np.arange(3), np.arange(3.0) + 0.5], "values"),
        ([np.zeros((3, 2), int), np.zeros((3, 2), int)], "values"),
    ],
)
def test_kind_of_target(targets: list[np.ndarray], kind: str) -> None:
    stream = from_arrays([(np.ones((len(y), 2)), y) for y in targets])
    assert stream.config["kind"] == kind


def test_many_integers_are_numbers_unless_kind_decides() -> None:
    X, y = np.ones((3000, 2)), np.arange(3000)
    with pytest.warns(OlssWarning, match="kind="):
        stream = from_arrays([(X, y)])
    assert stream.classes is None
    assert len(from_arrays([(X, y)], kind="classes").classes or ()) == 3000


def test_tasks_are_loaded_when_asked_for() -> None:
    X, y = np.zeros((10, 2), np.float32), np.arange(10) % 2
    loaded: list[int] = []

    def load(number: int) -> TaskRows:
        loaded.append(number)
        return TaskRows(X + number, y)

    config = {"name": "test", **OPTIONS, "scale": 1.0}
    stream = make_stream(load, ["a", "b"], config, [(2,), (2,)], [y, y])
    assert loaded == []
    assert stream[1].X[0, 0] == 1
    assert loaded == [1]


def test_no_task_at_all_is_refused() -> None:
    with pytest.raises(DataError, match="no rows"):
        make_stream(lambda number: None, [], OPTIONS, [], [])  # type: ignore[arg-type, return-value]
