"""danqing monitor as a process: once, as JSON, as lines, in a terminal."""
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time

from harness import *

sys.path.insert(0, str(SOURCE / "tests"))
import card_tree  # noqa: E402


class Monitor(CliTest):
    def setUp(self):
        super().setUp()
        card_tree.instinct(self.dir / "tree")

    def monitor(self, *args, **kw):
        return self.run_ok("monitor", "--sysfs-root", "tree", *args, **kw)

    def test_once(self):
        out = self.monitor("--once").stdout
        for part in ("AMD Instinct MI300X", "gfx942", "load 93 %", "VRAM 45.0/191.7 GiB", "junction 71", "612/750 W", "memory 31.2/125.0 GiB"):
            self.assertIn(part, out)

    def test_json(self):
        s = json.loads(self.monitor("--once", "--json").stdout)
        card, = s["cards"]
        self.assertEqual(card["id"], "card1")
        self.assertEqual(card["energy_joules"], 1000)
        self.assertEqual(card["temperature_celsius"], {"edge": None, "junction": 71.0, "memory": None, "critical": None})
        self.assertEqual(s["host"]["load1"], 1.5)
        lines = self.monitor("--json", "--count", "3", "--interval", "0.1").stdout.splitlines()
        times = [json.loads(line)["time"] for line in lines]
        self.assertEqual(len(times), 3)
        self.assertEqual(sorted(times), times)

    def test_lines_where_there_is_no_terminal(self):
        out = self.monitor("--count", "2", "--interval", "0.1").stdout
        self.assertEqual([line.split()[1] for line in out.splitlines()], ["host", "card1"] * 2)
        self.assertNotIn("\x1b", out)

    def test_no_card(self):
        (self.dir / "empty").mkdir()
        self.assertIn("no card found", self.run_ok("monitor", "--once", "--sysfs-root", "empty").stdout)
        self.assertEqual(json.loads(self.run_ok("monitor", "--once", "--json", "--sysfs-root", "empty").stdout)["cards"], [])

    def test_this_machine(self):
        s = json.loads(self.run_ok("monitor", "--once", "--json").stdout)
        self.assertGreater(s["host"]["memory_total_bytes"], 0)
        self.assertGreaterEqual(s["host"]["cpu_load_ratio"], 0)

    def test_wrong_words(self):
        self.assert_refused(3, "monitor", "--once", "--sysfs-root", "nowhere", says="nowhere")
        for value in ("0", "-1", "nan", "x", ""):
            self.assert_refused(2, "monitor", "--once", "--interval", value)

    def test_ctrl_c_ends_it_well(self):
        p = self.start("monitor", "--sysfs-root", "tree", "--interval", "30")
        self.assertTrue(p.stdout.readline())
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=TIMEOUT)
        self.assertEqual((p.returncode, err), (0, ""))

    def test_panel_in_a_terminal(self):
        for end in (b"q", signal.SIGTERM):
            with self.subTest(end=end):
                ours, theirs = pty.openpty()
                p = subprocess.Popen([PROGRAM, "monitor", "--sysfs-root", "tree", "--interval", "0.2"], stdin=theirs, stdout=theirs,
                                     stderr=subprocess.PIPE, cwd=self.dir, env=self.environment(TERM="xterm"))
                os.close(theirs)
                seen = b""
                until = time.monotonic() + TIMEOUT
                while seen.count(b"MI300X") < 3 and time.monotonic() < until:
                    if select.select([ours], [], [], 1)[0]:
                        seen += os.read(ours, 65536)
                if isinstance(end, bytes):
                    os.write(ours, end)
                else:
                    p.send_signal(end)
                while p.poll() is None and time.monotonic() < until:
                    if select.select([ours], [], [], 0.1)[0]:
                        try:
                            seen += os.read(ours, 65536)
                        except OSError:
                            break
                self.assertEqual(p.wait(TIMEOUT), 0, p.stderr.read())
                p.stderr.close()
                while select.select([ours], [], [], 0.1)[0]:
                    try:
                        seen += os.read(ours, 65536)
                    except OSError:
                        break
                os.close(ours)
                self.assertTrue(seen.startswith(b"\x1b[?1049h"), seen[:40])
                self.assertIn(b"\x1b[?1049l", seen[-40:])
                self.assertIn("junction 71 \u00b0C".encode(), seen)
                self.assertIn("load    93 % \u2588".encode(), seen)


if __name__ == "__main__":
    main()
