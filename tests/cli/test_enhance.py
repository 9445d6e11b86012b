"""`enhance`: the same text streamed, as JSON and within `generate`; its settings."""
import json

from harness import ONE, SMALL, TINY, CliTest, main, png_settings


class Enhance(CliTest):
    def enhance(self, *args):
        return self.run_ok("enhance", *args, *ONE)

    def test_stream_equals_json(self):
        for prompt in ("panda", "夜空下的一只猫"):
            streamed = self.enhance(prompt, "--seed", "7").stdout
            j = json.loads(self.enhance(prompt, "--seed", "7", "--json").stdout)
            self.assertEqual(streamed.strip(), j["revised_prompt"])
            self.assertTrue(streamed.endswith("\n"))
            self.assertEqual(j["prompt"], prompt)
            self.assertFalse(j["reached_limit"])
            self.assertGreater(j["prompt_tokens"], 10)
            self.assertGreater(j["new_tokens"], 5)
            self.assertGreater(j["seconds"], 0)

    def test_writes_a_longer_prompt_in_the_same_language(self):
        self.assertIn("panda", self.enhance("panda", "--temperature", "0").stdout)
        self.assertIn("猫", self.enhance("夜空下的一只猫", "--temperature", "0").stdout)

    def test_temperature_zero_ignores_the_seed(self):
        texts = {self.enhance("panda", "--temperature", "0", "--seed", seed).stdout for seed in (1, 2, 3)}
        self.assertEqual(len(texts), 1)

    def test_seed(self):
        hot = ("--temperature", "3", "--top-p", "1", "--top-k", "0", "--max-tokens", "40")
        first = self.enhance("panda", *hot, "--seed", "1").stdout
        self.assertEqual(self.enhance("panda", *hot, "--seed", "1").stdout, first)
        self.assertNotEqual(self.enhance("panda", *hot, "--seed", "2").stdout, first)
        # Only the likeliest token is left: whatever the seed, it is that of temperature 0.
        self.assertEqual(self.enhance("panda", "--top-k", "1", "--seed", "9").stdout, self.enhance("panda", "--temperature", "0").stdout)

    def test_limit_is_said(self):
        r = self.enhance("panda", "--max-tokens", "3")
        self.assertIn("note: stopped at the limit of 3 tokens", r.stderr)
        j = json.loads(self.enhance("panda", "--max-tokens", "3", "--json").stdout)
        self.assertEqual((j["new_tokens"], j["reached_limit"]), (3, True))

    def test_size_is_told_to_the_enhancer(self):
        tokens = [json.loads(self.enhance("panda", "--temperature", "0", "--size", s, "--json").stdout)["prompt_tokens"] for s in ("64x64", "1024x1024")]
        self.assertGreater(tokens[1], tokens[0])

    def test_quiet(self):
        r = self.enhance("panda", "--quiet", "--max-tokens", "3")
        self.assertEqual(r.stderr, "")

    def test_generate_uses_the_same_text(self):
        self.generate("panda", "--prompt-enhancer", "on", "--seed", "7", "-o", "x.png", *SMALL)
        text = self.enhance("panda", "--seed", "7", "--size", "64x64").stdout.strip()
        self.assertEqual(png_settings(self.dir / "x.png")["revised_prompt"], text)
        self.generate("panda", "--prompt-enhancer", "on", "--seed", "1", "--enhancer-seed", "7", "-o", "y.png", *SMALL)
        self.assertEqual(png_settings(self.dir / "y.png")["revised_prompt"], text)

    def test_model_without_one(self):
        self.assert_refused(2, "generate", "a", "--transformer", TINY / "transformer", "--text-encoder", TINY / "text_encoder", "--vae", TINY / "vae",
                            "--tokenizer", TINY / "tokenizer", "--prompt-enhancer", "on", says="enhancer")


if __name__ == "__main__":
    main()
