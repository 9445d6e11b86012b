"""`inspect`: models, tensor files and pictures, for people and as JSON."""
import json

from harness import GGUF, MINI, SMALL, TINY, CliTest, main, png_text, safetensors_header


class Inspect(CliTest):
    def inspect(self, *args):
        r = self.run_ok("inspect", *args)
        self.assertEqual(r.stderr, "")
        return r.stdout

    def test_pipeline_directory(self):
        j = json.loads(self.inspect(MINI, "--json"))
        self.assertEqual((j["kind"], j["pipeline_class"]), ("pipeline", "ErnieImagePipeline"))
        parts = {c["role"]: c for c in j["components"]}
        self.assertEqual(parts.keys(), {"transformer", "text_encoder", "vae", "pe"})
        for role, name in (("transformer", "diffusion_pytorch_model"), ("text_encoder", "model"), ("vae", "diffusion_pytorch_model"), ("pe", "model")):
            header = safetensors_header(MINI / role / f"{name}.safetensors")
            header.pop("__metadata__", None)
            self.assertEqual(parts[role]["tensors"], len(header))
            self.assertEqual(parts[role]["bytes"], max(t["data_offsets"][1] for t in header.values()))
        self.assertEqual(j["bytes"], sum(c["bytes"] for c in parts.values()))
        self.assertEqual(j["scheduler"]["shift"], 3)
        text = self.inspect(MINI)
        for word in ("ErnieImagePipeline", "ErnieImageTransformer2DModel", "AutoencoderKLFlux2", "Mistral3Model", "bf16"):
            self.assertIn(word, text)

    def test_parts_and_files(self):
        j = json.loads(self.inspect(TINY / "transformer_bf16", "--json", "--tensors"))
        part = j["components"][0]
        self.assertEqual((j["kind"], part["role"], len(part["files"])), ("component", "transformer", 3))
        self.assertEqual(len(part["tensor_list"]), part["tensors"])
        single = json.loads(self.inspect(TINY / "transformer/diffusion_pytorch_model.safetensors", "--json"))
        self.assertEqual(single["parameters"], j["parameters"])
        self.assertEqual(single["bytes"], 2 * j["bytes"])  # f32 and bf16
        gguf = json.loads(self.inspect(GGUF / "ernie-tiny-MIXED.gguf", "--json"))["components"][0]
        self.assertEqual((gguf["format"], gguf["role"], gguf["parameters"]), ("gguf", "transformer", single["parameters"]))
        self.assertIn("q4_K", gguf["dtypes"])
        self.assertIn("layers.0.self_attention.to_q.weight", self.inspect(GGUF / "ernie-tiny-MIXED.gguf", "--tensors"))

    def test_pictures(self):
        for name in ("x.png", "x.jpg", "x.webp"):
            self.generate("夜空下的一只猫", "-o", name, "--seed", "1", "--negative", "雪", *SMALL)
            j = json.loads(self.inspect(name, "--json"))
            self.assertEqual(j["kind"], "picture")
            self.assertEqual(j["metadata"]["parameters"].split("\n")[:2], ["夜空下的一只猫", "Negative prompt: 雪"])
            self.assertEqual(json.loads(j["metadata"]["danqing"])["seed"], 1)
            self.assertIn("夜空下的一只猫", self.inspect(name))
        self.assertEqual(json.loads(self.inspect("x.png", "--json"))["metadata"], png_text(self.dir / "x.png"))

    def test_wrong_files(self):
        (self.dir / "text.txt").write_text("hello")
        (self.dir / "cut.png").write_bytes((MINI / "golden/png/apple_en_0_f32.png").read_bytes()[:20])
        (self.dir / "folder").mkdir()
        for path in ("missing", "text.txt", "cut.png", "folder", "/dev/zero", MINI / "tokenizer/tokenizer.json"):
            with self.subTest(path=path):
                self.assert_refused(3, "inspect", path, says=str(path))
        self.assert_refused(2, "inspect")
        self.assert_refused(2, "inspect", MINI, "--nonsense")


if __name__ == "__main__":
    main()
