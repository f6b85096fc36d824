import re

from olss.streams.dataset_registry import DATASETS


def test_everything_to_download_has_a_sum_and_an_address() -> None:
    for name, entry in DATASETS.items():
        assert entry.what
        if name == "digits":
            continue
        assert entry.mirrors
        assert all(re.fullmatch("https://.+/", mirror) for mirror in entry.mirrors)
        assert all(re.fullmatch("[0-9a-f]{32}", md5) for md5 in entry.files.values())
        assert entry.class_names is None or len(entry.class_names) == entry.classes
