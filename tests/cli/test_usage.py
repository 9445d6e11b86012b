"""Every wrong word on the command line: one line, exit 2 (or 3 for a wrong file, 1 for an unwritable place), no trace."""
import os
import unittest

from harness import CliTest, MINI, main


class WrongOptions(CliTest):
    def refused(self, *args, says=None, code=2):
        with self.subTest(args=args):
            self.assert_refused(code, "generate", "a cat", *args, says=says)

    def test_empty_words(self):
        """"$UNSET" in a script must not mean the default."""
        for option in ("-m", "--size", "--seed", "--enhancer-seed", "--dump-tensors", "--prompt-file", "--sampler", "-o", "--noise", "--shift",
                       "--device", "--dtype", "--vae"):
            with self.subTest(option=option):
                self.assert_refused(2, "generate", "a cat", option, "")
        self.assert_refused(2, "bench", "--config", "")
        self.assert_refused(2, "bench", "--weights", "")

    def test_nul_in_a_prompt(self):
        (self.dir / "prompts.txt").write_bytes(b"a\0b\n")
        self.assert_refused(2, "generate", "--prompt-file", "prompts.txt", says="NUL")

    def test_bench_options_that_do_not_go_together(self):
        self.assert_refused(2, "bench", "--layers", "3", says="--config")
        self.assert_refused(2, "bench", "--config", "ernie-8b", "-m", "x", says="--model")
        self.assert_refused(2, "bench", "--config", "ernie-8b", "--stage", "pipeline", says="pipeline")

    def test_standard_input_is_read_once(self):
        self.assert_refused(2, "generate", "-", "-", says="once")

    def test_sides(self):
        for value in ("0", "-5"):
            self.assert_refused(2, "generate", "a cat", "--width", value, says=f"got {value}")
            self.assert_refused(2, "generate", "a cat", "--height", value, says=f"got {value}")

    def test_long_file_names(self):
        self.assert_refused(2, "generate", "a cat", "-o", "x" * 300 + ".png", says="file name")

    def test_unknown_words(self):
        self.assert_refused(2, "draw", "a cat")
        self.assert_refused(2, "--nonsense")
        self.refused("--nonsense")
        self.refused("--steps")
        self.refused("--sampler", "dpm", says="euler")
        self.refused("--noise", "gpu", says="--noise")
        self.refused("--prompt-enhancer", "maybe", says="on, off")
        self.refused("--dtype", "int8", says="bf16")
        self.refused("--device", "abacus", says="cpu")

    def test_numbers(self):
        for option in ("--steps", "--guidance", "--shift", "--width", "--height", "--batch", "--batch-size", "--threads", "--quality",
                       "--seed", "--temperature", "--top-p", "--top-k", "--max-tokens"):
            self.refused(option, "abc")
            self.refused(option, "1x")
            self.refused(option, "")
        for option in ("--steps", "--width", "--batch", "--batch-size", "--threads", "--quality", "--seed", "--top-k", "--max-tokens"):
            self.refused(option, "1.5")
            self.refused(option, "99999999999999999999")

    def test_ranges(self):
        for option, values in {"--steps": ("-1", "1001", "2147483647"), "--guidance": ("nan", "inf", "-inf", "1e30", "-1e30"),
                               "--shift": ("0", "-1", "nan", "inf", "1e9"), "--batch": ("0", "-1", "2147483647"),
                               "--batch-size": ("-1",), "--threads": ("-1", "100000"), "--quality": ("0", "101", "-5")}.items():
            for value in values:
                self.refused(option, value)
        self.assert_refused(2, "generate", "a", "b", "c", "--batch", "2147483647")

    def test_sizes(self):
        for size in ("128", "128x", "x128", "128x128x128", "axb", "0x0", "0x128", "-16x16", "16.0x16", "128 x 128",
                     "100x128", "128x100", "8x8", "1000000x16", "2147483648x16", "99999999999999999999x16"):
            self.refused("--size", size)
        for option in ("--width", "--height"):
            for value in ("0", "-16", "100", "8", "1000000000"):
                self.refused(option, value)
        self.refused("--width", "100", says="96 or 112")
        self.refused("--size", "64x64", "--width", "64", says="not both")

    def test_seeds(self):
        for seed in ("-", "+1", "0x10", "1e3", "1,", ",", "1,,2", "18446744073709551616", "-9223372036854775809"):
            self.refused("--seed", seed, says="--seed")
        self.refused("--seed", "1,2", says="seed")
        self.refused("--seed", "1,2,3", "--batch", "2")

    def test_enhancer_settings(self):
        for option, value in (("--temperature", "-1"), ("--temperature", "nan"), ("--temperature", "inf"), ("--top-p", "0"),
                              ("--top-p", "1.5"), ("--top-p", "nan"), ("--top-k", "-1"), ("--max-tokens", "0"), ("--max-tokens", "-3"),
                              ("--max-tokens", "2147483647")):
            self.refused("--prompt-enhancer", "on", option, value)
            with self.subTest(enhance=option, value=value):
                self.assert_refused(2, "enhance", "a cat", option, value)
        self.assert_refused(2, "enhance")
        self.assert_refused(2, "enhance", "a cat", "--size", "12")
        self.assert_refused(2, "enhance", "a cat", "--seed", "abc")

    def test_negative_prompts(self):
        self.refused("--negative", "a", "--negative", "b")

    def test_no_prompt(self):
        self.assert_refused(2, "generate", says="prompt")
        self.assert_refused(2, "generate", "-", says="prompt")
        self.assert_refused(2, "generate", stdin="\n  \n\r\n", says="prompt")
        (self.dir / "empty.txt").write_text("\n\n")
        self.assert_refused(2, "generate", "--prompt-file", "empty.txt", says="empty.txt")
        self.assert_refused(3, "generate", "--prompt-file", "missing.txt", says="missing.txt")
        self.assert_refused(3, "generate", "--prompt-file", ".")

    def test_messages_stay_on_one_line(self):
        """Whatever stands in an argument: no line break and no escape code of it reaches the terminal."""
        for text in ("a\nb", "a\rb", "\x1b[2Jb", "\x07"):
            for option in ("--seed", "--sampler", "--device", "--dtype", "--size", "-m", "--steps"):
                with self.subTest(option=option, text=text):
                    r = self.assert_refused(3 if option == "-m" else 2, "generate", "a", option, text)
                    self.assertNotIn("\x1b", r.stderr)
                    self.assertNotIn("\r", r.stderr)

    def test_invalid_utf8(self):
        bad = os.fsdecode(b"\xff\xfe")
        self.assert_refused(2, "generate", "a", "--sampler", bad)
        self.assert_refused(3, "generate", "a", "-m", bad)


class WrongOutput(CliTest):
    def test_names(self):
        (self.dir / "folder.png").mkdir()
        for name in ("", "x", "x.bmp", "x.png.txt", ".", "..", "folder.png", "{nothing}.png", "{seed.png", "seed}.png", "{index:x}.png"):
            with self.subTest(name=name):
                self.assert_refused(2, "generate", "a cat", *("--steps", "1"), "-o", name)

    def test_places(self):
        (self.dir / "file").write_text("x")
        for name in ("file/x.png", "file/sub/x.png", "/proc/x.png", "/proc/nothing/x.png", "/dev/null/x.png"):
            with self.subTest(name=name):
                self.assert_refused(1, "generate", "a cat", "--steps", "1", "-o", name, says="[output]")
        self.assert_refused(1, "generate", "a cat", "--steps", "1", "--dump-tensors", "file/dump")

    @unittest.skipIf(os.geteuid() == 0, "root may write everywhere")
    def test_read_only_directory(self):
        (self.dir / "locked").mkdir(mode=0o555)
        self.assert_refused(1, "generate", "a cat", "--steps", "1", "-o", "locked/x.png", says="[output]")

    def test_nothing_is_made_before_the_request_is_known_to_be_good(self):
        self.assert_refused(2, "generate", "a cat", "--steps", "-1", "-o", "new/x.png")
        self.assert_refused(3, "generate", "a cat", "-m", "missing", "-o", "new/x.png")
        self.assert_refused(2, "generate", "a cat", "-m", MINI, "--batch", "0", "-o", "new/x.png", "--dump-tensors", "dump")


if __name__ == "__main__":
    main()
