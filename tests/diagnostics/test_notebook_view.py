from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np

from olss import Sketch

VOID = {"br", "img", "link", "meta"}


class Balanced(HTMLParser):
    """Fails where elements are not closed in their order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.text = [], [], ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


HOSTILE = "<script>alert(1)</script>\x1b[2J"


def test_a_sketch_and_its_description_are_shown_and_escaped():
    X = np.random.default_rng(0).standard_normal((90, 2))
    sketch = Sketch(30, seed=0).update(X, y=np.repeat(["a", "b", HOSTILE], 30), task=HOSTILE)
    for page in (sketch._repr_html_(), sketch.describe()._repr_html_()):
        found = Balanced(page)
        assert "script" not in found.tags
        assert "\x1b" not in page
        assert HOSTILE.replace("\x1b", "\\x1b") in found.text
        assert "30 rows of 90 seen" in found.text
        assert "scored: rows as they are, 2 numbers each" in found.text
    assert repr(sketch).replace("\x1b", "\\x1b") in Balanced(sketch._repr_html_()).text


def test_no_colour_is_set_but_that_of_bars():
    """Whatever the theme of the notebook, text has its colours."""
    page = Sketch(5).update(np.eye(3))._repr_html_()
    assert not re.search(r"(?<!-)\bcolor:", page)
    assert set(re.findall(r"background:([^;]+)", page)) == {"none", "#0072B2"}


def test_an_empty_sketch_is_shown_too():
    assert "0 rows of 0 seen" in Balanced(Sketch(5)._repr_html_()).text


def test_nothing_heavy_is_loaded_for_it():
    code = (
        "import sys, numpy as np, olss; s = olss.Sketch(5).update(np.eye(3)); s._repr_html_(); "
        "print([m for m in ('matplotlib', 'pandas', 'polars') if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.stdout.strip() == "[]", answer.stderr
