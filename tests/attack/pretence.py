"""An attack whose trials end in every way there is, to try the runner on."""

from __future__ import annotations

import os
import time
from pathlib import Path

from olss.errors import DataError
from tests.attack.runner import judge

BOUNDED = True


class Attack:
    """Trial 0 is fine, 1 a clean error, 2 a foreign one, 3 hangs, 4 crashes, 5 eats memory."""

    def __init__(self, folder: Path, seed: int) -> None:
        pass

    def trial(self, number: int) -> tuple[str, str]:
        try:
            if number == 1:
                raise DataError("X must be finite")
            if number == 2:
                raise KeyError("X")
            if number == 3:
                time.sleep(60)
            if number == 4:
                os.abort()
            if number == 5:
                bytearray(1 << 40)
        except Exception as error:
            return judge(error)
        return "fine", ""
