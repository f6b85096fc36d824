import os
import stat
import subprocess
import sys

import pytest

from olss.errors import InputError
from olss.util.files import open_atomic, resolve_output

posix = pytest.mark.skipif(os.name != "posix", reason="of POSIX systems")


def write(path, content=b"new"):
    with open_atomic(path) as file:
        file.write(content)


def test_the_file_is_there_once_it_is_whole(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with open_atomic(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("error", [OSError("No space left on device"), KeyboardInterrupt()])
def test_an_error_leaves_everything_as_it_was(tmp_path, error):
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def fail():
        with open_atomic(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path):
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far/real", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write(link)
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "far/not yet")
    write(dangling)
    assert (tmp_path / "far/not yet").read_bytes() == b"new"
    assert sorted(p.name for p in (tmp_path / "far").iterdir()) == ["not yet", "real"]


@posix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_the_mode_is_kept_and_the_half_written_file_is_nobodys(tmp_path, mode):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(mode)
    with open_atomic(path) as file:
        file.write(b"new")
        (part,) = tmp_path.glob(".*.part")
        assert stat.S_IMODE(part.stat().st_mode) == mode
    assert stat.S_IMODE(path.stat().st_mode) == mode


@posix
def test_a_new_file_has_the_mode_the_user_gives_new_files(tmp_path):
    before = os.umask(0o027)
    try:
        write(tmp_path / "a")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root may")
def test_the_owner_is_kept(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    os.chown(path, 4711, 4712)
    write(path)
    assert (path.stat().st_uid, path.stat().st_gid) == (4711, 4712)


@posix
def test_what_is_no_file_is_refused_and_left_alone(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/dev/null")
    for path, kind in (
        ("/dev/null", "a device"),
        (tmp_path / "link", "a device"),
        (tmp_path / "pipe", "a pipe"),
        (tmp_path / "folder", "a folder"),
    ):
        with pytest.raises(InputError, match=f"is {kind}; give the path of a file"):
            write(path)
        with pytest.raises(InputError, match=f"is {kind}"):
            resolve_output(path)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)


def test_errors_name_the_path_asked_for(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder") as error:
        write(tmp_path / "nowhere/a")
    assert error.value.filename == str(tmp_path / "nowhere/a")
    (tmp_path / "file").touch()
    with pytest.raises((InputError, OSError), match="file"):
        write(tmp_path / "file/a")
    with pytest.raises(OSError, match="long"):
        write(tmp_path / ("n" * 300))


def test_a_name_as_long_as_names_may_be(tmp_path):
    write(tmp_path / ("n" * 255))
    write(tmp_path / ("ä" * 127))
    assert len(list(tmp_path.iterdir())) == 2


@posix
def test_a_disk_that_fills_up_leaves_nothing(tmp_path):
    code = (
        "import resource, signal, sys; from olss.util.files import open_atomic\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "with open_atomic(sys.argv[1]) as file: file.write(bytes(10_000))\n"
    )
    (tmp_path / "a").write_bytes(b"old")
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "a"], capture_output=True, text=True, check=False
    )
    assert "File too large" in done.stderr
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("a", b"old")]
