"""A real nats-server, `danqing serve --queue` and `danqing worker` as processes on 127.0.0.1. Everything is stopped by the
process id that started it."""
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "server"))
from harness import *  # noqa: E402,F403
from harness import MINI, PROGRAM, SMALL, TIMEOUT, Server, is_png, json, os, until  # noqa: E402

LEASE = 2  # seconds; the shortest in which a busy machine still extends


class Nats:
    """nats-server with JetStream; `restart` comes back on the same port with the same data."""

    def __init__(self, directory, *flags, scheme="nats"):
        self.directory, self.flags, self.port, self.process = pathlib.Path(directory), flags, "-1", None
        self.scheme = scheme
        self.start()

    def start(self):
        ports = self.directory / "ports"
        shutil.rmtree(ports, ignore_errors=True)
        ports.mkdir(parents=True)
        self.process = subprocess.Popen(
            ["nats-server", "-a", "127.0.0.1", "-p", self.port, "-js", "-sd", str(self.directory / "store"), "-l",
             str(self.directory / "nats.log"), "--ports_file_dir", str(ports), *self.flags], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def address():
            if self.process.poll() is not None:
                raise RuntimeError((self.directory / "nats.log").read_text())
            for f in ports.iterdir():
                try:
                    urls = json.loads(f.read_text()).get("nats")
                except ValueError:
                    continue
                if urls:
                    return urls[0]
        self.port = until(address, 20).rsplit(":", 1)[1]
        self.url = f"{self.scheme}://127.0.0.1:{self.port}"

    def stop(self, number=signal.SIGKILL):
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(TIMEOUT)

    def restart(self, pause=0.0):
        self.stop()
        time.sleep(pause)
        self.start()


class Worker:
    def __init__(self, directory, url, *flags, env=None, name="w"):
        self.log_path = pathlib.Path(directory) / f"worker-{name}-{time.monotonic_ns()}"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DANQING")}
        environment.update(env or {})
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "worker", "--queue", url, "--threads", "1", "-m", str(MINI), "--worker-name", name,
                 "--queue-lease-seconds", str(LEASE), *map(str, flags)], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=log, cwd=directory, env=environment)

    def log(self):
        return self.log_path.read_text(encoding="utf-8")

    def records(self):
        return [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(TIMEOUT)


def command(*words, env=None):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DANQING")}
    environment.update(env or {})
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=TIMEOUT, env=environment,
                          cwd=tempfile.gettempdir())


class QueueTest(unittest.TestCase):
    """Starts what a test asks for and stops all of it."""

    def setUp(self):
        if not shutil.which("nats-server"):
            self.skipTest("nats-server is not installed (Debian: nats-server)")
        if "libnats" not in command("--version").stdout:
            self.skipTest("this build has no NATS client")
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="danqing-queue-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.started = []
        self.addCleanup(lambda: [p.stop(signal.SIGKILL) for p in reversed(self.started)])

    def keep(self, process):
        self.started.append(process)
        return process

    def nats(self, *flags, **kw):
        return self.keep(Nats(self.dir / "nats", *flags, **kw))

    def serve(self, url, *flags, **kw):
        return self.keep(Server(self.dir, "--queue", url, "--queue-lease-seconds", LEASE, *flags, **kw))

    def worker(self, url, *flags, **kw):
        return self.keep(Worker(self.dir, url, *flags, **kw))


__all__ = ["Nats", "Worker", "QueueTest", "command", "LEASE", "SMALL", "until", "is_png", "json", "os", "pathlib", "signal",
           "subprocess", "time", "unittest", "TIMEOUT", "Server"]
