"""danqing doctor as a process: this machine, recorded ones, logs; both languages."""
import json
import sys

from harness import *

sys.path.insert(0, str(SOURCE / "tests"))
import card_tree  # noqa: E402


class Doctor(CliTest):
    def test_this_machine(self):
        r = self.danqing("doctor", "--json")
        checks = {c["id"]: c for c in json.loads(r.stdout)}
        self.assertEqual(r.returncode, 1 if any(c["status"] == "failed" for c in checks.values()) else 0, r.stdout)
        for name in ("amdgpu", "kfd", "kfd-access", "dri-access", "wsl", "rocm", "gfx-target", "gfx-override", "vulkan-driver", "allocation",
                     "memory-map", "numa", "compute:cpu", "speed", "offload", "cpu", "memory", "disk", "model"):
            self.assertIn(name, checks)
        self.assertEqual(checks["compute:cpu"]["status"], "ok", checks["compute:cpu"])
        for c in checks.values():
            self.assertIn(c["status"], ("ok", "warning", "failed", "skipped"))
            self.assertTrue(c["evidence"]["en"] and c["evidence"]["zh"], c)

    def test_a_model(self):
        checks = {c["id"]: c for c in json.loads(self.danqing("doctor", "--json", "--model", MINI).stdout)}
        self.assertEqual(checks["model"]["status"], "ok")
        self.assertEqual(checks["offload"]["status"], "ok")
        self.assertRegex(checks["offload"]["evidence"]["en"], r"^\d+x\d+ on \w+: .* at most")
        r = self.danqing("doctor", "--model", "nowhere")
        self.assertEqual(r.returncode, 1)
        self.assertIn("FAILED   model", r.stdout)

    def test_a_recorded_machine(self):
        tree = self.dir / "tree"
        card_tree.instinct(tree)
        card_tree.put(tree, "sys/bus/pci/devices/0000:0c:00.0/vendor", "0x1002")
        card_tree.put(tree, "sys/bus/pci/devices/0000:0c:00.0/class", "0x120000")
        r = self.danqing("doctor", "--root", tree)
        self.assertEqual(r.returncode, 1)
        self.assertIn("FAILED   amdgpu", r.stdout)
        self.assertIn("driver none", r.stdout)
        zh = self.danqing("doctor", "--root", tree, "--lang", "zh").stdout
        self.assertIn("失败     amdgpu", zh)
        self.assertIn("失败     amdgpu", self.danqing("doctor", "--root", tree, env=self.environment(LC_ALL="zh_CN.UTF-8")).stdout)

    def test_explain(self):
        r = self.run_ok("doctor", "--explain", "hipErrorNoBinaryForGpu: Unable to find code object")
        self.assertIn("hip-no-binary: ", r.stdout)
        self.assertIn("https://", r.stdout)
        (self.dir / "log").write_text("noise\namdgpu: ring gfx_0.0.0 timeout, signaled seq=1\n")
        self.assertIn("amdgpu-ring-timeout", self.run_ok("doctor", "--explain", "log").stdout)
        out = self.run_ok("doctor", "--explain", "-", "--json", stdin="vk::Queue::submit: ErrorDeviceLost").stdout
        self.assertEqual(json.loads(out)[0]["id"], "vulkan-device-lost")
        self.assertIn("原因", self.run_ok("doctor", "--explain", "llvmpipe", "--lang", "zh").stdout)
        r = self.danqing("doctor", "--explain", "the kettle is boiling")
        self.assertEqual((r.returncode, r.stderr), (1, ""))
        self.assertGreaterEqual(len(self.run_ok("doctor", "--list-errors").stdout.splitlines()), 30)

    def test_wrong_words(self):
        self.assert_refused(2, "doctor", "--lang", "fr", says="en or zh")
        self.assert_refused(2, "doctor", "--explain", "")
        self.assert_refused(3, "doctor", "--root", "nowhere", says="nowhere")


if __name__ == "__main__":
    main()
