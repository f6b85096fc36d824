import bz2
import gzip
import hashlib
import io
import lzma
import os
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from olss.errors import DataError, FormatError, InputError, MissingExtraError
from olss.streams import Dataset, datasets, fetch, load_dataset, permuted
from olss.streams.datasets import (
    DATASETS,
    cache_folder,
    find_dataset,
    hash_records,
    open_members,
    read_cifar,
    read_idx,
)
from tests.streams.conftest import real
from tests.streams.files_made import cifar_records, idx_bytes, write_mnist


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder that OLSS_DATA names, beside an empty cache folder."""
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("OLSS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("OLSS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "data"


def publish(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Take the small files that were found for the published ones."""
    entry, found = DATASETS[name], find_dataset(name) or []
    sums = {p.name: hashlib.md5(p.read_bytes()).hexdigest() for p in found if p.is_file()}
    known = {file: sums.get(file, md5) for file, md5 in entry.files.items()}
    contents = {}
    for path in found if not entry.members else []:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
        idx = path.name.removesuffix(".gz").replace(".idx", "-idx")
        contents[idx] = hashlib.sha256(raw).hexdigest()
    monkeypatch.setitem(DATASETS, name, replace(entry, files=known, contents=contents))


def test_digits_have_a_fixed_split_by_class() -> None:
    digits = load_dataset("digits")
    assert len(digits.y) + len(digits.y_test) == 1797
    shares = np.bincount(digits.y_test) / (np.bincount(digits.y) + np.bincount(digits.y_test))
    assert np.abs(shares - 0.2).max() < 0.01
    assert (digits.X.dtype, digits.X.max(), digits.scale) == (np.uint8, 16, 16.0)
    train, test = ({row.tobytes() for row in X} for X in (digits.X, digits.X_test))
    assert not train & test


def test_shared_arrays_are_read_only() -> None:
    digits = load_dataset("digits")
    for array in (digits.X, digits.y, digits.X_test, digits.y_test):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


@pytest.mark.parametrize(("packed", "dotted"), [(True, False), (False, False), (False, True)])
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_idx_files_are_read_gzipped_or_not(
    name: str, packed: bool, dotted: bool, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y, X_test, y_test = write_mnist(data / name, packed=packed, dotted=dotted)
    publish(monkeypatch, name)
    found = load_dataset(name)
    for ours, theirs in (
        (found.X, X),
        (found.y, y),
        (found.X_test, X_test),
        (found.y_test, y_test),
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert found.y.dtype == np.int64
    assert found.scale == 255


def test_olss_data_comes_before_the_cache(data: Path) -> None:
    write_mnist(cache_folder() / "mnist")
    assert find_dataset("mnist")[0].parent == cache_folder() / "mnist"  # type: ignore[index]
    write_mnist(data / "mnist")
    assert find_dataset("mnist")[0].parent == data / "mnist"  # type: ignore[index]


def test_debians_fashion_mnist_is_found(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = DATASETS["fashion-mnist"]
    assert "/usr/share/datasets/fashion-mnist" in entry.folders
    installed = tmp_path / "usr/share/datasets/fashion-mnist"
    monkeypatch.setitem(
        DATASETS, "fashion-mnist", replace(entry, folders=("fashion-mnist", str(installed)))
    )
    assert find_dataset("fashion-mnist") is None
    write_mnist(installed)
    publish(monkeypatch, "fashion-mnist")
    for path in installed.iterdir():  # Debian packs the files anew
        path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 1, mtime=0))
    assert load_dataset("fashion-mnist").class_names[9] == "ankle boot"  # type: ignore[index]


def test_three_of_four_files_are_not_a_data_set(data: Path) -> None:
    write_mnist(data / "mnist")
    (data / "mnist/t10k-labels-idx1-ubyte.gz").unlink()
    assert find_dataset("mnist") is None


def write_cifar(folder: Path, name: str) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    entry = DATASETS[name]
    for size, member in enumerate(entry.members, start=3):
        records, X, _ = cifar_records(size, entry.label_bytes)
        (folder / member).write_bytes(records.tobytes())
        written[member] = X
    return written


@pytest.mark.parametrize(
    ("name", "stem"), [("cifar10", "cifar-10-binary"), ("cifar100", "cifar-100-binary")]
)
@pytest.mark.parametrize("form", ["folder", "tar.gz", "tar.xz", "tar", "own folder"])
def test_cifar_is_read_from_folder_or_archive(
    name: str, stem: str, form: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if form == "folder":
        written = write_cifar(data / stem, name)
    elif form == "own folder":
        written = write_cifar(data / name, name)
    else:
        written = write_cifar(tmp_path / "loose" / stem, name)
        with tarfile.open(data / f"{stem}.{form}", f"w:{form[4:]}") as opened:
            opened.add(tmp_path / "loose" / stem, arcname=stem)
    publish(monkeypatch, name)
    found = load_dataset(name)
    *train, test = written.values()
    np.testing.assert_array_equal(found.X, np.concatenate(train))
    np.testing.assert_array_equal(found.X_test, test)
    np.testing.assert_array_equal(found.y_test, np.arange(len(test)) % 10)
    assert len(found.class_names or ()) == DATASETS[name].classes


@pytest.mark.parametrize("packed", [True, False])
def test_files_that_are_not_the_published_ones_are_refused(packed: bool, data: Path) -> None:
    write_mnist(data / "mnist", packed=packed)
    with pytest.raises(FormatError, match=r"sha256 sum"):
        load_dataset("mnist")


def test_a_folder_of_other_cifar_records_is_refused(data: Path) -> None:
    write_cifar(data / "cifar100", "cifar100")
    with pytest.raises(FormatError, match="sha256 sum"):
        load_dataset("cifar100")


def test_records_may_come_in_another_order_but_not_changed() -> None:
    records, _, _ = cifar_records(6, 1)
    turned = records.reshape(6, -1)[::-1].ravel()
    assert hash_records(turned, 3073) == hash_records(records, 3073)
    turned[5_000] ^= 1
    assert hash_records(turned, 3073) != hash_records(records, 3073)


def test_an_archive_with_the_official_name_has_the_official_sum(tmp_path: Path) -> None:
    packed = archive(tmp_path / "data.tar", CONTENTS, "tar")
    with pytest.raises(FormatError, match="md5 sum"):
        open_members(packed, ["test.bin"], tmp_path / "cache", {"data.tar": "0" * 32})
    right = {"data.tar": hashlib.md5(packed.read_bytes()).hexdigest()}
    assert open_members(packed, ["test.bin"], tmp_path / "cache", right)["test.bin"].size == 3


def test_a_file_that_changes_is_checked_again(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = write_mnist(data / "mnist", packed=False)
    publish(monkeypatch, "mnist")
    load_dataset("mnist")
    damaged = data / "mnist/t10k-images-idx3-ubyte"
    damaged.write_bytes(idx_bytes(arrays[2] ^ 1))
    with pytest.raises(FormatError, match="sha256 sum"):
        load_dataset("mnist")


def test_a_missing_data_set_says_what_to_do(data: Path) -> None:
    with pytest.raises(DataError) as error:
        load_dataset("mnist")
    text = str(error.value)
    for part in ("olss data get mnist", "t10k-labels-idx1-ubyte.gz", str(data / "mnist"), "https"):
        assert part in text


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(InputError, match="cifar100"):
        load_dataset("cifar-100")


@pytest.mark.parametrize(
    ("platform", "expected"),
    [("linux", "xdg/olss"), ("darwin", "home/Library/Caches/olss"), ("win32", "local/olss/Cache")],
)
def test_cache_folder_follows_the_platform(
    platform: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OLSS_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    monkeypatch.setattr(sys, "platform", platform)
    assert cache_folder() == tmp_path / expected


def test_a_missing_package_is_named(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = permuted("digits", tasks=1)
    datasets._load_digits.cache_clear()
    for package in ("sklearn.datasets", "pooch", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match="needs scikit-learn: pip install"):
        load_dataset("digits")
    with pytest.raises(MissingExtraError, match="mnist needs pooch"):
        fetch("mnist")
    with pytest.raises(MissingExtraError, match=r"Stream\.preview needs matplotlib"):
        stream.preview()


def test_data_that_do_not_fit_are_refused() -> None:
    X, y = np.zeros((4, 2)), np.arange(4)
    with pytest.raises(DataError, match="y must hold one integer label"):
        Dataset("bad", X, y[:3], X, y)
    with pytest.raises(DataError, match="y_test must hold"):
        Dataset("bad", X, y, X, y / 2)
    with pytest.raises(DataError, match="X and X_test"):
        Dataset("bad", X, y, X[:, :1], y)


def test_streams_import_nothing_heavy() -> None:
    code = "import sys, olss.streams; print([m for m in sys.argv[1:] if m in sys.modules])"
    heavy = ["torch", "sklearn", "pandas", "matplotlib", "pyarrow", "pooch"]
    done = subprocess.run(
        [sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@real("mnist/train-images-idx3-ubyte.gz")
def test_real_mnist() -> None:
    mnist = load_dataset("mnist")
    assert (mnist.X.shape, mnist.X_test.shape) == ((60_000, 28, 28), (10_000, 28, 28))
    assert np.bincount(mnist.y)[:3].tolist() == [5923, 6742, 5958]
    assert mnist.y[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert abs(mnist.X.mean() / 255 - 0.1307) < 5e-5


@real("cifar-100-binary.tar.xz")
def test_real_cifar100() -> None:
    cifar = load_dataset("cifar100")
    assert (cifar.X.shape, cifar.X_test.shape) == ((50_000, 3, 32, 32), (10_000, 3, 32, 32))
    assert set(np.bincount(cifar.y)) == {500}
    assert set(np.bincount(cifar.y_test)) == {100}
    # The published means of red, green and blue.
    means = cifar.X[::10].mean(axis=(0, 2, 3)) / 255
    np.testing.assert_allclose(means, [0.5071, 0.4865, 0.4409], atol=0.01)
    assert cifar.class_names is not None
    assert (cifar.class_names[0], cifar.class_names[17], cifar.class_names[99]) == (
        "apple", "castle", "worm",
    )  # fmt: skip
    path = Path(os.environ["OLSS_DATA"], "cifar-100-binary.tar.xz")
    with tarfile.open(path) as opened:
        for entry in opened:
            if entry.name.endswith("fine_label_names.txt"):
                names = io.TextIOWrapper(opened.extractfile(entry)).read().split()  # type: ignore[arg-type]
                assert tuple(names) == cifar.class_names
                break


RNG = np.random.default_rng(0)
PACK = {
    "tar": bytes,
    "tar.gz": gzip.compress,
    "tar.bz2": bz2.compress,
    "tar.xz": lzma.compress,
}


@pytest.mark.parametrize("kind", ["u1", "i1", ">i2", ">i4", ">f4", ">f8"])
@pytest.mark.parametrize("packed", [False, True])
def test_idx_comes_back(kind: str, packed: bool, tmp_path: Path) -> None:
    values = (RNG.random((4, 3, 2)) * 100).astype(kind)
    raw = idx_bytes(values)
    (tmp_path / "file").write_bytes(gzip.compress(raw, mtime=0) if packed else raw)
    np.testing.assert_array_equal(read_idx(tmp_path / "file"), values)


IMAGES = idx_bytes(np.zeros((5, 3, 3), np.uint8))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "an idx file does not start with"),
        (b"PK\x03\x04 something else", "an idx file does not start with"),
        (IMAGES[:-1], r"shape \(5, 3, 3\) needs 61 bytes, found 60"),
        (IMAGES + b"x", "found 62"),
        (IMAGES[:9], "an idx file does not start with"),
        (gzip.compress(IMAGES, mtime=0)[:-9], "damaged or a different file"),
        (b"\x1f\x8b" + b"damaged" * 9, "damaged or a different file"),
    ],
)
def test_bad_idx_files_are_told_from_good_ones(raw: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "images"
    path.write_bytes(raw)
    with pytest.raises(FormatError, match=message) as error:
        read_idx(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("label_bytes", [1, 2])
def test_cifar_records_are_labels_and_planes(label_bytes: int) -> None:
    records, X, y = cifar_records(6, label_bytes)
    cut = 2 * (3072 + label_bytes)
    images, labels = read_cifar([records[:cut], records[cut:]], label_bytes, 10, Path("x"))
    np.testing.assert_array_equal(images, X)
    np.testing.assert_array_equal(labels, y)
    assert images.shape == (6, 3, 32, 32)


def test_bad_cifar_records_are_refused() -> None:
    records, _, _ = cifar_records(3, 1)
    with pytest.raises(FormatError, match=r"x is damaged.*9218 bytes are not records of 3073"):
        read_cifar([records[:-1]], 1, 10, Path("x"))
    with pytest.raises(FormatError, match="0 bytes are not"):
        read_cifar([records[:0]], 1, 10, Path("x"))
    records = records.copy()
    records[0] = 77
    with pytest.raises(FormatError, match="label 77"):
        read_cifar([records], 1, 10, Path("x"))


def archive(path: Path, contents: dict[str, bytes], pack: str) -> Path:
    stored = io.BytesIO()
    with tarfile.open(fileobj=stored, mode="w") as opened:
        for name, raw in contents.items():
            entry = tarfile.TarInfo(f"some-folder/{name}")
            entry.size = len(raw)
            opened.addfile(entry, io.BytesIO(raw))
    path.write_bytes(PACK[pack](stored.getvalue()))
    return path


CONTENTS = {"train.bin": b"abc" * 1000, "readme.txt": b"-", "test.bin": b"xyz"}


@pytest.mark.parametrize("pack", PACK)
def test_archives_of_any_compression_are_unpacked_once(
    pack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = archive(tmp_path / f"data.{pack}", CONTENTS, pack)
    for _ in range(2):
        found = open_members(packed, ["train.bin", "test.bin"], tmp_path / "cache")
        assert {name: raw.tobytes() for name, raw in found.items()} == {
            name: CONTENTS[name] for name in ("train.bin", "test.bin")
        }
        found_there = {path.name.split("-")[0] for path in (tmp_path / "cache").iterdir()}
        assert found_there == {"data"}  # nothing half-written
        monkeypatch.setattr(datasets, "_unpack", None)  # the second time needs no archive


def test_a_changed_archive_is_unpacked_again(tmp_path: Path) -> None:
    path = tmp_path / "data.tar"
    for content in (b"old", b"new"):
        archive(path, {"a": content}, "tar")
        os.utime(path, ns=(0, content[0]))
        assert open_members(path, ["a"], tmp_path / "cache")["a"].tobytes() == content


def test_a_cache_that_cannot_be_written_is_left_out(tmp_path: Path) -> None:
    packed = archive(tmp_path / "data.tar.gz", CONTENTS, "tar.gz")
    (tmp_path / "cache").write_text("a file where the folder should be")
    found = open_members(packed, ["test.bin"], tmp_path / "cache")
    assert found["test.bin"].tobytes() == b"xyz"


@pytest.mark.parametrize("pack", PACK)
def test_a_cut_archive_is_refused_and_leaves_nothing(pack: str, tmp_path: Path) -> None:
    rng_bytes = np.random.default_rng(1).bytes(50_000)
    packed = archive(tmp_path / f"data.{pack}", {"train.bin": rng_bytes}, pack)
    packed.write_bytes(packed.read_bytes()[:30_000])
    with pytest.raises(FormatError, match="damaged or a different file"):
        open_members(packed, ["train.bin"], tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_an_archive_without_the_file_is_refused(tmp_path: Path) -> None:
    packed = archive(tmp_path / "data.tar", {"other": b"1"}, "tar")
    with pytest.raises(FormatError, match=r"has no train\.bin"):
        open_members(packed, ["train.bin"], tmp_path / "cache")


def test_an_empty_file_is_read_as_empty(tmp_path: Path) -> None:
    (tmp_path / "train.bin").touch()
    assert open_members(tmp_path, ["train.bin"], tmp_path)["train.bin"].size == 0


@pytest.mark.parametrize("pack", ["tar.gz", "tar.bz2", "tar.xz"])
def test_no_flipped_bit_of_a_packed_archive_goes_unnoticed(pack: str, tmp_path: Path) -> None:
    noise = np.random.default_rng(1).bytes(5_000)
    packed = archive(tmp_path / f"data.{pack}", {"train.bin": noise}, pack)
    whole = packed.read_bytes()
    for place in np.random.default_rng(2).integers(8 * len(whole), size=100).tolist():
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        packed.write_bytes(flipped)
        try:
            found = open_members(packed, ["train.bin"], tmp_path / f"cache-{place}")
        except FormatError:
            continue
        # What is left are bits that say nothing of the content, such as the time of packing.
        assert found["train.bin"].tobytes() == noise


def test_what_was_unpacked_and_has_changed_is_unpacked_again(tmp_path: Path) -> None:
    packed = archive(tmp_path / "data.tar.gz", CONTENTS, "tar.gz")
    open_members(packed, ["test.bin"], tmp_path / "cache")
    (unpacked,) = tmp_path.glob("cache/data-*/test.bin")
    unpacked.write_bytes(b"xyy")
    assert open_members(packed, ["test.bin"], tmp_path / "cache")["test.bin"].tobytes() == b"xyz"
