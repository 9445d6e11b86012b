"""danqing pull that is interrupted, and with --quant: kill -9 at random points, changed files, damaged parts."""
import json
import random
import shutil
import signal
import struct
import subprocess
import time

from harness import ONE, SMALL, main, png_pixels
from hub_server import Hub
from pull_harness import NAME, ONE_FILE, PullTest, pipeline, plain


class PullInterrupted(PullTest):
    def done_bytes(self, name):
        """What the journals say is there."""
        total = 0
        for p in (self.models / name).rglob("*.part.journal"):
            total += sum(int(line[:20]) for line in p.read_text().splitlines()[1:])
        return total

    def test_kill_at_random_points_and_only_what_is_missing_comes_again(self):
        size, name, rng = 4_000_000, "model.safetensors", random.Random(5)
        with Hub({name: plain(size), "config.json": b"{}"}) as hub:
            hub.fault("/" + name, None, slow=1_500_000)
            kills = resumed = 0
            for i in range(40):
                hub.forget()
                before = self.done_bytes(NAME) if self.models.exists() else 0
                p = self.start("pull", NAME, "--connections", "3", "--segment", "300K", env=self.settings(hub),
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                while p.poll() is None and not hub.asked("/" + name):
                    time.sleep(0.01)
                time.sleep(rng.random() * 0.15)
                if p.poll() is None:
                    p.kill()
                    kills += 1
                p.wait()
                self.assertIn(self.final().get(name), (None, hub.files[name]))
                self.assertIn(p.returncode, (0, -9))
                if p.returncode == 0:
                    break
                if before:
                    resumed += 1
                    # nobody asks for bytes that are there
                    self.assertLessEqual(hub.bytes_asked("/" + name), size - before)
            self.assertGreaterEqual(kills, 10)
            self.assertGreater(resumed, 5)
            hub.rules.clear()
            hub.forget()
            before = self.done_bytes(NAME)
            self.report(hub, NAME)
            if p.returncode != 0:
                self.assertEqual(hub.bytes_asked("/" + name), size - before)
            self.assertEqual(self.final(), hub.files)
            self.assertEqual(self.leftovers(), [])

    def test_ctrl_c_keeps_what_came(self):
        with Hub({"model.safetensors": plain(2_000_000)}) as hub:
            hub.fault("/resolve/", None, slow=1_000_000)
            p = self.start("pull", NAME, env=self.settings(hub))
            while not self.models.exists() or self.done_bytes(NAME) < 200_000:
                time.sleep(0.02)
            p.send_signal(signal.SIGINT)
            out, err = p.communicate(timeout=20)
            self.assertEqual(p.returncode, 130, err)
            self.assertIn("goes on from there", err)
            self.assertIn("files missing", self.command("list").stdout)
            refused = self.danqing("generate", "x", "-m", NAME, env=self.settings(hub))
            self.assertEqual(refused.returncode, 3)
            self.assertIn("danqing pull", refused.stderr)
            hub.rules.clear()
            hub.forget()
            before = self.done_bytes(NAME)
            self.report(hub, NAME)
            self.assertEqual(hub.bytes_asked("/resolve/"), 2_000_000 - before)

    def cut_off(self, hub, *args):
        """A run that ends in the middle."""
        hub.fault("model.safetensors", None, drop=150_000)
        self.pull(hub, *args, "--retries", "0", code=1)
        hub.rules.clear()
        hub.forget()

    def test_versions_are_not_mixed(self):
        url = lambda hub: (f"{hub.url}/files/model.safetensors", "--name", NAME)
        with Hub(dict(ONE_FILE)) as hub:  # no hash: only ETag and length tell
            self.cut_off(hub, *url(hub))
            self.assertGreater(self.done_bytes(NAME), 100_000)
            hub.files["model.safetensors"] = plain(300_000, seed=2)
            self.report(hub, *url(hub))
            self.assertEqual(self.final(), hub.files)
        shutil.rmtree(self.models)
        with Hub(dict(ONE_FILE)) as hub:  # changes under way: If-Range notices
            hub.fault("model.safetensors", 1)
            hub.fault("model.safetensors", 1, drop=100_000)
            hub.fault("model.safetensors", 1, etag='"another"')
            self.report(hub, *url(hub), "--connections", "1")
            self.assertEqual(self.final(), hub.files)

    def test_416_begins_anew(self):
        with Hub(dict(ONE_FILE)) as hub:
            self.cut_off(hub, NAME)
            hub.fault("model.safetensors", 1, status=416)
            self.report(hub, NAME)
            self.assertEqual(self.final(), hub.files)

    def test_servers_without_ranges(self):
        with Hub(dict(ONE_FILE)) as hub:
            hub.ranges = False
            hub.fault("model.safetensors", 1, drop=1000)
            self.report(hub, NAME, "--segment", "50K")
            self.assertEqual(self.final(), hub.files)

    def test_what_an_earlier_run_left_is_damaged(self):
        with Hub(dict(ONE_FILE)) as hub:
            self.cut_off(hub, NAME)
            part = self.models / NAME / "model.safetensors.part"
            with open(part, "r+b") as f:
                f.seek(1000)
                f.write(b"damage")
            self.report(hub, NAME)
            self.assertEqual(self.final(), hub.files)
            for garbage in (b"", b"x", b'{"size": 1}\n', b"\n\n\n" * 1000):
                shutil.rmtree(self.models)
                self.cut_off(hub, NAME)
                part.with_name(part.name + ".journal").write_bytes(garbage)
                self.report(hub, NAME)
                self.assertEqual(self.final(), hub.files)

    def test_an_update_keeps_the_old_version_until_the_new_one_is_whole(self):
        old = {"a.json": b"1", "b.json": b"2", "model.safetensors": plain(300_000)}
        with Hub(old) as hub:
            self.report(hub, NAME)
            hub.files = {"a.json": b"one", "c.json": b"3", "model.safetensors": plain(300_000, seed=9)}
            hub.commit = "d" * 40
            hub.fault("model.safetensors", None, drop=1000)
            self.pull(hub, NAME, "--retries", "0", code=1)
            self.assertEqual(self.final(), old)
            self.assertIn("complete", self.command("list").stdout)
            hub.rules.clear()
            self.report(hub, NAME)
            self.assertEqual(self.final(), hub.files)
            self.assertIn("dddddddd", self.command("list").stdout)


class PullQuantised(PullTest):
    def shards(self):
        """The pipeline with its denoiser in two shards, as large models come."""
        files = pipeline()
        name = "transformer/diffusion_pytorch_model.safetensors"
        data = files.pop(name)
        length = struct.unpack("<Q", data[:8])[0]
        header, body = json.loads(data[8:8 + length]), data[8 + length:]
        header.pop("__metadata__", None)
        tensors, weight_map = sorted(header), {}
        for i, names in enumerate((tensors[:len(tensors) // 2], tensors[len(tensors) // 2:])):
            out, blob = {}, b""
            shard = f"diffusion_pytorch_model-0000{i + 1}-of-00002.safetensors"
            for t in names:
                begin, end = header[t]["data_offsets"]
                out[t] = {**header[t], "data_offsets": [len(blob), len(blob) + end - begin]}
                blob += body[begin:end]
                weight_map[t] = shard
            text = json.dumps(out).encode()
            text += b" " * (-len(text) % 8)
            files["transformer/" + shard] = struct.pack("<Q", len(text)) + text + blob
        files[name + ".index.json"] = json.dumps({"metadata": {}, "weight_map": weight_map}).encode()
        return files

    def expected(self, hub):
        """What pull and convert one after the other give."""
        self.report(hub, NAME, "--name", "whole")
        self.run_ok("convert", self.models / "whole", self.models / "converted", "--type", "q8_0", *ONE, "--quiet")
        return self.final("converted")

    def same_values(self, got, expected):
        """The order of tensors may differ from convert's; names, types and bytes may not."""
        self.assertEqual(sorted(got), sorted(expected))
        for path in got:
            if path.endswith(".gguf"):
                a, b = (json.loads(self.run_ok("inspect", self.models / m / path, "--tensors", "--json").stdout)
                        for m in (NAME, "converted"))
                key = lambda t: t["name"]
                self.assertEqual(sorted(a["components"][0]["tensor_list"], key=key),
                                 sorted(b["components"][0]["tensor_list"], key=key), path)
                self.assertEqual(len(got[path]), len(expected[path]))

    def test_the_same_as_converting_afterwards(self):
        with Hub(self.shards()) as hub:
            expected = self.expected(hub)
            report = self.report(hub, NAME, "--quant", "q8_0", *ONE, "--segment", "64K")
            got = self.final()
            states = {f["path"]: f["state"] for f in report["files"]}
            self.assertEqual(states["transformer/diffusion_pytorch_model.gguf"], "quantised")
            self.assertEqual(states["vae/diffusion_pytorch_model.safetensors"], "fetched")
            self.same_values(got, {k: v for k, v in expected.items() if not k.endswith(".index.json")})
            self.assertEqual(report["pipeline"], "ErnieImagePipeline")
            self.assertIn("q8_0", self.command("list").stdout)
            self.command("verify", NAME)
            hub.forget()
            self.assertEqual(self.report(hub, NAME, "--quant", "q8_0", *ONE)["moved"], 0)
            self.assertEqual(hub.bytes_asked("diffusion_pytorch_model-0"), 0)
            # the same pictures as the model that was converted afterwards
            for model in (NAME, "converted"):
                self.run_ok("generate", "a", "--seed", 3, "-m", self.models / model, *SMALL, "-o", f"{model.split('/')[0]}.png")
            self.assertTrue(png_pixels(self.dir / "tester.png") == png_pixels(self.dir / "converted.png"))

    def test_kill_in_the_middle_and_the_whole_never_lies_on_the_disk(self):
        rng = random.Random(8)
        with Hub(self.shards()) as hub:
            expected = self.expected(hub)
            whole = sum(len(v) for k, v in hub.files.items() if k.startswith("transformer/") and k.endswith(".safetensors"))
            hub.fault("diffusion_pytorch_model-0", None, slow=400_000)
            kills = 0
            for _ in range(60):
                p = self.start("pull", NAME, "--quant", "q8_0", *ONE, "--segment", "16K", env=self.settings(hub),
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                hub.forget()
                while p.poll() is None and not hub.asked("diffusion_pytorch_model-0"):
                    time.sleep(0.01)
                end = time.monotonic() + rng.random() * 0.4
                while p.poll() is None and time.monotonic() < end:
                    folder = self.models / NAME / "transformer"
                    there = sum(f.stat().st_blocks * 512 for f in folder.glob("*") if f.exists()) if folder.exists() else 0
                    self.assertLess(there, whole)
                    time.sleep(0.02)
                if p.poll() is not None:
                    break
                p.kill()
                p.wait()
                kills += 1
            self.assertGreaterEqual(kills, 3)
            hub.rules.clear()
            self.report(hub, NAME, "--quant", "q8_0", *ONE)
            self.same_values(self.final(), {k: v for k, v in expected.items() if not k.endswith(".index.json")})
            self.assertEqual(self.leftovers(), [])

    def test_faults(self):
        with Hub(self.shards()) as hub:
            hub.fault("-00002-of", None, corrupt=True)
            r = self.pull(hub, NAME, "--quant", "q8_0", *ONE, code=3)
            self.assertNotIn("transformer/diffusion_pytorch_model.gguf", self.final())
            hub.rules.clear()
            hub.fault("-00002-of", 3, drop=5000)
            self.report(hub, NAME, "--quant", "q8_0", *ONE)
            self.assertIn("transformer/diffusion_pytorch_model.gguf", self.final())
            self.refused_type(hub)
            hub.ranges = False
            r = self.pull(hub, NAME, "--quant", "q4_K", *ONE, "--name", "other", code=1)
            self.assertIn("parts of files", r.stderr)
        with Hub({"config.json": b"{}"}) as hub:
            self.assertIn("to quantise", self.pull(hub, NAME, "--name", "n", "--quant", "q4_K", code=2).stderr)
        with Hub({"m.safetensors": plain(5000)}) as hub:
            self.assertIn("safetensors", self.pull(hub, NAME, "--name", "n", "--quant", "q4_K", code=3).stderr)

    def refused_type(self, hub):
        r = self.pull(hub, NAME, "--quant", "q99", code=2)
        self.assertIn("--quant", r.stderr)


if __name__ == "__main__":
    main()
