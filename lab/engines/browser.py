"""A real Chromium that a case drives as a person does: it looks, clicks and types. It speaks the DevTools protocol
over a pipe, so that nothing but Python and Chromium is needed."""

import base64
import contextlib
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find():
    """Chromium's program: $CHROMIUM, or one of the usual names; None if there is none."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One tab. errors has what its console, its scripts and its requests for other servers say."""

    def __init__(self, browser, session, url):
        self.browser, self.session, self.url, self.errors = browser, session, url, []

    def ask(self, method, **params):
        return self.browser.ask(method, self.session, **params)

    def eval(self, js):
        """The value of an expression, through JSON."""
        r = self.ask("Runtime.evaluate", expression=js, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in r:
            raise RuntimeError(f"{js[:200]}: {r['exceptionDetails'].get('exception', {}).get('description', r)}")
        return r["result"].get("value")

    def resize(self, width, height=900):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def shot(self, file):
        """A picture of the whole page."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        data = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        with open(file, "wb") as f:
            f.write(base64.b64decode(data))

    def click(self, element):
        """A click with the mouse in the middle of an element, given as an expression."""
        x, y = self.eval(f"(e => {{ e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})({element})")
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="none" if kind == "mouseMoved" else "left", clickCount=1)

    def type(self, text):
        self.ask("Input.insertText", text=text)

    def note(self, method, params):
        """Notes what is wrong with an event of the page."""
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(f"console: {[a.get('value', a.get('description')) for a in params['args']]}")
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"log: {params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith((self.url, "data:", "blob:")):
                self.errors.append(f"request for {url}")


class Browser:
    """A Chromium, for the time of a with statement."""

    def __init__(self, binary):
        self.binary, self.pages, self.answers, self.number, self.lock = binary, {}, {}, 0, threading.Lock()

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="lorasim-browser-")
        for_it, self.to = os.pipe()
        self.answer, of_it = os.pipe()
        command = [self.binary, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run", "--mute-audio",
                   "--disable-background-networking", f"--user-data-dir={self.folder}", "about:blank"]
        self.process = subprocess.Popen(["bash", "-c", f'exec "$@" 3<&{for_it} 4>&{of_it}', "browser", *command],
                                        pass_fds=(for_it, of_it), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(for_it)
        os.close(of_it)
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError, RuntimeError):
            self.ask("Browser.close")
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.to)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self):
        """Reads messages, which end in a zero byte, until the browser ends."""
        with open(self.answer, "rb") as pipe:
            rest = b""
            while part := pipe.read1(1 << 16):
                *whole, rest = (rest + part).split(b"\0")
                for m in map(json.loads, whole):
                    if "id" in m:
                        self.answers[m["id"]].put(m)
                    elif m.get("sessionId") in self.pages:
                        self.pages[m["sessionId"]].note(m["method"], m["params"])

    def ask(self, method, session=None, **params):
        with self.lock:
            self.number += 1
            number = self.number
            box = self.answers[number] = queue.Queue()
            os.write(self.to, json.dumps({"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}).encode() + b"\0")
        try:
            m = box.get(timeout=60)
        except queue.Empty:
            raise RuntimeError(f"{method}: the browser does not answer") from None
        del self.answers[number]
        if "error" in m:
            raise RuntimeError(f"{method}: {m['error']['message']}")
        return m["result"]

    def open(self, url, width=1280):
        """Opens a page; requests below its URL are its own."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session, url)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.ask(f"{domain}.enable")
        page.resize(width)
        page.ask("Page.navigate", url=url)
        return page
