import hashlib
import os
import socket
import stat
import subprocess
import sys
import threading
import time

import pytest

from olss.errors import FormatError, InputError
from olss.util import files
from olss.util.files import (
    CHECKSUM_BLANK,
    CHECKSUM_KEY,
    ChecksumWriter,
    add_checksum,
    file_lock,
    has_checksum,
    lock_holder,
    open_atomic,
    resolve_output,
    verify_checksum,
    verify_file,
)

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


@pytest.mark.parametrize("path", ["a\0b", "\0"])
def test_a_path_with_a_null_character_is_refused(path):
    with pytest.raises(InputError, match="path"):
        resolve_output(path)


HOLD = """
import sys, pathlib
from olss.util.files import file_lock
with file_lock(pathlib.Path(sys.argv[1])) as mine:
    print("got" if mine else "not", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def elsewhere(tmp_path):
    """Another process that holds the lock until it is told to let go."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path / "lock"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "got\n"
    yield process
    process.kill()
    process.communicate()


def test_one_process_holds_a_lock_and_others_are_told_which(tmp_path, elsewhere):
    with file_lock(tmp_path / "lock") as acquired:
        assert not acquired
    found = lock_holder(tmp_path / "lock")
    assert found.startswith(f"process {elsewhere.pid} on {socket.gethostname()}, since 20")


def test_waiting_ends_when_the_lock_is_released(tmp_path, elsewhere):
    release = threading.Timer(0.3, elsewhere.communicate, ["\n"])
    release.start()
    with file_lock(tmp_path / "lock", wait=True) as acquired:
        assert acquired
        assert f"process {os.getpid()} " in lock_holder(tmp_path / "lock")
    release.join()


def test_waiting_has_a_limit(tmp_path, elsewhere):
    start = time.monotonic()
    with file_lock(tmp_path / "lock", wait=0.3) as acquired:
        assert not acquired
    assert 0.3 <= time.monotonic() - start < 10
    assert f"process {elsewhere.pid} " in lock_holder(tmp_path / "lock")


def test_a_lock_is_free_once_its_holder_was_killed(tmp_path, elsewhere):
    elsewhere.kill()
    elsewhere.wait()
    with file_lock(tmp_path / "lock") as acquired:
        assert acquired
    assert lock_holder(tmp_path / "lock") == "another process"


def test_a_lock_file_can_be_removed_without_two_holders(tmp_path):
    path, holders, most = tmp_path / "lock", [], []

    def work():
        for _ in range(30):
            with file_lock(path, wait=True, remove=True):
                holders.append(None)
                most.append(len(holders))
                holders.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(most), max(most)) == (120, 1)
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"\xff"])
def test_a_lock_file_that_names_nobody(tmp_path, content):
    assert lock_holder(tmp_path / "absent") == "another process"
    (tmp_path / "lock").write_bytes(content)
    assert lock_holder(tmp_path / "lock") == "another process"
    with file_lock(tmp_path / "lock") as acquired:
        assert acquired


FIELD = CHECKSUM_KEY.encode() + b"\x18\x40" + CHECKSUM_BLANK.encode()


def write_checked(path, before, after):
    with path.open("w+b") as file:
        writer = ChecksumWriter(file)
        for piece in (before, FIELD, after):
            writer.write(piece)
        writer.finish()


@pytest.mark.parametrize("before", [0, 1, 50, 63, 64, 100, 128])
@pytest.mark.parametrize("after", [0, 1, 64, 200])
def test_a_file_is_verified_wherever_its_checksum_lies(tmp_path, monkeypatch, before, after):
    monkeypatch.setattr(files, "CHUNK", 64)
    path = tmp_path / "file"
    write_checked(path, b"a" * before, b"b" * after)
    content = path.read_bytes()
    plain = b"a" * before + FIELD + b"b" * after
    assert hashlib.sha256(plain).hexdigest().encode() in content
    assert len(content) == len(plain)
    verify_file(path)


def test_every_changed_byte_is_noticed(tmp_path):
    path = tmp_path / "file"
    write_checked(path, b"some rows", b"the end")
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
