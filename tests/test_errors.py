"""A missing extra is installed by the command that its error gives, wherever olss came from."""

import importlib.metadata
import json

import pytest

from olss.errors import MissingExtraError

COMMIT = "b9a3c5" * 6 + "b9a3"
GIT = {"url": "https://git.example/olss.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}}


class Installed:
    """A distribution that knows where it came from."""

    requires = ('numpy>=1', 'torch>=2.4; extra == "lab"', "jinja2; extra == 'lab'",
                'dask; extra == "dask"')  # fmt: skip

    def __init__(self, origin):
        self.origin = origin

    def read_text(self, name):
        assert name == "direct_url.json"
        return self.origin and json.dumps(self.origin)


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        (None, "'torch>=2.4' jinja2"),  # from an index
        ({"url": "file:///not/there", "dir_info": {}}, "'torch>=2.4' jinja2"),
        ({"url": "HERE/my%20olss", "dir_info": {}}, "'olss[lab] @ HERE/my%20olss'"),
        ({"url": "HERE/my%20olss", "dir_info": {"editable": True}}, "-e 'PATH/my olss[lab]'"),
        ({"url": "HERE/olss.whl", "archive_info": {}}, "'olss[lab] @ HERE/olss.whl'"),
        (GIT, f"'olss[lab] @ git+https://git.example/olss.git@{COMMIT}'"),
    ],
)
def test_the_command_goes_where_olss_came_from(monkeypatch, tmp_path, origin, said):
    (tmp_path / "my olss").mkdir()
    (tmp_path / "olss.whl").touch()
    if origin:
        origin = origin | {"url": origin["url"].replace("HERE", tmp_path.as_uri())}
    said = said.replace("HERE", tmp_path.as_uri()).replace("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Installed(origin))
    error = MissingExtraError("torch", "lab", "Learning")
    assert str(error) == f"Learning needs torch: pip install {said}"


def test_the_package_is_named_when_olss_is_not_installed_at_all(monkeypatch):
    def nowhere(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", nowhere)
    assert str(MissingExtraError("torch", "lab", "Learning")).endswith("pip install torch")
