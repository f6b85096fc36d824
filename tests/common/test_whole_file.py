import pytest

from olss.common.whole_file import whole_file


def test_the_file_is_there_once_it_is_whole(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with whole_file(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_an_error_leaves_everything_as_it_was(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def fail():
        with whole_file(path) as file:
            file.write(b"half")
            raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space left"):
        fail()
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
