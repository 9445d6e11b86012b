"""What `generate` writes: formats, metadata, names, seeds, prompts from everywhere, JSON, notes, tensors."""
import json
import struct

from harness import ONE, SMALL, TINY, Z_TINY, CliTest, main, png_pixels, png_settings, png_text, safetensors_header


class Formats(CliTest):
    def test_png_carries_every_setting(self):
        self.generate("夜空下的一只猫", "-o", "x.png", "--size", "64x96", "--steps", "2", *ONE, "--guidance", "3", "--negative", "雪", "--seed",
                      "1234567890123")
        width, height, pixels = png_pixels(self.dir / "x.png")
        self.assertEqual((width, height), (64, 96))
        self.assertGreater(len(set(pixels)), 16)  # a picture, not a plain field
        texts = png_text(self.dir / "x.png")
        lines = texts["parameters"].split("\n")
        self.assertEqual(lines[:2], ["夜空下的一只猫", "Negative prompt: 雪"])
        for part in ("Steps: 2", "Sampler: Euler", "CFG scale: 3", "Seed: 1234567890123", "Size: 64x96", "Model: danqing-mini",
                     "Version: danqing "):
            self.assertIn(part, lines[2])
        settings = json.loads(texts["danqing"])
        expected = {"prompt": "夜空下的一只猫", "negative_prompt": "雪", "width": 64, "height": 96, "num_inference_steps": 2,
                    "guidance_scale": 3, "seed": 1234567890123, "sampler": "euler", "pipeline": "ErnieImagePipeline"}
        self.assertEqual({k: settings[k] for k in expected}, expected)

    def test_jpeg(self):
        self.generate("a cat", "-o", "x.jpg", *SMALL, "--seed", "1")
        self.generate("a cat", "-o", "x.jpeg", *SMALL, "--seed", "1", "--quality", "20")
        data = (self.dir / "x.jpg").read_bytes()
        self.assertEqual((data[:3], data[-2:]), (b"\xff\xd8\xff", b"\xff\xd9"))
        at, size = 2, None
        while data[at] == 0xFF and data[at + 1] != 0xDA:  # segments up to the scan
            if data[at + 1] in (0xC0, 0xC2):
                size = struct.unpack(">HH", data[at + 5:at + 9])
            at += 2 + struct.unpack(">H", data[at + 2:at + 4])[0]
        self.assertEqual(size, (64, 64))
        self.assertIn("Steps: 2".encode(), data.replace(b"\0", b""))  # Exif text may be 16-bit
        self.assertLess((self.dir / "x.jpeg").stat().st_size, len(data))

    def test_webp(self):
        self.generate("a cat", "-o", "x.webp", *SMALL, "--seed", "1", "--quality", "100")
        data = (self.dir / "x.webp").read_bytes()
        self.assertEqual((data[:4], data[8:12]), (b"RIFF", b"WEBP"))
        self.assertEqual(struct.unpack("<I", data[4:8])[0] + 8, len(data))
        kinds, at = set(), 12
        while at < len(data):
            kind, size = struct.unpack("<4sI", data[at:at + 8])
            kinds.add(kind)
            if kind == b"VP8X":
                size_minus_1 = [int.from_bytes(data[at + i:at + i + 3], "little") for i in (12, 15)]
                self.assertEqual(size_minus_1, [63, 63])
            at += 8 + size + size % 2
        self.assertLessEqual({b"VP8X", b"VP8L", b"EXIF", b"XMP "}, kinds)  # quality 100 is lossless


class Seeds(CliTest):
    def test_a_batch_equals_its_single_runs(self):
        self.generate("a red apple", "--seed", "42", "--batch", "4", "-o", "batch-{seed}.png", *SMALL)
        self.assertEqual(self.files(), [f"batch-{s}.png" for s in (42, 43, 44, 45)])
        different = set()
        for seed in (42, 43, 44, 45):
            self.generate("a red apple", "--seed", seed, "-o", f"one-{seed}.png", *SMALL)
            one, many = self.dir / f"one-{seed}.png", self.dir / f"batch-{seed}.png"
            self.assertEqual(png_pixels(one), png_pixels(many))
            self.assertEqual(png_settings(many), {**png_settings(one), "index": seed - 42})
            different.add(png_pixels(one))
        self.assertEqual(len(different), 4)

    def test_pictures_denoised_together_are_the_same_pictures(self):
        """The rows of a batch go through the same arithmetic; 1 level is the rounding of another order of additions."""
        self.generate("猫", "a dog on the left and a red car on the right", "--seed", "5", "-o", "alone-{index}.png", *SMALL)
        self.generate("猫", "a dog on the left and a red car on the right", "--seed", "5", "-o", "both-{index}.png", "--batch-size", "2", *SMALL)
        for i in range(2):
            a, b = png_pixels(self.dir / f"alone-{i}.png"), png_pixels(self.dir / f"both-{i}.png")
            self.assertEqual(a[:2], b[:2])
            self.assertLessEqual(max(abs(x - y) for x, y in zip(a[2], b[2])), 1)

    def test_lists_large_and_random_seeds(self):
        self.generate("a", "b", "--seed", "18446744073709551615,-1", "-o", "{index}.png", *SMALL)
        self.assertEqual(png_settings(self.dir / "1.png")["seed"], 2**64 - 1)
        self.generate("a", "--seed", str(2**40 + 7), "-o", "large.png", *SMALL)
        self.generate("a", "--seed", "7", "-o", "low.png", *SMALL)
        self.assertEqual(png_settings(self.dir / "large.png")["seed"], 2**40 + 7)
        # torch's CPU generator knows the low 32 bits of a seed only.
        self.assertEqual(png_pixels(self.dir / "large.png"), png_pixels(self.dir / "low.png"))
        self.generate("a", "-o", "r1.png", *SMALL)
        self.generate("a", "-o", "r2.png", *SMALL)
        self.assertNotEqual(png_settings(self.dir / "r1.png")["seed"], png_settings(self.dir / "r2.png")["seed"])

    def test_threads_do_not_change_a_bit(self):
        for threads in (1, 2, 3):
            self.generate("a red apple", "--seed", "3", "-o", f"{threads}.png", *SMALL[:-2], "--threads", threads)
        one = (self.dir / "1.png").read_bytes()
        self.assertEqual((self.dir / "2.png").read_bytes(), one)
        self.assertEqual((self.dir / "3.png").read_bytes(), one)


class Names(CliTest):
    def test_templates(self):
        self.generate("夜空下的一只猫, 大", "-o", "out/{prompt}/{index:04}-{seed}.png", "--seed", "9", "--batch", "2", *SMALL)
        self.assertEqual(self.files(), [f"out/夜空下的一只猫-大/{i:04}-{9 + i}.png" for i in range(2)])

    def test_default_name(self):
        r = self.generate("a red apple", "--seed", "9", *SMALL)
        self.assertEqual(r.stdout, "a-red-apple-9.png\n")
        self.assertEqual(self.files(), ["a-red-apple-9.png"])

    def test_several_pictures_of_a_plain_name(self):
        r = self.generate("a", "b", "-o", "画.png", "--seed", "1", *SMALL)
        self.assertEqual(r.stdout.splitlines(), ["画-0.png", "画-1.png"])
        self.assertEqual(self.files(), ["画-0.png", "画-1.png"])

    def test_never_overwrites_silently(self):
        (self.dir / "x.png").write_text("mine")
        r = self.generate("a", "-o", "x.png", "--seed", "1", *SMALL)
        self.assertEqual(r.stdout, "x-2.png\n")
        self.assertIn("note: x.png exists", r.stderr)
        self.assertEqual((self.dir / "x.png").read_text(), "mine")
        self.generate("b", "-o", "x.png", "--seed", "1", *SMALL)
        self.assertEqual(self.files(), ["x-2.png", "x-3.png", "x.png"])
        self.assertEqual(png_settings(self.dir / "x-2.png")["prompt"], "a")

    def test_overwrite_replaces_what_was_there_but_not_its_own_pictures(self):
        (self.dir / "x.png").write_text("old")
        self.generate("a", "b", "-o", "x.png", "--overwrite", "--seed", "1", *SMALL)
        self.assertEqual(self.files(), ["x-0.png", "x-1.png", "x.png"])
        self.generate("a", "-o", "x.png", "--overwrite", "--seed", "1", *SMALL)
        self.assertEqual(png_settings(self.dir / "x.png")["prompt"], "a")
        # One name for two pictures of one run: the second gets another name.
        self.generate("c", "d", "-o", "{seed}.png", "--overwrite", "--seed", "4,4", *SMALL)
        self.assertEqual(png_settings(self.dir / "4.png")["prompt"], "c")
        self.assertEqual(png_settings(self.dir / "4-2.png")["prompt"], "d")


class Prompts(CliTest):
    def prompts(self):
        return [png_settings(self.dir / f)["prompt"] for f in self.files() if f.endswith(".png")]

    def test_file(self):
        (self.dir / "列表.txt").write_bytes("\ufeffa cat\r\n\r\n夜空下的一只猫\r\n".encode())
        self.generate("first", "--prompt-file", "列表.txt", "-o", "{index}.png", "--seed", "1", *SMALL)
        self.assertEqual(self.prompts(), ["first", "a cat", "夜空下的一只猫"])

    def test_standard_input(self):
        self.generate("-o", "{index}.png", "--seed", "1", *SMALL, stdin="a cat\n红苹果\n")
        self.assertEqual(self.prompts(), ["a cat", "红苹果"])

    def test_dash_among_others(self):
        r = self.generate("a cat", "-", *SMALL, "--json", "--seed", "1", stdin="panda\nfox\n")
        self.assertEqual([i["prompt"] for i in json.loads(r.stdout)["images"]], ["a cat", "panda", "fox"])

    def test_a_prompt_that_is_cut_is_said(self):
        r = self.generate("a cat " * 2000, *SMALL, "--json", "-o", "x.png")
        self.assertRegex(" ".join(json.loads(r.stdout)["notes"]), r"has \d+ tokens and was cut to the model's 512")

    def test_dash(self):
        self.generate("-", "-o", "{index}.png", "--seed", "1", *SMALL, stdin="panda")
        self.assertEqual(self.prompts(), ["panda"])

    def test_from_a_picture(self):
        self.generate("a red apple", "-o", "apple.png", "--size", "96x64", "--steps", "6", "--seed", "1")
        p = self.generate("a sailboat", "-o", "x.png", "--steps", "5", "--seed", "2", "--init-image", "apple.png", "--strength", "0.6")
        self.assertIn("96x64 as the given picture, 5 steps at strength 0.6", p.stderr)
        self.assertIn("encode given picture", p.stderr)
        self.assertIn("denoise step 3/3", p.stderr)
        self.assertEqual(png_pixels(self.dir / "x.png")[:2], (96, 64))
        settings = png_settings(self.dir / "x.png")
        self.assertEqual(settings["strength"], 0.6)
        self.assertEqual(settings["init_image"], {"width": 96, "height": 64})
        self.assertIn("Denoising strength: 0.6", png_text(self.dir / "x.png")["parameters"])
        p = self.generate("a sailboat", "-o", "y.jpg", *SMALL, "--seed", "2", "--init-image", "apple.png")
        self.assertIn("note: the given picture was scaled from 96x64 to 64x64", p.stderr)

    def test_adapters(self):
        lora = Z_TINY / "golden/lora.safetensors"
        args = ("-m", Z_TINY, "--size", "64x64", "--steps", "2", "--seed", "3", *ONE)

        def pixels(name, *more):
            self.generate("a cat", "-o", name, *args, *more)
            return png_pixels(self.dir / name)[2]
        plain = pixels("plain.png")
        full = pixels("full.png", "--lora", lora)
        self.assertNotEqual(full, plain)
        self.assertEqual(pixels("none.png", "--lora", f"{lora}:0"), plain)
        self.assertEqual(pixels("one.png", "--lora", f"{lora}:1.0"), full)
        self.assertEqual(pixels("streamed.png", "--lora", lora, "--offload", "stream"), full)
        undone = pixels("undone.png", "--lora", f"{lora}:0.5", "--lora", f"{lora}:-0.5")
        self.assertLessEqual(max(abs(a - b) for a, b in zip(undone, plain)), 1)  # adding and taking away rounds
        self.assertNotEqual(pixels("q8.png", "--lora", lora, "--weight-type", "q8_0"), pixels("plain-q8.png", "--weight-type", "q8_0"))
        for word, code, says in ((f"{lora}:x", 2, "FILE:WEIGHT"), (f"{lora}:1000", 2, "from -100 to 100"), ("none.safetensors", 3, "none.safetensors"),
                                 (TINY / "golden/lora.safetensors", 3, "the adapter is for another one"), (Z_TINY / "golden/vae.safetensors", 3, "[lora]")):
            self.assert_refused(code, "generate", "a cat", "-o", "x.png", *args, "--lora", word, says=says)

    def test_pictures_to_start_from_that_are_none(self):
        (self.dir / "text.png").write_text("no picture")
        for args, code, words in ((["--init-image", "text.png"], 3, "[--init-image] text.png: "),
                                  (["--init-image", "none.png"], 3, "[--init-image] none.png: "),
                                  (["--init-image", "."], 3, "[--init-image] .: "),
                                  (["--strength", "0.5"], 2, "[--strength] has a meaning only with --init-image"),
                                  (["--init-image", "text.png", "--strength", "x"], 2, "--strength")):
            self.assert_refused(code, "generate", "a cat", "-o", "z.png", *args, says=words)

    def test_odd_prompts(self):
        odd = ["", " ", "🍎🍏", "\t", "<s>[INST]</s>", "a" * 3000, "e\u0301", "\u202eabc"]
        self.generate("-o", "{index}.png", "--seed", "1", "--size", "32x32", "--steps", "1", *ONE, "--", *odd)
        self.assertEqual(self.prompts(), odd)

    def test_invalid_utf8(self):
        (self.dir / "bad.txt").write_bytes(b"caf\xe9 \xff\xf0\x9f\x8d\n")
        self.generate("--prompt-file", "bad.txt", "-o", "{prompt}.png", "--seed", "1", *SMALL)
        self.assertEqual(self.files(), ["bad.txt", "caf.png"])
        self.assertIn("\ufffd", png_settings(self.dir / "caf.png")["prompt"])


class Messages(CliTest):
    def test_json(self):
        r = self.generate("a cat", "猫", "--json", "-o", "{index}.png", "--seed", "1", "--negative", "snow", *SMALL)
        j = json.loads(r.stdout)
        self.assertLessEqual({"model", "num_inference_steps", "guidance_scale", "shift", "notes", "seconds", "images"}, j.keys())
        self.assertLessEqual({"total", "load", "text", "denoise", "decode", "per_step"}, j["seconds"].keys())
        self.assertEqual([(i["path"], i["index"], i["seed"], i["prompt"], i["width"], i["height"], i["negative_prompt"]) for i in j["images"]],
                         [("0.png", 0, 1, "a cat", 64, 64, "snow"), ("1.png", 1, 2, "猫", 64, 64, "snow")])
        self.assertEqual((j["num_inference_steps"], j["guidance_scale"]), (2, 4))
        self.assertGreater(j["seconds"]["per_step"], 0)

    def test_quiet(self):
        r = self.generate("a cat", "--quiet", "-o", "x.png", "--negative", "snow", "--guidance", "1", *SMALL)
        self.assertEqual((r.stdout, r.stderr), ("x.png\n", ""))

    def test_defaults_are_named(self):
        r = self.generate("a cat", "-o", "x.png", *ONE)
        self.assertIn("danqing-mini: 128x128, 20 steps, guidance 4, shift 3 (defaults: danqing.json, scheduler_config.json)\n", r.stderr)
        self.assertEqual(png_pixels(self.dir / "x.png")[:2], (128, 128))

    def test_settings_without_effect_are_said(self):
        r = self.generate("a cat", "-o", "x.png", "--negative", "snow", "--guidance", "1", *SMALL)
        self.assertIn("note: the negative prompt has no effect at guidance 1\n", r.stderr)
        r = self.generate("a cat", "-o", "y.png", "--prompt-enhancer", "off", "--enhancer-seed", "1", *SMALL)
        self.assertRegex(r.stderr, "note: the enhancer's settings have no effect")
        r = self.generate("a cat", "-o", "z.png", "--size", "64x64", "--steps", "0", *ONE)
        self.assertRegex(r.stderr, "note: 0 steps")

    def test_progress_lines(self):
        """Not a terminal: whole lines, no carriage return, one for each tenth of the steps at most."""
        r = self.generate("a cat", "-o", "x.png", "--size", "64x64", "--steps", "40", *ONE, env=self.environment(TERM="xterm"))
        self.assertNotIn("\r", r.stderr)
        self.assertNotIn("\x1b", r.stderr)
        steps = [line for line in r.stderr.splitlines() if line.startswith("denoise step")]
        self.assertRegex(steps[-1], r"\Adenoise step 40/40, [\d.]+ (it/s|s/it), ETA 0\.00 s\Z")
        self.assertTrue(3 <= len(steps) <= 12, steps)  # 0, the first after loading, ten tenths
        for stage in ("load weights 100%", "encode prompt", "decode picture"):
            self.assertIn(stage + "\n", r.stderr)

    def test_enhancer(self):
        r = self.generate("panda", "--prompt-enhancer", "on", "-o", "x.png", "--seed", "1", *SMALL)
        settings = png_settings(self.dir / "x.png")
        self.assertEqual(settings["prompt"], "panda")
        self.assertGreater(len(settings["revised_prompt"]), len("panda"))
        self.assertIn("revised prompt: " + settings["revised_prompt"], r.stderr)
        self.assertTrue(png_text(self.dir / "x.png")["parameters"].startswith(settings["revised_prompt"]))
        self.assertIn('Original prompt: "panda"', png_text(self.dir / "x.png")["parameters"])

    def test_dump_tensors(self):
        r = self.generate("a cat", "-o", "x.png", "--dump-tensors", "dump/here", "--seed", "1", *SMALL)
        self.assertIn("dump/here/tensors.safetensors", r.stderr)
        self.assertEqual(self.files(), ["dump/here/tensors.safetensors", "x.png"])
        header = safetensors_header(self.dir / "dump/here/tensors.safetensors")
        for name, shape in {"init_latents": [1, 128, 4, 4], "step.0.latents": [1, 128, 4, 4], "step.1.latents": [1, 128, 4, 4],
                            "final_latents": [1, 128, 4, 4], "decoded": [1, 3, 64, 64], "sigmas": [3]}.items():
            self.assertEqual(header[name]["shape"], shape, name)
        self.generate("a cat", "-o", "y.png", "--seed", "1", *SMALL)
        self.assertEqual(png_pixels(self.dir / "x.png"), png_pixels(self.dir / "y.png"))  # looking changes nothing


if __name__ == "__main__":
    main()
