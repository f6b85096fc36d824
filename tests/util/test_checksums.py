"""No bit of a file with a checksum can change unnoticed."""

import hashlib

import pytest

from olss.errors import FormatError
from olss.util import checksums
from olss.util.checksums import (
    CHECKSUM_BLANK,
    CHECKSUM_KEY,
    ChecksumWriter,
    Metadata,
    add_checksum,
    has_checksum,
    verify_checksum,
    verify_file,
)

FIELD = CHECKSUM_KEY.encode() + b"\x18\x40" + CHECKSUM_BLANK.encode()


def write(path, before, after):
    with path.open("w+b") as file:
        writer = ChecksumWriter(file)
        for piece in (before, FIELD, after):
            writer.write(piece)
        writer.finish()


@pytest.mark.parametrize("before", [0, 1, 50, 63, 64, 100, 128])
@pytest.mark.parametrize("after", [0, 1, 64, 200])
def test_a_file_is_verified_wherever_its_checksum_lies(tmp_path, monkeypatch, before, after):
    monkeypatch.setattr(checksums, "CHUNK", 64)
    path = tmp_path / "file"
    write(path, b"a" * before, b"b" * after)
    content = path.read_bytes()
    plain = b"a" * before + FIELD + b"b" * after
    assert hashlib.sha256(plain).hexdigest().encode() in content
    assert len(content) == len(plain)
    verify_file(path)


def test_every_changed_byte_is_noticed(tmp_path):
    path = tmp_path / "file"
    write(path, b"some rows", b"the end")
    content = path.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(changed)
        with pytest.raises(FormatError, match="checksum"):
            verify_file(path)
    path.write_bytes(content[:-1])
    with pytest.raises(FormatError, match="checksum"):
        verify_file(path)
    path.write_bytes(b"another file")
    assert not has_checksum(path)


def test_json_content_must_match_its_checksum():
    content = {"version": 3, "rows": [1, 2.5, None], "name": "Zürich"}
    assert verify_checksum(add_checksum(content), "a.json") == content
    for damaged in (content, add_checksum(content) | {"rows": []}, {"x": float("nan")}):
        with pytest.raises(FormatError, match=r"a\.json"):
            verify_checksum(damaged, "a.json")
    assert verify_checksum({"version": 1}, "a.json", since=2) == {"version": 1}


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        ("integer", [True, 1.0, "1", -1, 2**63, None]),
        ("number", [True, "1", None, 10**400]),
        ("boolean", [0, "true", None]),
        ("string", [1, None, []]),
        ("array", [{}, "ab", None]),
        ("object", [[], "ab", None]),
    ],
)
def test_metadata_of_a_wrong_type_is_named(kind, bad):
    for value in bad:
        content = Metadata("a.parquet", {"entry": value})
        with pytest.raises(FormatError, match="entry"):
            getattr(content, kind)("entry")
    with pytest.raises(FormatError, match="entry is missing"):
        getattr(Metadata("a.parquet", {}), kind)("entry")
