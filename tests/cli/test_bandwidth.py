"""danqing bench bandwidth as a process."""
import json

from harness import *

SMALL_COPY = ("--bytes", "4MiB", "--repeat", "1", "--device", "cpu")


class Bandwidth(CliTest):
    def test_text(self):
        (self.dir / "file").write_bytes(b"x" * (5 << 20))
        out = self.run_ok("bench", "bandwidth", *SMALL_COPY, "--file", "file").stdout
        self.assertRegex(out, r"memcpy.* GB/s")
        self.assertRegex(out, r"disk read .* GB/s .*of file")
        self.assertRegex(out, r"Streaming: each GB of weights takes [0-9.]+ s")
        self.assertNotIn("device", out.split("\n", 1)[1])  # nothing about cards on the processor

    def test_json_with_a_model(self):
        j = json.loads(self.run_ok("bench", "bandwidth", *SMALL_COPY, "-m", MINI, "--json").stdout)
        self.assertGreater(j["pass_bytes"], 1 << 20)
        rows = {r["id"]: r for r in j["results"]}
        self.assertGreater(rows["disk read"]["bytes_per_second"], 0)
        self.assertIn("of weights a pass", j["streaming"])

    def test_wrong_words(self):
        self.assert_refused(2, "bench", "bandwidth", "--bytes", "1", says="--bytes")
        self.assert_refused(2, "bench", "bandwidth", "--bytes", "")
        self.assert_refused(2, "bench", "bandwidth", "--repeat", "0")
        self.assert_refused(2, "bench", "bandwidth", "--stage", "vae")
        self.assert_refused(3, "bench", "bandwidth", *SMALL_COPY, "-m", "nowhere")

    def test_a_missing_file_is_a_line_of_its_own(self):
        r = self.run_ok("bench", "bandwidth", *SMALL_COPY, "--file", "nowhere")
        self.assertRegex(r.stdout, r"disk read +- +\[bandwidth\] expected to read nowhere")


if __name__ == "__main__":
    main()
