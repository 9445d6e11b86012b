"""The units: what systemd says of them, and the server's side of its protocol."""
import re
import socket

from tools import SOURCE, harness
from harness import OwnServerTest, main, pathlib, shutil, signal, subprocess, unittest

UNITS = SOURCE / "packaging/systemd"
needs_systemd = unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze (Debian: systemd)")


class Units(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(harness.tempfile.mkdtemp(prefix="danqing-units-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        for unit in UNITS.iterdir():
            text = unit.read_text(encoding="utf-8")
            self.assertIn("ExecStart=/usr/bin/danqing ", text)
            text = text.replace("ExecStart=/usr/bin/danqing ", f"ExecStart={harness.PROGRAM} ")
            for name in ([unit.name] if "@" not in unit.name else [unit.name, unit.name.replace("@", "@0")]):
                (self.dir / name).write_text(text, encoding="utf-8")

    def analyze(self, *words):
        return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, cwd=self.dir, timeout=60)

    @needs_systemd
    def test_verify(self):
        for unit in ("./danqing.service", "./danqing-worker@0.service"):
            p = self.analyze("verify", "--man=no", unit)
            ours = [x for x in p.stderr.splitlines() if "danqing" in x]
            self.assertEqual((p.returncode, ours), (0, []), p.stderr)
        broken = self.dir / "danqing.service"
        broken.write_text(broken.read_text(encoding="utf-8").replace("WatchdogSec=60", "WatchdogSecs=60"), encoding="utf-8")
        self.assertIn("WatchdogSecs", self.analyze("verify", "--man=no", "./danqing.service").stderr)

    @needs_systemd
    def test_exposure(self):
        for unit in ("./danqing.service", "./danqing-worker@0.service"):
            p = self.analyze("security", "--offline=yes", "--threshold=25", "--no-pager", unit)
            if "unrecognized" in p.stderr or "Unknown" in p.stderr:
                self.skipTest("this systemd-analyze cannot judge a file")
            self.assertEqual(p.returncode, 0, p.stdout[-300:] + p.stderr)

    def test_both_are_closed_the_same_way(self):
        def sandbox(name):
            text = (UNITS / name).read_text(encoding="utf-8")
            return re.findall(r"^(?:NoNew|Protect|Restrict|Capability|Ambient|Private|Lock|Remove|SystemCall|Device|Supplementary)\w+=.*$", text, re.M)
        self.assertEqual(sandbox("danqing.service"), sandbox("danqing-worker@.service"))
        self.assertGreater(len(sandbox("danqing.service")), 20)

    def test_the_user_is_made(self):
        users = (SOURCE / "packaging/sysusers.d/danqing.conf").read_text(encoding="utf-8")
        for unit in UNITS.iterdir():
            user = re.search(r"^User=(\w+)$", unit.read_text(encoding="utf-8"), re.M)[1]
            self.assertRegex(users, rf"(?m)^u {user} ")


class Watchdog(OwnServerTest):
    def test_ready_alive_stopping(self):
        path = self.dir / "notify"
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(s.close)
        s.bind(str(path))
        s.settimeout(harness.TIMEOUT)
        server = self.serve(env={"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "1000000"})
        said = [s.recv(4096).decode() for _ in range(4)]
        self.assertEqual(said[0], "READY=1")
        self.assertEqual(set(said[1:]), {"WATCHDOG=1"})
        self.assertEqual(server.stop(), 0)
        s.settimeout(0.2)
        rest = []
        try:
            while True:
                rest.append(s.recv(4096).decode())
        except OSError:
            pass
        self.assertIn("STOPPING=1", rest)


if __name__ == "__main__":
    main()
