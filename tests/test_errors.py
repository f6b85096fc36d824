"""A missing extra is installed by the command that its error gives, wherever olss came from."""

import importlib.metadata
import json

import pytest

from olss.errors import MissingExtraError

COMMIT = "b9a3c5" * 6 + "b9a3"
GIT = {"url": "https://git.example/olss.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}}


class Installed:
    def __init__(self, origin):
        self.origin = origin

    def read_text(self, name):
        assert name == "direct_url.json"
        return self.origin


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        (None, "'olss[lab]'"),  # from an index
        ({"url": "file:///a/my%20olss", "dir_info": {}}, "'olss[lab] @ file:///a/my%20olss'"),
        ({"url": "file:///a/my%20olss", "dir_info": {"editable": True}}, "-e '/a/my olss[lab]'"),
        ({"url": "file:///a/olss.whl", "archive_info": {}}, "'olss[lab] @ file:///a/olss.whl'"),
        (GIT, f"'olss[lab] @ git+https://git.example/olss.git@{COMMIT}'"),
    ],
)
def test_the_command_goes_where_olss_came_from(monkeypatch, origin, said):
    found = Installed(origin and json.dumps(origin))
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: found)
    error = MissingExtraError("torch", "lab", "Learning")
    assert str(error) == f"Learning needs torch: pip install {said}"


def test_it_is_told_when_olss_is_not_installed_at_all(monkeypatch):
    def nowhere(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", nowhere)
    assert str(MissingExtraError("torch", "lab", "Learning")).endswith("pip install 'olss[lab]'")
