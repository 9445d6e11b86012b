"""Starts the real server as a process on a free port of 127.0.0.1 and talks HTTP to it, with the standard library only.

Environment: DANQING (the program), DANQING_SOURCE (the checkout).
"""
import base64
import http.client
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

PROGRAM = os.environ["DANQING"]
SOURCE = pathlib.Path(os.environ["DANQING_SOURCE"])
MINI = SOURCE / "models/danqing-mini"
TIMEOUT = 120  # seconds; only there so that a hang ends
SMALL = {"prompt": "a red apple", "size": "64x64", "num_inference_steps": 2}
LONG = {"prompt": "a red apple", "size": "128x128", "num_inference_steps": 150}


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)


class Server:
    """danqing serve on a free port; `stop` ends it and gives the exit code."""

    def __init__(self, directory, *flags, env=None, key=None, wait=True, **popen):
        self.directory, self.key = pathlib.Path(directory), key
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DANQING")}
        environment.update(env or {})
        self.log_path = self.directory / f"log-{time.monotonic_ns()}"
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "serve", "--port", "0", "--data", str(self.directory / "data"), "--threads", "1", "-m",
                 str(MINI), *map(str, flags)], stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL,
                cwd=self.directory, env=environment, text=True, **popen)
        line = self.process.stdout.readline()
        match = re.search(r":(\d+)$", line.strip())
        if not match:
            self.process.wait(TIMEOUT)
            raise RuntimeError(f"no port: {line!r} {self.log()}")
        self.port = int(match.group(1))
        self.url = f"http://127.0.0.1:{self.port}"
        if wait:
            until(lambda: self.get("/health/ready").status == 200)

    def log(self):
        return self.log_path.read_text(encoding="utf-8")

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)

    def request(self, method, path, body=None, headers=None, key=None):
        c = self.connection()
        try:
            h = dict(headers or {})
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
                h.setdefault("Content-Type", "application/json")
            if key or self.key:
                h.setdefault("Authorization", f"Bearer {key or self.key}")
            c.request(method, path, body, h)
            r = c.getresponse()
            return Answer(r.status, {k.lower(): v for k, v in r.getheaders()}, r.read())
        finally:
            c.close()

    def get(self, path, **kw):
        return self.request("GET", path, **kw)

    def post(self, path, body, **kw):
        return self.request("POST", path, body, **kw)

    def delete(self, path, **kw):
        return self.request("DELETE", path, **kw)

    def submit(self, **settings):
        r = self.post("/v1/jobs", {**SMALL, **settings})
        if r.status != 202:
            raise AssertionError(f"{r.status} {r.body!r}")
        return r.json()["id"]

    def job(self, job):
        return self.get(f"/v1/jobs/{job}").json()

    def finished(self, job):
        return until(lambda: (j := self.job(job))["status"] not in ("queued", "running") and j)

    def events(self, path, method="GET", body=None):
        """Yields (event, data) until the stream ends."""
        c = self.connection()
        headers = {"Content-Type": "application/json"} if body else {}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        c.request(method, path, json.dumps(body) if body else None, headers)
        r = c.getresponse()
        if r.status != 200:
            raise AssertionError(f"{r.status} {r.read()!r}")
        try:
            event = None
            for raw in r:
                line = raw.decode().rstrip("\n")
                if line.startswith("event: "):
                    event = line[7:]
                elif line.startswith("data: "):
                    yield event, json.loads(line[6:])
        finally:
            c.close()

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(TIMEOUT)
        self.process.stdout.close()
        return code


def until(f, seconds=TIMEOUT):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = f()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError("waited too long")


def is_png(data, width=None):
    return data[:8] == b"\x89PNG\r\n\x1a\n" and (width is None or int.from_bytes(data[16:20], "big") == width)


def pixels(png):
    """The RGB bytes of a PNG, by the command line tests' reader."""
    os.environ.setdefault("DANQING_TEST_DATA", "")
    spec = importlib.util.spec_from_file_location("cli_harness", SOURCE / "tests/cli/harness.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with tempfile.NamedTemporaryFile(suffix=".png") as f:
        f.write(png)
        f.flush()
        return module.png_pixels(f.name)[2]


class ServerTest(unittest.TestCase):
    """One server for the tests of a class; FLAGS are its own."""
    FLAGS = ()
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.dir = pathlib.Path(tempfile.mkdtemp(prefix="danqing-serve-"))
        cls.server = cls.start()

    @classmethod
    def start(cls):
        return Server(cls.dir, *cls.FLAGS)

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        log = cls.server.log()
        shutil.rmtree(cls.dir, ignore_errors=True)
        if code not in (0, 1):
            raise AssertionError(f"the server ended with {code}: {log[-2000:]}")


class OwnServerTest(unittest.TestCase):
    """Tests that start their servers themselves."""

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="danqing-serve-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.servers = []
        self.addCleanup(lambda: [s.stop(signal.SIGKILL) for s in self.servers if s.process.poll() is None])

    def serve(self, *flags, **kw):
        s = Server(self.dir, *flags, **kw)
        self.servers.append(s)
        return s


def main():
    unittest.main(verbosity=2)


__all__ = ["Answer", "Server", "ServerTest", "OwnServerTest", "until", "is_png", "pixels", "main", "base64", "json", "os", "pathlib",
           "signal", "subprocess", "unittest", "threading", "time", "PROGRAM", "SOURCE", "MINI", "SMALL", "LONG", "TIMEOUT"]
