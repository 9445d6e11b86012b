"""What there is to compute on: the list, and modules of cards that cannot be loaded."""
import os
import pathlib

from harness import SMALL, CliTest, main


class DeviceList(CliTest):
    def test_the_cpu_is_always_there(self):
        for command in (("generate",), ("plan",), ("verify",), ("bench", "bandwidth")):
            text = self.run_ok(*command, "--device", "list", env=self.environment(DANQING_BACKEND_PATH="/nowhere")).stdout
            self.assertRegex(text, r"\Adevice cpu: .*\(CPU\), .* free\nauto takes cpu\n\Z")

    def test_an_unknown_name_lists_the_known(self):
        self.assert_refused(2, "generate", "a cat", *SMALL, "--device", "vulkan7", says='expected one of auto, cpu')

    def test_a_module_that_does_not_load_is_named_and_nothing_else_suffers(self):
        folder = self.dir / "modules"
        folder.mkdir()
        (folder / "libggml-hip.so").write_text("no library")
        os.symlink("/lib/x86_64-linux-gnu/libm.so.6", folder / "libggml-vulkan.so")  # a library, but no backend
        env = self.environment(DANQING_BACKEND_PATH=f"/nowhere:{folder}")
        text = self.run_ok("generate", "--device", "list", env=env).stdout
        self.assertIn("HIP (libggml-hip.so) is skipped: its driver's libraries are not there: ", text)
        if pathlib.Path("/lib/x86_64-linux-gnu/libm.so.6").exists():
            self.assertIn("Vulkan (libggml-vulkan.so) is skipped: it does not start", text)
        self.assertIn("auto takes cpu", text)
        self.generate("a cat", "-o", "x.png", *SMALL, env=env)
        self.assert_refused(2, "generate", "a cat", *SMALL, "--device", "hip0", says="expected one of", env=env)

    def test_without_a_card_there_is_nothing_to_tune(self):
        env = self.environment(DANQING_BACKEND_PATH="/nowhere")
        self.assertIn("no card to try", self.run_ok("tune", env=env).stdout)
        self.assertEqual(self.run_ok("tune", "--json", env=env).stdout.count('"auto": "cpu"'), 1)
        self.assert_refused(2, "tune", "--device", "cpu", env=env)
        self.assert_refused(2, "tune", "--device", "vulkan0", says="expected a card of this machine", env=env)
        self.assert_refused(2, "generate", "a cat", *SMALL, "--tune", "maybe", says="expected auto or off")


if __name__ == "__main__":
    main()
