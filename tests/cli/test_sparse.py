"""tools/make_sparse_checkpoint.py: the real models' sizes without their weights."""
import json
import subprocess
import sys

from harness import MINI, SOURCE, CliTest, main

GIB = 2 ** 30


class Sparse(CliTest):
    def make(self, model, *args):
        r = subprocess.run([sys.executable, "-B", SOURCE / "tools/make_sparse_checkpoint.py", model, self.dir / model, *args],
                           capture_output=True, text=True)
        self.assertEqual(r.returncode, 0, r.stderr)
        j = json.loads(self.run_ok("inspect", self.dir / model, "--json").stdout)
        taken = sum(p.stat().st_blocks * 512 for p in (self.dir / model).rglob("*"))
        self.assertLess(taken, 4 << 20, "the files are not sparse")
        return j, {c["role"]: c["bytes"] / GIB for c in j["components"]}

    def test_ernie_image(self):
        j, size = self.make("ernie-image")
        self.assertEqual(j["pipeline_class"], "ErnieImagePipeline")
        self.assertEqual(j["scheduler"]["shift"], 4)
        # The published sizes, as others measured and cut them; the shapes give 7.170, 6.387 and 0.157.
        self.assertAlmostEqual(size["transformer"], 14.96, delta=0.005)
        self.assertAlmostEqual(size["text_encoder"], 7.18, delta=0.015)
        self.assertAlmostEqual(size["pe"], 6.38, delta=0.01)
        self.assertTrue(0.155 <= size["vae"] <= 0.17, size)
        text = self.run_ok("inspect", self.dir / "ernie-image").stdout
        self.assertIn("14.96 GiB", text)

    def test_z_image(self):
        j, size = self.make("z-image")
        self.assertEqual(j["pipeline_class"], "ZImagePipeline")
        self.assertAlmostEqual(size["transformer"], 11.46, delta=0.01)  # 6.15 B weights
        self.assertAlmostEqual(size["text_encoder"], 7.49, delta=0.01)  # Qwen3-4B, tied
        self.assertTrue(0.15 <= size["vae"] <= 0.17, size)

    def test_the_headers_are_what_the_models_expect(self):
        """Opens the pipeline: configs parse, widths fit together; a plan of the conversion needs headers alone."""
        self.make("ernie-image", "--tokenizer", str(MINI / "tokenizer"), "--layers", "2")
        r = self.run_ok("convert", self.dir / "ernie-image", "q4", "--type", "q4_K", "--dry-run", "--json", "--threads", "1")
        parts = {c["role"]: c for c in json.loads(r.stdout)["components"]}
        self.assertEqual(parts.keys(), {"transformer", "text_encoder", "pe"})
        types = {t["name"]: t["type"] for t in parts["text_encoder"]["tensors"]}
        self.assertEqual(types["language_model.model.embed_tokens.weight"], "q6_K")
        self.assertEqual(types["language_model.model.layers.1.mlp.down_proj.weight"], "q4_K")

    def test_refuses_an_existing_directory(self):
        r = subprocess.run([sys.executable, "-B", SOURCE / "tools/make_sparse_checkpoint.py", "z-image", self.dir],
                           capture_output=True, text=True)
        self.assertEqual(r.returncode, 2)
        self.assertIn("exists already", r.stderr)


if __name__ == "__main__":
    main()
