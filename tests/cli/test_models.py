"""Models on disk: damaged ones and things that are no models, split files, GGUF, the default model, `inspect`."""
import json
import os
import shutil

from harness import GGUF, MINI, ONE, SMALL, TINY, Z_TINY, CliTest, main, png_pixels
from tensor_files import read_gguf, write_gguf

WEIGHTS = "diffusion_pytorch_model.safetensors"


class PartsLeftOut(CliTest):
    def test_without_the_enhancer(self):
        """As people download it: model_index.json names pe, its folders are not there."""
        root = self.dir / "model"
        shutil.copytree(MINI, root, copy_function=os.symlink, ignore=shutil.ignore_patterns("golden", "pe", "pe_tokenizer"))
        self.generate("a cat", *SMALL, "-m", root, "-o", "a.png")
        self.generate("a cat", *SMALL, "-m", MINI, "-o", "b.png", "--prompt-enhancer", "off", "--seed", "1")
        self.run_ok("inspect", root)
        r = self.danqing("generate", "a cat", *SMALL, "-m", root, "--prompt-enhancer", "on")
        self.assertEqual((r.returncode, r.stdout), (2, ""))
        self.assertIn("no prompt enhancer", r.stderr)


class WrongModels(CliTest):
    def refused(self, *args, says=None, code=3):
        with self.subTest(args=args):
            self.assert_refused(code, "generate", "a cat", *SMALL, *args, says=says)

    def mini_with(self, name, **replaced):
        """A copy of the mini model made of links; `replaced` maps "transformer/config.json" to bytes, None removes it."""
        root = self.dir / name
        shutil.copytree(MINI, root, copy_function=os.symlink, ignore=shutil.ignore_patterns("golden"))
        for path, content in replaced.items():
            (root / path).unlink()
            if content is not None:
                (root / path).write_bytes(content)
        return root

    def test_things_that_are_no_models(self):
        (self.dir / "empty").touch()
        (self.dir / "text.txt").write_text("a red apple\n" * 100)
        (self.dir / "page.safetensors").write_text("<!DOCTYPE html><html><body>Sign in</body></html>")
        (self.dir / "pointer.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 5\n")
        (self.dir / "folder").mkdir()
        os.mkfifo(self.dir / "pipe")
        for path in ("missing", "empty", "text.txt", "folder", "pipe", MINI / "golden/png/apple_en_0_f32.png", MINI / "tokenizer/tokenizer.json",
                     MINI / "tokenizer", MINI / "scheduler", MINI / "LICENSE.md", "/dev/zero", "/dev/null"):
            self.refused("-m", path, says=str(path))
        self.refused("-m", "page.safetensors", says="HTML")
        self.refused("-m", "pointer.safetensors", says="LFS")
        self.assert_refused(3, "enhance", "a cat", "-m", "text.txt", says="text.txt")

    def test_parts_alone(self):
        for part in ("transformer", "text_encoder", "vae", "pe"):
            self.refused("-m", MINI / part)

    def test_wrong_part(self):
        self.refused("--transformer", MINI / "vae", says="transformer")
        self.refused("--vae", MINI / "transformer", says="vae")
        self.refused("--text-encoder", MINI / "vae", says="text_encoder")
        self.refused("--transformer", MINI, says="transformer")
        for option in ("--transformer", "--text-encoder", "--vae", "--pe", "--tokenizer", "--pe-tokenizer", "--scheduler"):
            self.refused(option, "missing", says="missing")
        self.refused("--tokenizer", MINI / "vae")

    def test_parts_that_do_not_belong_together(self):
        r = self.danqing("generate", "a cat", *SMALL, "-m", MINI, "--transformer", TINY / "transformer")
        self.assertEqual((r.returncode, r.stdout, self.files()), (3, "", []))
        self.assertEqual(len(r.stderr.splitlines()), 1)  # before any weights are loaded
        self.assertRegex(r.stderr, r"the transformer expects text features of width 96, the text encoder .*text_encoder makes 192")

    def test_a_network_alone_borrows_nothing_from_the_built_in_model(self):
        self.refused("--transformer", TINY / "transformer", "--text-encoder", TINY / "text_encoder", "--tokenizer", TINY / "tokenizer",
                     says="needs a vae")
        self.refused("--transformer", TINY / "transformer", "--text-encoder", TINY / "text_encoder", "--vae", TINY / "vae",
                     says="[model] the given files: no tokenizer")

    def test_pipes_in_place_of_tokenizer_files(self):
        for name in ("tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json", "pe_tokenizer/tokenizer.json",
                     "pe_tokenizer/chat_template.jinja"):
            root = self.mini_with(name.replace("/", "-"), **{name: None})
            os.mkfifo(root / name)
            self.assert_refused(3, "enhance", "a cat", "-m", root, *ONE, says=name)

    def test_a_template_that_drops_the_message(self):
        root = self.mini_with("mute", **{"pe_tokenizer/chat_template.jinja": b"nothing"})
        r = self.danqing("enhance", "a cat", "-m", root, *ONE)
        self.assertEqual((r.returncode, r.stdout), (3, ""))
        self.assertIn("drops", r.stderr)

    def test_truncated_weights(self):
        whole = (MINI / "transformer" / WEIGHTS).read_bytes()
        for size in (0, 7, 8, 100, len(whole) // 2, len(whole) - 1):
            root = self.mini_with(f"cut{size}", **{f"transformer/{WEIGHTS}": whole[:size]})
            self.refused("-m", root, says=WEIGHTS)

    def test_damaged_configs(self):
        for path in ("model_index.json", "transformer/config.json", "text_encoder/config.json", "vae/config.json",
                     "scheduler/scheduler_config.json", "tokenizer/tokenizer.json", "danqing.json"):
            for i, content in enumerate((b"", b"{", b"[]", b'"text"', b"\xff\xfe", b"[" * 100000)):
                root = self.mini_with(f"{path.replace('/', '-')}{i}", **{path: content})
                self.refused("-m", root, says=path.split("/")[-1])

    def test_missing_files(self):
        for path in ("transformer/" + WEIGHTS, "tokenizer/tokenizer.json", "scheduler/scheduler_config.json"):
            root = self.mini_with(path.replace("/", "-"), **{path: None})
            self.refused("-m", root, says=path.split("/")[0])
        root = self.mini_with("no-vae")
        shutil.rmtree(root / "vae")
        self.refused("-m", root, says="vae")

    def test_unknown_pipeline(self):
        index = json.loads((MINI / "model_index.json").read_text())
        for name in ("StableDiffusionPipeline", "", 5, None):
            root = self.mini_with(f"class{name}", **{"model_index.json": json.dumps({**index, "_class_name": name}).encode()})
            self.refused("-m", root, says="model_index.json")

    def test_default_model_from_the_environment(self):
        r = self.danqing("generate", "a cat", *SMALL, "-o", "x.png", "--json", env=self.environment(DANQING_MODEL=str(TINY)))
        self.assertEqual(json.loads(r.stdout)["model"], "ernie-tiny")
        self.assert_refused(3, "generate", "a cat", env=self.environment(DANQING_MODEL="/nonexistent"), says="DANQING_MODEL")


class SplitFiles(CliTest):
    """Comfy-style: single files without configs, away from their directory."""
    GIVEN = ("--size", "64x64", "--steps", "3", "--guidance", "4", "--shift", "4", "--seed", "5", "--prompt-enhancer", "off", *ONE)

    def setUp(self):
        super().setUp()
        for name, path in {"dit": f"transformer/{WEIGHTS}", "te": "text_encoder/model.safetensors", "vae": f"vae/{WEIGHTS}"}.items():
            os.symlink(TINY / path, self.dir / f"{name}.safetensors")
        self.parts = ("--transformer", "dit.safetensors", "--text-encoder", "te.safetensors", "--vae", "vae.safetensors",
                      "--tokenizer", TINY / "tokenizer")

    def test_same_picture_as_the_directory(self):
        r = self.generate("a cat", *self.parts, *self.GIVEN, "-o", "split.png")
        self.generate("a cat", "-m", TINY, *self.GIVEN, "-o", "directory.png")
        self.assertEqual(png_pixels(self.dir / "split.png"), png_pixels(self.dir / "directory.png"))
        self.assertIn("64x64, 3 steps, guidance 4, shift 4", r.stderr)

    def test_defaults_by_kind_are_printed(self):
        r = self.generate("a cat", *self.parts, "--size", "64x64", "--steps", "1", *ONE, "-o", "x.png")
        self.assertIn("guidance 4, shift 4 (defaults: ERNIE-Image, no scheduler_config.json)", r.stderr)
        self.assertIn("note: 64x64 is not one of the model's own sizes (1024x1024, ", r.stderr)
        os.rename(self.dir / "dit.safetensors", self.dir / "ernie-image-turbo.safetensors")
        r = self.generate("a cat", "--transformer", "ernie-image-turbo.safetensors", *self.parts[2:], "--size", "64x64", *ONE, "-o", "y.png")
        self.assertIn("8 steps, guidance 1, shift 4 (defaults: ERNIE-Image-Turbo, no scheduler_config.json)", r.stderr)

    def test_an_incomplete_set(self):
        self.assert_refused(3, "generate", "a cat", "-m", "dit.safetensors", says="text_encoder")
        self.assert_refused(3, "generate", "a cat", *self.parts[:-2], says="tokenizer")

    def test_gguf_transformer(self):
        shutil.copy(GGUF / "ernie-tiny-MIXED.gguf", self.dir / "mixed.gguf")
        self.generate("a cat", "--transformer", "mixed.gguf", *self.parts[2:], *self.GIVEN, "-o", "gguf.png")
        self.generate("a cat", "-m", TINY, "--transformer", "mixed.gguf", *self.GIVEN, "-o", "override.png")
        gguf = png_pixels(self.dir / "gguf.png")
        self.assertEqual(gguf, png_pixels(self.dir / "override.png"))
        self.generate("a cat", "-m", TINY, *self.GIVEN, "-o", "f32.png")
        exact = png_pixels(self.dir / "f32.png")
        self.assertNotEqual(gguf, exact)
        mean = sum(abs(a - b) for a, b in zip(gguf[2], exact[2])) / len(exact[2])
        self.assertLess(mean, 40)  # another picture entirely is 80 levels away

    def test_truncated_gguf(self):
        whole = (GGUF / "ernie-tiny-MIXED.gguf").read_bytes()
        for size in (3, 23, 1000, len(whole) // 2, len(whole) - 1):
            (self.dir / "cut.gguf").write_bytes(whole[:size])
            with self.subTest(size=size):
                self.assert_refused(3, "generate", "a cat", "-m", TINY, "--transformer", "cut.gguf", says="cut.gguf")


class ZImageFiles(CliTest):
    """A Z-Image denoiser as GGUF: as published (architecture lumina2), without that key, and under a prefix."""
    GIVEN = ("--size", "64x64", "--steps", "2", "--seed", "5", "--dtype", "f32", *ONE)

    def picture(self, name, *args):
        self.run_ok("generate", "a cat", "-m", Z_TINY, *args, *self.GIVEN, "-o", name)
        return png_pixels(self.dir / name)

    def test_gguf_draws_what_the_directory_draws(self):
        want = self.picture("directory.png")
        self.run_ok("convert", Z_TINY / "transformer", "z.gguf", "--type", "f32", "--threads", "1")
        metadata, tensors = read_gguf(self.dir / "z.gguf")
        self.assertEqual(metadata["general.architecture"], "lumina2")
        self.assertEqual(self.picture("lumina2.png", "--transformer", "z.gguf"), want)
        del metadata["general.architecture"]
        write_gguf(self.dir / "none.gguf", tensors, metadata)
        self.assertEqual(self.picture("none.png", "--transformer", "none.gguf"), want)
        prefixed = {"model.diffusion_model." + name: t for name, t in tensors.items()}
        write_gguf(self.dir / "prefix.gguf", prefixed, {"general.architecture": "lumina2"})
        self.assertEqual(self.picture("prefix.png", "--transformer", "prefix.gguf"), want)
        r = self.run_ok("inspect", "none.gguf", "--json")
        self.assertEqual(json.loads(r.stdout)["description"], "z_image transformer")

    def test_quantised_gguf(self):
        want = self.picture("directory.png")
        self.run_ok("convert", Z_TINY / "transformer", "q8.gguf", "--type", "q8_0", "--threads", "1")
        near = self.picture("q8.png", "--transformer", "q8.gguf")
        self.assertNotEqual(near, want)
        mean = sum(abs(a - b) for a, b in zip(near[2], want[2])) / len(want[2])
        self.assertLess(mean, 8)


if __name__ == "__main__":
    main()
