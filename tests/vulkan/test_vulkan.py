"""The Vulkan backend for real, on Mesa's software driver: a card with a memory of its own as far as the program can tell.

`make test-vulkan` builds the module and runs these. The driver compiles each kernel once and keeps it under
build/vulkan-cache; without that the first run takes many minutes. Mesa before 24 loses track of freed buffers and crashes.
"""
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from harness import MINI, SOURCE, TINY, Z_TINY, CliTest, main, png_pixels

ENVIRONMENT = {"DANQING_BACKEND_PATH": str(SOURCE / ".deps/backends"), "GGML_VK_VISIBLE_DEVICES": "0",
               "MESA_SHADER_CACHE_DIR": str(SOURCE / "build/vulkan-cache"), "MESA_SHADER_CACHE_MAX_SIZE": "4G",
               "XDG_CACHE_HOME": str(SOURCE / "build/vulkan-cache")}
PICTURE = ("a red apple", "--size", "64x64", "--steps", "1", "--seed", "1", "--threads", "1", "--dtype", "f32")


class VulkanCase(CliTest):
    def environment(self, **extra):
        return super().environment(**{**ENVIRONMENT, **extra})

    def draw(self, name, *args, device="vulkan0", **popen):
        r = self.run_ok("generate", *PICTURE, "-m", MINI, "-o", name, "--device", device, "--json", *args, **popen)
        return json.loads(r.stdout), png_pixels(self.dir / name)[2]

    def assert_alike(self, a, b, levels, share):
        """At most `levels` of 255 apart, and apart at all in at most `share` of the values."""
        apart = [abs(x - y) for x, y in zip(a, b) if x != y]
        self.assertLessEqual(max(apart, default=0), levels)
        self.assertLessEqual(len(apart), share * len(a))


class Devices(VulkanCase):
    def test_the_driver_is_found_and_taken(self):
        text = self.run_ok("generate", "--device", "list").stdout
        self.assertRegex(text, r"device vulkan0: llvmpipe .*\(Vulkan\), ")
        self.assertIn("auto takes vulkan0", text)

    def test_hidden_it_is_named_with_the_reason(self):
        env = self.environment()
        del env["GGML_VK_VISIBLE_DEVICES"]
        text = self.run_ok("generate", "--device", "list", env=env).stdout
        self.assertIn("Vulkan (libggml-vulkan.so) is skipped: no Vulkan driver offers a card", text)
        self.assertIn("auto takes cpu", text)

    def test_the_doctor_computes_on_it(self):
        r = self.danqing("doctor", "--json")
        checks = {c["id"]: c for c in json.loads(r.stdout)}
        self.assertEqual(checks["compute:vulkan0"]["status"], "ok", checks["compute:vulkan0"])


class Tune(VulkanCase):
    def test_the_card_is_tried_once_and_its_attention_is_right(self):
        text = self.run_ok("tune", "--json").stdout
        tuned = json.loads(text)
        self.assertEqual(tuned["auto"], "vulkan0")
        trials = {(t["stage"], t["attention"]): t["deviation"] for t in tuned["devices"][0]["trials"]}
        self.assertEqual(set(trials), {("text", "written out"), ("denoiser", "written out"), ("denoiser", "card"), ("vae", "written out")})
        for key, deviation in trials.items():
            self.assertLess(deviation, 5e-3, key)
        again = json.loads(self.run_ok("tune", "--json").stdout)
        self.assertFalse(again["devices"][0]["measured_now"])


class Memory(VulkanCase):
    def test_every_way_to_keep_weights_draws_the_same(self):
        on_cpu = self.draw("cpu.png", device="cpu")[1]
        whole, picture = self.draw("whole.png")
        self.assertEqual(whole["memory"]["plan"]["mode"], "whole")
        self.assert_alike(picture, on_cpu, 2, 0.1)  # fp16 products: measured 1 level in 2 % of the values
        for way, mode in (("component", "component offload"), ("stream", "layer streaming")):
            got, again = self.draw(way + ".png", "--offload", way)
            memory = got["memory"]
            self.assertEqual(memory["plan"]["mode"], mode)
            self.assertEqual(again, picture, way)
            self.assertLess(memory["device_peak"], whole["memory"]["device_peak"])
        for r in (whole, got):
            peak, planned = r["memory"]["device_peak"], r["memory"]["plan"]["device_peak"]
            self.assertLessEqual(peak, planned)
            self.assertLessEqual(planned, 1.05 * peak)

    def test_a_budget_is_kept(self):
        whole = self.draw("whole.png")[0]["memory"]["device_peak"]
        got, _ = self.draw("small.png", "--device-memory", str(whole // 2), "--reserve", "0")
        self.assertLessEqual(got["memory"]["device_peak"], whole // 2)
        r = self.danqing("generate", *PICTURE, "-m", MINI, "-o", "x.png", "--device", "vulkan0", "--device-memory", "100KiB")
        self.assertEqual(r.returncode, 4, r.stderr)

    def test_a_driver_with_small_buffers(self):
        _, picture = self.draw("whole.png")
        small = self.environment(GGML_VK_FORCE_MAX_BUFFER_SIZE="2097152", GGML_VK_FORCE_MAX_ALLOCATION_SIZE="2097152")
        got, again = self.draw("small.png", env=small)
        self.assertEqual(again, picture)

    def test_a_picture_to_start_from(self):
        self.draw("first.png")
        got, picture = self.draw("from.png", "--init-image", "first.png", "--strength", "1")
        self.assertIn("vae_encoder", [c["role"] for c in got["memory"]["plan"]["components"]])


class Parity(VulkanCase):
    def verify(self, tree):
        r = self.danqing("verify", tree, "--device", "vulkan0", "--dtype", "f32")
        self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
        passed = re.search(r"(\d+) passed, 0 failed", r.stdout)
        self.assertGreater(int(passed[1]), 200, r.stdout)

    def test_z_image(self):
        self.verify(Z_TINY)

    def test_ernie_image(self):
        self.verify(TINY)


if __name__ == "__main__":
    main()
