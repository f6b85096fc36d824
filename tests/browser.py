"""A browser to test pages with: headless Chromium, spoken to over two pipes.

The DevTools protocol is JSON messages ended by a zero byte when Chromium is started with
``--remote-debugging-pipe``, so no driver, port or package is needed.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
# Chromium reads commands from descriptor 3 and answers on 4.
START = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
START += "os.execvp(sys.argv[3], sys.argv[3:])"


def find_chromium():
    """Return the path of a Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page of one browser. `messages` are errors and warnings the page caused."""

    def __init__(self, program, profile, patience=20.0):
        self.patience = patience
        self.messages = []
        self.requests = []
        self._buffer = b""
        self._number = 0
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        # Out of the way of 3 and 4, which the child puts its ends at.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (commands, answers)]
        self._process = subprocess.Popen(
            [sys.executable, "-c", START, *map(str, ends), program, *FLAGS,
             f"--user-data-dir={profile}", "about:blank"],
            pass_fds=ends, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for end in (commands, answers, *ends):
            os.close(end)
        self._session = None
        pages = self.call("Target.getTargets")["targetInfos"]
        target = next(page["targetId"] for page in pages if page["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._session = None
        try:
            self.call("Browser.close")
            self._process.wait(10)
        except (TimeoutError, EOFError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def call(self, method, **parameters):
        """Send a command and give its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + self.patience
        while True:
            answer = self._next(until)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._event(answer)

    def open(self, path, width=1280, height=900, dark=False):
        """Open a file from disk at a size, light or dark."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.readyState === 'complete' && document.querySelector('svg.chart')")

    def run(self, script):
        """Evaluate JavaScript in the page and give its value."""
        done = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in done:
            raise RuntimeError(json.dumps(done["exceptionDetails"]))
        return done["result"].get("value")

    def wait(self, condition):
        """Wait until a condition in JavaScript is true."""
        until = time.monotonic() + self.patience
        while not self.run(f"Boolean({condition})"):
            if time.monotonic() > until:
                raise TimeoutError(condition)
            time.sleep(0.02)

    def place(self, query):
        """Scroll to an element and give its box in the window."""
        return self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(query)});"
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            "return [b.left, b.top, b.width, b.height]; })()"
        )

    def hover(self, query, across=0.5, down=0.5):
        """Move the mouse over a place of an element, as a share of its size."""
        left, top, width, height = self.place(query)
        x, y = left + across * width, top + down * height
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        return x, y

    def click(self, query):
        """Click the middle of an element with the mouse."""
        x, y = self.hover(query)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key):
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def screenshot(self, path, whole=True):
        """Save a PNG of the page."""
        done = self.call("Page.captureScreenshot", captureBeyondViewport=whole, **(
            {"clip": {"x": 0, "y": 0, "scale": 1} | self.run(
                "({width: innerWidth, height: document.documentElement.scrollHeight})")}
            if whole else {}))  # fmt: skip
        path.write_bytes(base64.b64decode(done["data"]))

    def _next(self, until):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser did not answer")
            chunk = os.read(self._read, 1 << 20)
            if not chunk:
                raise EOFError("the browser ended")
            self._buffer += chunk
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def _event(self, event):
        kind, values = event.get("method"), event.get("params", {})
        if kind == "Runtime.exceptionThrown":
            self.messages.append(json.dumps(values["exceptionDetails"]))
        elif kind == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning"):
            self.messages.append(json.dumps(values["args"]))
        elif kind == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.messages.append(values["entry"]["text"])
        elif kind == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
