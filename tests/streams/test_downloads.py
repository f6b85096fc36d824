import hashlib
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from olss.errors import DataError, InputError
from olss.streams import fetch, list_datasets, load_dataset
from olss.streams.datasets import DATASETS
from tests.streams.files_made import write_mnist


class Server(ThreadingHTTPServer):
    """Gives the files of a folder under /good/, and trouble under other names."""

    folder: Path
    asked: list[str]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        kind, name = self.path.strip("/").split("/")
        if kind == "absent":
            self.send_error(404)
            return
        content = (self.server.folder / name).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if kind == "wrong":
            content = content[:-1] + b"?"
        if kind == "cut":
            content = content[: len(content) // 2]
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as running:
        running.folder, running.asked = tmp_path / "served", []
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def served(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """Serve a small MNIST; OLSS_DATA and the cache are empty."""
    monkeypatch.delenv("OLSS_DATA", raising=False)
    monkeypatch.setenv("OLSS_CACHE", str(tmp_path / "cache"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    arrays = write_mnist(server.folder)
    sums = {p.name: hashlib.md5(p.read_bytes()).hexdigest() for p in server.folder.iterdir()}
    monkeypatch.setitem(DATASETS, "mnist", replace(DATASETS["mnist"], files=sums, contents={}))
    return arrays


def use_mirrors(monkeypatch: pytest.MonkeyPatch, server: Server, *kinds: str) -> None:
    root = f"http://127.0.0.1:{server.server_port}"
    mirrors = tuple(f"{root}/{kind}/" for kind in kinds)
    monkeypatch.setitem(DATASETS, "mnist", replace(DATASETS["mnist"], mirrors=mirrors))


@pytest.mark.parametrize(
    "kinds", [("good",), ("absent", "good"), ("wrong", "good"), ("cut", "good")]
)
def test_the_first_mirror_that_is_right_is_taken(
    kinds: tuple[str, ...],
    server: Server,
    served: list[np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    use_mirrors(monkeypatch, server, *kinds)
    assert fetch("mnist", progress=False) == tmp_path / "cache/mnist"
    np.testing.assert_array_equal(load_dataset("mnist").X, served[0])
    assert len(server.asked) == 4 * len(kinds)
    assert len(list((tmp_path / "cache/mnist").iterdir())) == 4
    fetch("mnist", progress=False)
    assert len(server.asked) == 4 * len(kinds)  # nothing is fetched twice


@pytest.mark.parametrize(
    ("kind", "reason"), [("absent", "404"), ("wrong", "MD5|hash"), ("cut", "IncompleteRead|broken")]
)
def test_without_a_right_mirror_nothing_is_left_and_the_remedy_said(
    kind: str,
    reason: str,
    server: Server,
    served: list[np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    use_mirrors(monkeypatch, server, kind, kind)
    with pytest.raises(DataError, match=reason) as error:
        fetch("mnist", progress=False)
    text = str(error.value)
    assert len(server.asked) == 2
    for part in ("Offline", "md5", str(tmp_path / "cache/mnist")):
        assert part in text
    assert [*tmp_path.glob("cache/mnist/*")] == []


def test_no_server_at_all(
    server: Server, served: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = replace(DATASETS["mnist"], mirrors=("http://127.0.0.1:9/",))
    monkeypatch.setitem(DATASETS, "mnist", closed)
    with pytest.raises(DataError, match="could not be downloaded"):
        fetch("mnist", progress=False)


def test_a_damaged_file_is_fetched_again(
    server: Server, served: list[np.ndarray], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_mirrors(monkeypatch, server, "good")
    fetch("mnist", progress=False)
    (tmp_path / "cache/mnist/t10k-labels-idx1-ubyte.gz").write_bytes(b"damaged")
    fetch("mnist", progress=False)
    assert load_dataset("mnist").y_test.tolist() == served[3].tolist()


def test_progress_is_shown(
    server: Server,
    served: list[np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    use_mirrors(monkeypatch, server, "good")
    fetch("mnist")
    shown = capsys.readouterr().out
    assert "train-images-idx3-ubyte.gz" in shown
    assert "kB" in shown


def test_list_says_where_each_data_set_is(
    server: Server, served: list[np.ndarray], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = {status.name: status for status in list_datasets()}
    assert set(before) == {"digits", "mnist", "fashion-mnist", "cifar10", "cifar100"}
    assert before["mnist"].where is None
    use_mirrors(monkeypatch, server, "good")
    fetch("mnist", progress=False)
    after = {status.name: status for status in list_datasets()}["mnist"]
    assert after.where == str(tmp_path / "cache/mnist")


def test_fetch_of_digits_needs_nothing_and_of_unknown_is_refused(tmp_path: Path) -> None:
    fetch("digits", tmp_path)
    assert [*tmp_path.iterdir()] == []
    with pytest.raises(InputError, match="mnist"):
        fetch("mnits")


def test_what_olss_data_has_is_not_fetched(
    server: Server, served: list[np.ndarray], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_mirrors(monkeypatch, server, "good")
    write_mnist(tmp_path / "data/mnist")
    monkeypatch.setenv("OLSS_DATA", str(tmp_path / "data"))
    assert fetch("mnist", progress=False) == tmp_path / "data/mnist"
    assert server.asked == []
    assert fetch("mnist", tmp_path / "other", progress=False) == tmp_path / "other/mnist"
    assert len(server.asked) == 4


def test_everything_to_download_has_a_sum_and_an_address() -> None:
    for name, entry in DATASETS.items():
        assert entry.what
        if name == "digits":
            continue
        assert entry.mirrors
        assert all(re.fullmatch("https://.+/", mirror) for mirror in entry.mirrors)
        assert all(re.fullmatch("[0-9a-f]{32}", md5) for md5 in entry.files.values())
        assert entry.class_names is None or len(entry.class_names) == entry.classes
