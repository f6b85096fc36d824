import bz2
import gzip
import io
import lzma
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest

from olss.errors import FormatError
from olss.streams import dataset_formats as formats
from olss.streams.dataset_formats import open_members, read_cifar, read_idx
from tests.streams.files_made import cifar_records, idx_bytes

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
    (tmp_path / "file").write_bytes(gzip.compress(raw) if packed else raw)
    np.testing.assert_array_equal(read_idx(tmp_path / "file"), values)


IMAGES = idx_bytes(np.zeros((5, 3, 3), np.uint8))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "not an idx file"),
        (b"PK\x03\x04 something else", "not an idx file: it starts with b'PK"),
        (IMAGES[:-1], r"should hold \(5, 3, 3\) numbers in 45 bytes, found 44"),
        (IMAGES + b"x", "found 46"),
        (IMAGES[:9], "Fetch it again"),
        (gzip.compress(IMAGES)[:-9], "cut short or damaged"),
        (b"\x1f\x8b" + b"damaged" * 9, "cut short or damaged"),
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
    with pytest.raises(
        FormatError, match="a file of x should hold records of 3073 bytes, found 9218"
    ):
        read_cifar([records[:-1]], 1, 10, Path("x"))
    with pytest.raises(FormatError, match="found 0:"):
        read_cifar([records[:0]], 1, 10, Path("x"))
    records = records.copy()
    records[0] = 77
    with pytest.raises(FormatError, match="has the label 77, but there are 10 classes"):
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
        assert found_there <= {"data", "checked"}  # nothing half-written
        monkeypatch.setattr(formats, "_unpack", None)  # the second time needs no archive


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
    with pytest.raises(FormatError, match="cut short or damaged"):
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
