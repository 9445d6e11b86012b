"""danqing plan: the real models' sizes on cards of all sizes, from headers alone."""
import json
import subprocess
import sys

from harness import MINI, SMALL, SOURCE, CliTest, main

GIB = 2 ** 30


class TrueSize(CliTest):
    def make(self, model):
        r = subprocess.run([sys.executable, "-B", SOURCE / "tools/make_sparse_checkpoint.py", model, self.dir / model,
                            "--tokenizer", str(MINI / "tokenizer"), "--pe-tokenizer", str(MINI / "pe_tokenizer")],
                           capture_output=True, text=True)
        self.assertEqual(r.returncode, 0, r.stderr)
        return self.dir / model

    def plan(self, model, memory, *args):
        r = self.run_ok("plan", model, "--device-memory", memory, "--host-memory", "64GiB", "--json", "--dtype", "bf16",
                        "--size", "1024x1024", *args)
        return json.loads(r.stdout)

    def test_ernie_image_on_every_card(self):
        model = self.make("ernie-image")
        on = ("--prompt-enhancer", "on")
        p = self.plan(model, "288GiB", "--batch", "4", *on)
        self.assertEqual((p["mode"], p["batch_size"], p["vae_tile"]), ("whole", 4, 0))
        size = {c["role"]: c["file_bytes"] / GIB for c in p["components"]}
        self.assertAlmostEqual(size["transformer"], 14.96, delta=0.01)
        self.assertAlmostEqual(size["text_encoder"], 7.18, delta=0.015)
        self.assertAlmostEqual(size["pe"], 6.38, delta=0.01)
        self.assertTrue(0.15 < size["vae"] < 0.175)
        p = self.plan(model, "32GiB", *on)
        self.assertEqual(p["mode"], "component offload")
        activations = max(c["compute_bytes"] for c in p["components"])
        self.assertLessEqual(p["device_peak"], 15.5 * GIB + activations)
        self.assertEqual(p["better"]["mode"], "whole")
        self.assertGreater(p["better"]["device_memory"], 32 * GIB)
        for memory in (24, 16, 12, 8, 6, 4):
            p = self.plan(model, f"{memory}GiB", *on)
            self.assertLessEqual(p["device_peak"] + p["reserve"], memory * GIB, p)
        self.assertEqual(p["mode"], "layer streaming")

    def test_z_image_on_every_card(self):
        model = self.make("z-image")
        for memory, mode in ((288, "whole"), (24, "whole"), (16, "component offload"), (8, "layer streaming"),
                             (4, "layer streaming")):
            p = self.plan(model, f"{memory}GiB")
            self.assertEqual(p["mode"], mode, memory)
            self.assertLessEqual(p["device_peak"] + p["reserve"], memory * GIB)

    def test_what_cannot_fit_says_what_would(self):
        model = self.make("ernie-image")
        r = self.danqing("plan", model, "--device-memory", "300MiB", "--size", "1024x1024")
        self.assertEqual(r.returncode, 4, r.stderr)
        self.assertIn("--device-memory", r.stderr)
        r = self.danqing("plan", model, "--device-memory", "12GiB", "--offload", "none", "--weight-type",
                         "stored")
        self.assertEqual(r.returncode, 4)
        self.assertIn("--offload auto", r.stderr)

    def test_a_host_that_cannot_hold_the_files_quantises(self):
        model = self.make("ernie-image")
        r = self.run_ok("plan", model, "--device-memory", "8GiB", "--host-memory", "8GiB", "--json", "--dtype", "bf16")
        p = json.loads(r.stdout)
        t = next(c for c in p["components"] if c["role"] == "transformer")
        self.assertTrue(t["quantized_on_load"], p)
        self.assertTrue(any("quantised" in n for n in p["notes"]))


class Mini(CliTest):
    def test_a_picture_says_its_plan_and_its_peak(self):
        r = self.run_ok("generate", "a cat", "-o", "a.png", "--seed", "1", "--json", *SMALL)
        whole = json.loads(r.stdout)["memory"]
        self.assertEqual(whole["plan"]["mode"], "whole")
        self.assertLessEqual(whole["device_peak"], whole["plan"]["device_peak"])
        budget = int(whole["plan"]["device_peak"] * 0.7)
        r = self.run_ok("generate", "a cat", "-o", "b.png", "--seed", "1", "--json", "--device-memory", str(budget),
                        "--reserve", "0", "--dtype", "f32", *SMALL)
        less = json.loads(r.stdout)["memory"]
        self.assertLessEqual(less["device_peak"], budget)
        self.assertNotEqual(less["plan"]["mode"], "whole")

    def test_a_table_for_people(self):
        r = self.run_ok("plan", MINI, "--size", "128x128", "--batch", "auto")
        for word in ("transformer", "text_encoder", "vae", "device peak", "resident"):
            self.assertIn(word, r.stdout)

    def test_published_sizes_without_files(self):
        for config, transformer in (("z-image-6b", 11.46), ("ernie-8b", 14.96)):
            plan = json.loads(self.run_ok("plan", "--config", config, "--device-memory", "288GiB", "--size", "1024x1024", "--json").stdout)
            files = {c["role"]: c["file_bytes"] / 2**30 for c in plan["components"]}
            self.assertAlmostEqual(files["transformer"], transformer, places=2)
            self.assertEqual(plan["mode"], "whole")
        self.assert_refused(2, "plan", "--config", "z-image-7b", says="expected ernie-8b, z-image-6b")
        self.assert_refused(2, "plan", "--config", "ernie-8b", "-m", "x", says="not both")

    def test_bad_words(self):
        for option, value in (("--device-memory", "many"), ("--reserve", "-1"), ("--offload", "some"),
                              ("--vae-tiling", "perhaps"), ("--attention-chunk", "0"), ("--weight-type", "q9"),
                              ("--batch", "0"), ("--size", "x")):
            r = self.danqing("plan", MINI, f"{option}={value}")
            self.assertEqual(r.returncode, 2, (option, r.stderr))
            self.assertEqual(len(r.stderr.strip().splitlines()), 1, r.stderr)


if __name__ == "__main__":
    main()
