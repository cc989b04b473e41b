"""I/O: pages in a headless Chromium without a network, for tests and benchmarks; driven over the DevTools pipe.

    with open_browser(profile) as browser:
        page = browser.open(Path("report.html"), width=1280)
        page.draw_all()
        assert (page.faults(), page.value("document.title")) == ([], "aitrace report: …")

The browser reaches nothing but files: no name can be resolved, and every request for more is told as a fault.
"""

import base64
import fcntl
import os
import select
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from aitrace.errors import AitraceError

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
"""The browser; None if there is none."""

_ANSWER_S = 120
_READ_BYTES = 1 << 20
_FIRST_FREE_FD = 10
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--remote-debugging-pipe",
)
_LOCAL = ("file:", "data:", "blob:")
_KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39, "Home": 36}
_PATIENCE_S = 20
_READY = f"""new Promise((resolve) => {{
  const root = document.documentElement.dataset;
  const end = performance.now() + {_PATIENCE_S * 1000};
  const isOver = () => root.state !== "loading" || root.errors !== "0" || performance.now() > end;
  const look = () => (isOver() ? resolve() : setTimeout(look, 5));
  look();
}})"""
_DRAW_ALL = f"""(async () => {{
  const isReady = document.documentElement.dataset.state === "ready";
  for (const place of isReady ? document.querySelectorAll(".plot") : []) {{
    place.scrollIntoView({{ block: "center" }});
    const end = performance.now() + {_PATIENCE_S * 1000};
    while (place.dataset.state !== "drawn" && performance.now() < end) {{
      await new Promise((resolve) => setTimeout(resolve, 10));
    }}
  }}
  window.scrollTo(0, 0);
}})()"""


class BrowserError(AitraceError):
    """The browser, or a script in its page, failed."""


class Pipe:
    """Commands to a browser and what it says, in order."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd, self._write_fd = read_fd, write_fd
        self._ids = count(1)
        self._rest = b""
        self.events: list[dict[str, Any]] = []

    def send(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """The result of a command."""
        id_ = next(self._ids)
        command = {"id": id_, "method": method, "params": params}
        if session is not None:
            command["sessionId"] = session
        data = orjson.dumps(command) + b"\0"
        while data:
            data = data[os.write(self._write_fd, data) :]
        while True:
            said = self._next()
            if said.get("id") == id_:
                break
            self.events.append(said)
        if "error" in said:
            raise BrowserError(f"{method}: {said['error'].get('message')!r}")
        result: dict[str, Any] = said["result"]
        return result

    def wait(self, method: str, is_it: Callable[[dict[str, Any]], bool] = lambda _: True) -> None:
        """Until the browser has told of such an event, by its parameters."""
        while not any(event["method"] == method and is_it(event["params"]) for event in self.events):
            self.events.append(self._next())

    def _next(self) -> dict[str, Any]:
        parts = [self._rest]
        while b"\0" not in parts[-1]:
            if not select.select([self._read_fd], [], [], _ANSWER_S)[0]:
                raise BrowserError(f"the browser said nothing for {_ANSWER_S} s")
            data = os.read(self._read_fd, _READ_BYTES)
            if not data:
                raise BrowserError("the browser is gone")
            parts.append(data)
        text, self._rest = b"".join(parts).split(b"\0", 1)
        said: dict[str, Any] = orjson.loads(text)
        return said


class Page:
    """A page that was opened."""

    def __init__(self, pipe: Pipe, session: str) -> None:
        self._pipe, self._session = pipe, session

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a DevTools command to the page."""
        return self._pipe.send(method, self._session, **params)

    def value(self, expression: str) -> Any:
        """What a script's expression comes to, awaited if it is a promise."""
        said = self.send(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True
        )
        if "exceptionDetails" in said:
            raise BrowserError(f"{expression[:80]!r}: {said['exceptionDetails']}")
        return said["result"].get("value")

    def draw_all(self) -> None:
        """Scroll to every chart until it is drawn, and back to the top."""
        self.value(_DRAW_ALL)

    def faults(self) -> list[str]:
        """What the console said, scripts that failed, and requests for anything that is not in the page."""
        own = [event for event in self._pipe.events if event.get("sessionId") == self._session]
        found = []
        for event in own:
            what, params = event["method"], event["params"]
            if what == "Runtime.consoleAPICalled":
                said = [arg.get("value", arg.get("description")) for arg in params["args"]]
                found.append(f"console: {said}")
            elif what == "Log.entryAdded":
                found.append(f"console: {params['entry']['text']}")
            elif what == "Runtime.exceptionThrown":
                found.append(f"exception: {params['exceptionDetails']}")
            elif what == "Page.javascriptDialogOpening":
                found.append(f"dialog: {params['message']}")
            elif what == "Network.requestWillBeSent" and not params["request"]["url"].startswith(_LOCAL):
                found.append(f"request: {params['request']['url']}")
        return found

    def press(self, key: str) -> None:
        """A key pressed and let go: a character, or a name such as `ArrowLeft`."""
        code = _KEYS.get(key, ord(key.upper()) if len(key) == 1 else 0)
        text = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def mouse(self, kind: str, x: float, y: float, **params: Any) -> None:
        """A mouse event at a point of the window: `mousePressed`, `mouseMoved`, `mouseReleased`, `mouseWheel`."""
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **params)

    def drag(self, start: tuple[float, float], end: tuple[float, float], *, steps: int = 6) -> None:
        """The left button pressed, moved and let go."""
        self.mouse("mousePressed", *start, button="left", buttons=1, clickCount=1)
        for step in range(1, steps + 1):
            x, y = (a + (b - a) * step / steps for a, b in zip(start, end, strict=True))
            self.mouse("mouseMoved", x, y, button="left", buttons=1)
        self.mouse("mouseReleased", *end, button="left", buttons=0, clickCount=1)

    def touch(self, *moments: tuple[tuple[float, float], ...]) -> None:
        """Fingers that are put down, moved from moment to moment, and lifted; a moment has a point per finger."""
        for number, points in enumerate(moments):
            kind = "touchMove" if number else "touchStart"
            fingers = [{"x": x, "y": y, "id": finger} for finger, (x, y) in enumerate(points)]
            self.send("Input.dispatchTouchEvent", type=kind, touchPoints=fingers)
        self.send("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def picture(self, *, whole: bool = False) -> bytes:
        """PNG of the window, or of the whole page."""
        said = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(said["data"])

    def printed(self) -> bytes:
        """The page as PDF."""
        said = self.send("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        return base64.b64decode(said["data"])


class Browser:
    """A browser that runs."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def open(
        self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False, touch: bool = False
    ) -> Page:
        """A page in a window of its own, once its scripts have run or failed; `touch` stands for a phone."""
        target = self._pipe.send("Target.createTarget", url="about:blank", newWindow=True)["targetId"]
        session = self._pipe.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self._pipe, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.send(f"{domain}.enable")
        page.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=touch,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.send("Emulation.setEmulatedMedia", features=[scheme])
        page.send("Emulation.setTouchEmulationEnabled", enabled=touch, maxTouchPoints=5 if touch else 1)
        self._pipe.events.clear()
        page.send("Page.navigate", url=path.absolute().as_uri())
        self._pipe.wait("Page.loadEventFired")
        page.value(_READY)
        return page

    def save_downloads_to(self, directory: Path) -> None:
        """Where links that download put their files, without asking."""
        self._pipe.send(
            "Browser.setDownloadBehavior", behavior="allow", downloadPath=str(directory), eventsEnabled=True
        )

    def wait_for_download(self) -> None:
        """Until a download is complete."""
        self._pipe.wait("Browser.downloadProgress", lambda params: params["state"] == "completed")


@contextmanager
def open_browser(profile: Path) -> Iterator[Browser]:
    """A browser with a fresh profile, ended afterwards."""
    if CHROMIUM is None:
        raise BrowserError("no Chromium is installed")
    (commands_out, commands_in), (said_out, said_in) = os.pipe(), os.pipe()
    # Moved out of the way, as the browser wants them as 3 and 4.
    child_fds = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE_FD) for fd in (commands_out, said_in)]
    with Path(os.devnull).open("wb") as nothing:
        pid = os.posix_spawn(
            CHROMIUM,
            [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}"],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, nothing.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, nothing.fileno(), 2),
                (os.POSIX_SPAWN_DUP2, child_fds[0], 3),
                (os.POSIX_SPAWN_DUP2, child_fds[1], 4),
            ],
            setpgroup=0,
        )
    for fd in (*child_fds, commands_out, said_in):
        os.close(fd)
    pipe = Pipe(said_out, commands_in)
    try:
        yield Browser(pipe)
    finally:
        for fd in (commands_in, said_out):
            os.close(fd)
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
