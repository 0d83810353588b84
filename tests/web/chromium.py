"""Chromium without a window, driven over two pipes by the DevTools protocol."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-sync", "--disable-background-networking", "--disable-component-update",
    "--disable-extensions", "--disable-dev-shm-usage", "--remote-debugging-pipe",
]  # fmt: skip
PATIENCE = 15.0  # seconds


def found():
    """The browser, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")


class Browser:
    """One browser with one page; `complaints` are errors of its console, exceptions, requests."""

    def __init__(self, folder):
        self.complaints, self.requests, self.number, self.rest = [], [], 0, b""
        to_read, self.to = os.pipe()
        self.of, to_write = os.pipe()

        def as_3_and_4():
            os.dup2(to_read, 13)
            os.dup2(to_write, 14)
            os.dup2(13, 3)
            os.dup2(14, 4)

        command = [found(), *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        self.process = subprocess.Popen(
            command, close_fds=False, preexec_fn=as_3_and_4, stderr=subprocess.DEVNULL
        )
        os.close(to_read)
        os.close(to_write)
        targets = self.ask("Target.getTargets", session=None)["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        attached = self.ask("Target.attachToTarget", session=None, targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method, session="", **params):
        """One command, and its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session or self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == self.number:
                assert "error" not in told, told
                return told["result"]

    def _next(self):
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.rest:
            if not select.select([self.of], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser says nothing")
            self.rest += os.read(self.of, 1 << 20)
        line, self.rest = self.rest.split(b"\0", 1)
        told = json.loads(line)
        self._note(told.get("method"), told.get("params", {}))
        return told

    def _note(self, event, params):
        if event == "Runtime.exceptionThrown":
            self.complaints.append(params["exceptionDetails"])
        if event == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(params["args"])
        if event == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"])
        if event == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def run(self, script):
        """The value of a script, awaited."""
        told = self.ask(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def open(self, path, width=1200, height=900, scheme="light"):
        """Opens a file, as wide as that, and waits until it has answered."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.ask("Emulation.setEmulatedMedia", features=[feature])
        self.ask("Page.navigate", url=Path(path).resolve().as_uri())
        self.until("document.getElementById('bars')?.children.length")

    def until(self, script):
        """Waits until a script gives something true."""
        end = time.monotonic() + PATIENCE
        while not self.run(script):
            assert time.monotonic() < end, f"never: {script}; {self.complaints}"
            time.sleep(0.02)

    def settled(self):
        """Waits for two frames: what was asked for is shown."""
        self.run("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")

    def mouse(self, kind, x, y):
        """One event of the mouse, its left button being down."""
        self.ask(
            "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1
        )

    def draw(self, points):
        """A line through points, from 0 to 1 of the drawing area."""
        box = self.run(
            "(() => { const pad = document.getElementById('pad'); pad.scrollIntoView(); "
            "const b = pad.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()"
        )
        places = [(box[0] + x * box[2], box[1] + y * box[3]) for x, y in points]
        self.mouse("mousePressed", *places[0])
        for place in places[1:]:
            self.mouse("mouseMoved", *place)
        self.mouse("mouseReleased", *places[-1])
        self.settled()

    def picture(self, path):
        """The whole page as a PNG file."""
        told = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        Path(path).write_bytes(base64.b64decode(told["data"]))

    def close(self):
        self.ask("Browser.close", session=None)
        self.process.wait(PATIENCE)
        os.close(self.to)
        os.close(self.of)
