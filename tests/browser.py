"""A headless Chromium, driven through its own debugging protocol: no driver, no network.

`with Browser(folder) as browser: browser.open(page)` and then press, move, ask, photograph.
"""

import asyncio
import base64
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest

COMMAND = shutil.which("chromium") or shutil.which("chromium-browser")
SECONDS = 40  # a busy machine starts a browser slowly
KEYS = {
    "Tab": 9, "Enter": 13, "Escape": 27,
    "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40,
}  # fmt: skip


def require() -> None:
    """Skip where there is no Chromium."""
    if COMMAND is None:
        pytest.skip("needs Chromium: apt-get install chromium")


class Browser:
    """One window. `requests` are the addresses that it asked for, page after page."""

    def __init__(self, folder: Path, width: int = 1280, height: int = 900) -> None:
        self.folder, self.size = folder, (width, height)
        self.requests: list[str] = []
        self.complaints: list[str] = []  # of scripts and of the page's own policy
        self._calls = 0

    def __enter__(self) -> Self:
        arguments = [
            COMMAND, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--remote-debugging-port=0", f"--user-data-dir={self.folder}",
            "--host-resolver-rules=MAP * ~NOTFOUND", f"--window-size={self.size[0]},{self.size[1]}",
            "about:blank",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._loop = asyncio.new_event_loop()
        try:
            self._loop.run_until_complete(asyncio.wait_for(self._connect(), SECONDS))
        except BaseException:
            self.__exit__()
            raise
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        if hasattr(self, "_session"):
            self._loop.run_until_complete(self._session.close())
        self._loop.close()
        self._process.terminate()
        self._process.wait(SECONDS)

    async def _connect(self) -> None:
        port = self.folder / "DevToolsActivePort"
        while not port.exists() or not port.read_text().strip():
            await asyncio.sleep(0.05)
        base = f"http://127.0.0.1:{port.read_text().splitlines()[0]}"
        self._session = aiohttp.ClientSession()
        while True:
            async with self._session.get(f"{base}/json/list") as answer:
                pages = [page for page in await answer.json() if page["type"] == "page"]
            if pages:
                break
            await asyncio.sleep(0.05)
        address = pages[0]["webSocketDebuggerUrl"]
        self._socket = await self._session.ws_connect(address, max_msg_size=0)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call the protocol; events that come meanwhile are noted."""
        return self._loop.run_until_complete(
            asyncio.wait_for(self._exchange(method, parameters), SECONDS)
        )

    async def _exchange(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        self._calls += 1
        message = {"id": self._calls, "method": method, "params": parameters}
        await self._socket.send_str(json.dumps(message))
        while True:
            answer = json.loads((await self._socket.receive()).data)
            if answer.get("id") == self._calls:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        if event["method"] == "Network.requestWillBeSent":
            self.requests.append(event["params"]["request"]["url"])
        elif event["method"] == "Runtime.exceptionThrown":
            self.complaints.append(str(event["params"]["exceptionDetails"]))
        elif event["method"] == "Log.entryAdded":
            self.complaints.append(event["params"]["entry"]["text"])

    def open(self, page: Path, fragment: str = "") -> None:
        """Open a file and wait until it is drawn."""
        self.call("Page.navigate", url=page.resolve().as_uri() + fragment)
        while self.ask("document.readyState") != "complete":
            pass
        self.settle()

    def settle(self) -> None:
        """Wait until what happened so far is drawn; input is answered before it is acted on."""
        self.ask("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")

    def ask(self, expression: str) -> Any:
        """Return what an expression is in the page."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key."""
        code = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **code)
        self.settle()

    def move(self, selector: str, x: float = 0.5, y: float = 0.5) -> tuple[float, float]:
        """Scroll to an element and move the mouse onto it, at these shares of its size."""
        element = f"document.querySelector({json.dumps(selector)})"
        self.ask(f"{element}.scrollIntoView({{block: 'center'}})")
        self.settle()
        box = self.ask(f"{element}.getBoundingClientRect().toJSON()")
        at = (box["x"] + x * box["width"], box["y"] + y * box["height"])
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=at[0], y=at[1])
        self.settle()
        return at

    def click(self, selector: str) -> None:
        """Click the middle of an element."""
        x, y = self.move(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def media(self, name: str = "", scheme: str = "light", width: int = 0) -> None:
        """Look at the page on paper or in the dark, or in a window of another width."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=name, features=features)
        size = (width or self.size[0], self.size[1])
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=size[0], height=size[1], deviceScaleFactor=1, mobile=False,
        )  # fmt: skip

    def photograph(self, path: Path, *, whole: bool = False) -> None:
        """Write what is seen, or the whole page, as a PNG."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def print(self) -> bytes:
        """Return the page as PDF."""
        answer = self.call("Page.printToPDF", preferCSSPageSize=True)
        return base64.b64decode(answer["data"])
