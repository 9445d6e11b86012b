"""danqing pull and danqing models: whole models, choice of files, faults of servers, interrupted runs, quantising."""
import json
import random
import resource
import shutil
import signal
import socket
import struct
import subprocess
import time

from harness import ONE, SMALL, main, png_pixels
from hub_server import Hub, sha256
from pull_harness import NAME, SECRET, PullTest, pipeline, plain, tree

ONE_FILE = {"model.safetensors": plain(300_000)}


class PullWhole(PullTest):
    def test_a_pipeline_is_pulled_listed_drawn_with_and_removed(self):
        with Hub(pipeline()) as hub:
            report = self.report(hub, NAME)
            self.assertEqual((report["model"], report["complete"], report["commit"]), (NAME, True, hub.commit))
            self.assertEqual(report["pipeline"], "ErnieImagePipeline")
            skipped = {k["path"]: k["reason"] for k in report["skipped"]}
            self.assertEqual(set(skipped), {".gitattributes", "images/a.png", "transformer/model.bin",
                                            "transformer/convert.py"})
            self.assertEqual(self.final(), {k: v for k, v in hub.files.items() if k not in skipped})
            self.assertEqual(self.leftovers(), [])
            # everything was asked for at the commit, so that a push in between changes nothing
            self.assertTrue(all(f"/resolve/{hub.commit}/" in r["path"] for r in hub.asked("/resolve/")))
            hub.forget()
            again = self.report(hub, NAME)
            self.assertEqual({f["state"] for f in again["files"]}, {"present"})
            self.assertEqual((again["moved"], hub.bytes_asked(".safetensors")), (0, 0))
        line = self.command("list").stdout
        for word in (NAME, "complete", "ErnieImagePipeline", "huggingface tester/model@main (cccccccc)"):
            self.assertIn(word, line)
        self.assertIn("as they were pulled", self.command("verify").stdout)
        env = self.environment(DANQING_MODELS=str(self.models))
        self.run_ok("generate", "a", "-m", NAME, *SMALL, "-o", "a.png", env=env)
        self.assertIn("--yes", self.command("rm", NAME, code=2).stderr)
        self.command("rm", NAME, "--yes")
        self.assertEqual(list(self.models.iterdir()), [])
        self.assertIn("no models", self.command("list").stdout)

    def test_what_is_needed_first_comes_first(self):
        with Hub(pipeline()) as hub:
            self.pull(hub, NAME)
            order = [r["path"].split(hub.commit + "/")[1] for r in hub.asked("/resolve/")]
        weights = [p.split("/")[0] for p in order if p.endswith(".safetensors")]
        self.assertEqual(list(dict.fromkeys(weights)), ["text_encoder", "transformer", "vae", "pe"])
        first = next(i for i, p in enumerate(order) if p.endswith(".safetensors"))
        self.assertTrue(all(p.endswith(".safetensors") for p in order[first:]), order)

    def test_modelscope_and_listings_without_sizes(self):
        files = pipeline()
        with Hub(files) as hub:
            report = self.report(hub, NAME, "--hub", "modelscope")
            self.assertEqual((report["source"], report["revision"]), ("modelscope", "master"))
            wanted = self.final()
            self.assertIn("transformer/config.json", wanted)
        shutil.rmtree(self.models)
        with Hub(files) as hub:
            hub.blobs, hub.page = False, 3
            self.report(hub, NAME)
            self.assertEqual(self.final(), wanted)
            self.assertGreater(len(hub.asked("/tree/")), 3)

    def test_revisions_and_pages(self):
        with Hub(ONE_FILE) as hub:
            report = self.report(hub, f"{NAME}@v1.2")
            self.assertEqual(report["revision"], "v1.2")
            self.assertEqual(len(hub.asked(f"/api/models/{NAME}/revision/v1.2?")), 1)
            self.assertEqual(self.report(hub, f"{hub.url}/{NAME}")["repository"], NAME)
            for bad in ("model", "a/b/c", "../x", "a/..", "a/b@", "-x/y", "a/b@../c", "/etc/passwd", "a/b c"):
                self.refused(hub, 2, "expected", "--", bad)
            self.refused(hub, 2, "--hub", NAME, "--hub", "github")

    def test_plain_addresses(self):
        with Hub({"a.safetensors": plain(200_000), "b b.json": b"{}"}) as hub:
            digest = sha256(hub.files["a.safetensors"])
            urls = (f"{hub.url}/files/a.safetensors?sig=x#sha256={digest}", f"{hub.url}/files/b%20b.json")
            report = self.report(hub, *urls, "--name", "mine")
            self.assertEqual(self.final("mine"), hub.files)
            self.assertNotIn("sig", (self.models / "mine/.danqing/manifest.json").read_text())
            self.assertEqual(self.report(hub, *urls, "--name", "mine")["moved"], 0)
            self.refused(hub, 3, "hash", f"{hub.url}/files/a.safetensors#sha256={'0' * 64}", "--name", "other")
            self.assertEqual(self.final("other"), {})
            self.refused(hub, 2, "sha256", f"{hub.url}/files/a.safetensors#sha256=12")
            self.refused(hub, 2, "http", "ftp://127.0.0.1/a.safetensors")
            self.refused(hub, 2, "--name", urls[1], "--name", "../x")
            hub.ranges = False
            hub.fault("a.safetensors", None, chunked=True)  # and no length: one stream
            self.report(hub, f"{hub.url}/files/a.safetensors", "--name", "unmeasured")
            self.assertEqual(self.final("unmeasured"), {"a.safetensors": hub.files["a.safetensors"]})

    def test_choice_of_files(self):
        files = {"x-Q4_K_M.gguf": b"GGUF4", "x-Q8_0.gguf": b"GGUF8", "config.json": b"{}", "README.md": b"r"}
        with Hub(files) as hub:
            self.refused(hub, 2, "choose with --include", NAME)
            self.report(hub, NAME, "--include", "*Q4_K*", "--include", "*.json")
            self.assertEqual(sorted(self.final()), ["config.json", "x-Q4_K_M.gguf"])
            self.report(hub, NAME, "--exclude", "*Q4*")  # another choice replaces the first
            self.assertEqual(sorted(self.final()), ["README.md", "config.json", "x-Q8_0.gguf"])
            self.refused(hub, 2, "none of the 4", NAME, "--include", "*.onnx")
        files = {f"unet/{n}": n.encode() for n in ("m.safetensors", "m.fp16.safetensors", "config.json")}
        with Hub(files) as hub:
            self.report(hub, NAME, "--name", "plain")
            self.assertEqual(sorted(self.final("plain")), ["unet/config.json", "unet/m.safetensors"])
            self.report(hub, NAME, "--name", "half", "--variant", "fp16")
            self.assertEqual(sorted(self.final("half")), ["unet/config.json", "unet/m.fp16.safetensors"])
            self.refused(hub, 2, "--variant", NAME, "--name", "none", "--variant", "int8")
        with Hub({"model_index.json": b'{"_class_name": "OtherPipeline"}', **ONE_FILE}) as hub:
            self.refused(hub, 3, "OtherPipeline", NAME, "--name", "third")

    def test_dry_run_writes_nothing(self):
        with Hub(pipeline()) as hub:
            text = self.pull(hub, NAME, "--dry-run").stdout
            self.assertIn("text encoder:", text)
            self.assertIn("another format of weights", text)
            self.assertFalse(self.models.exists())
            self.assertEqual([f["state"] for f in self.report(hub, NAME, "--dry-run")["files"]][0], "planned")


class PullFaults(PullTest):
    def check(self, hub, *args):
        self.report(hub, NAME, *args)
        self.assertEqual(self.final(), hub.files)
        self.assertEqual(self.leftovers(), [])

    def test_what_passes_is_tried_again(self):
        for what in ({"status": 500}, {"status": 503, "headers": {"Retry-After": "1"}}, {"status": 502}, {"drop": 1000},
                     {"drop": 0}, {"length": 100}, {"length": 400_000}, {"shift": 7}, {"total": 5}, {"status": 408}):
            with self.subTest(what), Hub(ONE_FILE) as hub:
                hub.fault("/resolve/", 2, **what)
                self.check(hub, "--segment", "100K")
                if what != {"length": 400_000}:  # there all bytes came nevertheless
                    self.assertGreater(len(hub.asked("/resolve/")), 3)
            shutil.rmtree(self.models)

    def test_retry_after_is_waited_for(self):
        with Hub(ONE_FILE) as hub:
            hub.fault("/resolve/", 1, status=429, headers={"Retry-After": "2"})
            start = time.monotonic()
            self.check(hub)
            self.assertGreater(time.monotonic() - start, 1.9)
            shutil.rmtree(self.models)
            hub.fault("/resolve/", 1, status=429, headers={"Retry-After": "86400"})
            self.refused(hub, 1, "86400 s", NAME)

    def test_what_stays_is_given_up(self):
        with Hub(ONE_FILE) as hub:
            hub.fault("/resolve/", None, status=500)
            self.refused(hub, 1, "given up after 3 tries", NAME, "--retries", "2")
            self.assertEqual(len(hub.asked("/resolve/")), 3)
        with Hub(ONE_FILE) as hub:
            hub.fault("/api/", None, status=503)
            self.refused(hub, 1, "503", NAME, "--retries", "1")
        with socket.socket() as nobody:  # bound, and nobody listens
            nobody.bind(("127.0.0.1", 0))
            hub = type("Hub", (), {"url": f"http://127.0.0.1:{nobody.getsockname()[1]}", "files": {}})
            self.refused(hub, 1, "given up", NAME, "--retries", "1")

    def test_a_connection_that_says_nothing_is_left(self):
        with Hub(ONE_FILE) as hub:
            hub.fault("/resolve/", 1, wait=8)
            start = time.monotonic()
            self.check(hub, "--stall", "1")
            self.assertLess(time.monotonic() - start, 7)

    def test_statuses_that_are_final(self):
        for status, says in ((401, "set HF_TOKEN"), (403, "gated"), (404, "no such model"), (418, "418")):
            for where in ("/api/", "/resolve/"):
                with self.subTest((status, where)), Hub(ONE_FILE) as hub:
                    hub.fault(where, None, status=status)
                    self.refused(hub, 3, says, NAME)
                    self.assertEqual(len(hub.asked(where)), 1)

    def test_web_pages_in_place_of_files(self):
        for where in ("/api/", "/resolve/"):
            for kind in ("text/html", "application/octet-stream"):
                with self.subTest((where, kind)), Hub(ONE_FILE) as hub:
                    hub.fault(where, None, html=b"\n<!DOCTYPE html><html>sign in" + b" " * 300_000, type=kind)
                    self.refused(hub, 3, "", NAME, "--retries", "0")
                    self.assertEqual(self.final(), {})

    def test_redirects(self):
        with Hub(ONE_FILE) as hub:
            hub.fault("/resolve/", 3, redirect="/files/model.safetensors")
            self.check(hub, "--segment", "100K")
            shutil.rmtree(self.models)
            hub.fault("/resolve/", None, redirect=f"/{NAME}/resolve/x/round")
            self.refused(hub, 3, "redirects", NAME)
            hub.rules.clear()
            hub.fault("/resolve/", None, redirect="file:///etc/passwd")
            self.refused(hub, 3, "", NAME)

    def test_hashes_and_lengths(self):
        for path in ("model.safetensors", "config.json"):  # SHA-256 and git's SHA-1
            with self.subTest(path), Hub({**ONE_FILE, "config.json": b'{"a": 1}'}) as hub:
                hub.fault("/" + path, None, corrupt=True)
                self.refused(hub, 3, "expected the hash", NAME)
                self.assertEqual([p for p in self.leftovers() if path in p], [])
                hub.rules.clear()
                self.check(hub)
            shutil.rmtree(self.models)
        with Hub(ONE_FILE) as hub:
            hub.wrong["model.safetensors"] = {"size": 300_001}
            self.refused(hub, 3, "expected 300001 bytes", NAME, "--retries", "1")

    def test_paths_of_the_hub_are_not_trusted(self):
        for path in ("../evil.json", "/etc/evil.json", "a/../../evil.json", "a\\b.json", "c:evil.json", "a//b.json", "",
                     "x\n.json", ".danqing/manifest.json", "x.part", "x" * 300 + ".json"):
            with self.subTest(path), Hub(ONE_FILE) as hub:
                hub.extra = [{"rfilename": path, "size": 2}]
                self.refused(hub, 3, "is not taken", NAME)
        with Hub(ONE_FILE) as hub:
            hub.extra = [{"rfilename": "model.safetensors", "size": 2}]
            self.refused(hub, 3, "twice", NAME)
            hub.extra = [{"rfilename": "model.safetensors/x.json", "size": 2}]
            self.refused(hub, 3, "as a folder", NAME)
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), [])

    def test_answers_that_are_no_listing(self):
        for body in (b"", b"[]", b"{", b"null", b'{"siblings": 3}', b'{"siblings": [3]}', b"[" * 100_000, b"\xff\xfe",
                     b'{"siblings": [{"rfilename": 3, "size": -1}]}'):
            with self.subTest(body[:20]), Hub(ONE_FILE) as hub:
                hub.fault("/api/", None, html=body, type="application/json")
                self.refused(hub, 3, "", NAME)

    def test_tokens_stay_with_their_hub(self):
        with Hub(ONE_FILE) as hub:
            hub.fault("/resolve/", None, redirect=f"{hub.other}/files/model.safetensors")
            r = self.pull(hub, NAME, env={"HF_TOKEN": SECRET, "MODELSCOPE_API_TOKEN": "x"})
            self.assertEqual(self.final(), hub.files)
            for asked in hub.requests:
                own = asked["headers"]["host"].startswith("127.0.0.1")
                self.assertEqual(asked["headers"].get("authorization"), f"Bearer {SECRET}" if own else None)
                self.assertNotIn("cookie", asked["headers"])
            self.assertTrue(any(a["headers"]["host"].startswith("localhost") for a in hub.requests))
            self.assertNotIn(SECRET.encode(), b"".join(tree(self.dir).values()))
            hub.fault("/api/", None, status=403)
            self.refused(hub, 3, "the token may not read this", NAME, env={"HF_TOKEN": SECRET})
            self.refused(hub, 2, "token", NAME, env={"HF_TOKEN": f"a\r\nX: {SECRET}"})
        with Hub(ONE_FILE) as hub:
            self.pull(hub, NAME, "--hub", "modelscope", "--name", "ms", env={"HF_TOKEN": "x", "MODELSCOPE_API_TOKEN": SECRET})
            self.assertTrue(all(a["headers"]["authorization"] == f"Bearer {SECRET}" for a in hub.requests))

    def test_proxies_are_used(self):
        with Hub(ONE_FILE) as hub:
            env = {"http_proxy": hub.url, "no_proxy": ""}
            other = type("Hub", (), {"url": "http://hub.invalid", "files": hub.files})
            self.report(other, NAME, env=env)  # nobody has that name: only the proxy can have answered
            self.assertEqual(self.final(), hub.files)
            self.assertTrue(hub.requests[0]["path"].startswith("http://hub.invalid/api/models/"), hub.requests)

    def test_a_disk_that_is_too_small(self):
        with Hub(ONE_FILE) as hub:
            hub.wrong["model.safetensors"] = {"size": 1 << 60}
            r = self.refused(hub, 1, "are missing", NAME)
            self.assertRegex(r.stderr, r"expected [0-9.]+ TiB free at .*/models/tester/model, got ")
            self.assertEqual(hub.bytes_asked("model.safetensors"), 0)

    def test_a_disk_that_fills_up_on_the_way(self):
        with Hub(ONE_FILE) as hub:
            limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))
            r = self.danqing("pull", NAME, env=self.settings(hub), preexec_fn=limit)
            self.assertEqual(r.returncode, 1, r.stderr)
            self.assertIn("[pull] cannot write", r.stderr)
            self.assertEqual(self.final(), {})
            self.check(hub)

    def test_two_at_once(self):
        with Hub(ONE_FILE) as hub:
            hub.fault("/resolve/", None, slow=100_000)
            first = self.start("pull", NAME, env=self.settings(hub))
            while not hub.asked("/resolve/"):
                time.sleep(0.02)
            self.refused(hub, 1, "another danqing", NAME)
            self.command("rm", NAME, "--yes", code=1)
            self.assertEqual(first.wait(60), 0, first.communicate())
            self.assertEqual(self.final(), hub.files)

    def test_the_rate_is_limited(self):
        with Hub(ONE_FILE) as hub:
            start = time.monotonic()
            self.report(hub, NAME, "--limit-rate", "150K", "--segment", "100K")
            self.assertGreater(time.monotonic() - start, 1.5)
            self.refused(hub, 2, "--limit-rate", NAME, "--limit-rate", "fast")


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


class PulledModels(PullTest):
    def test_verify_names_the_damaged_file(self):
        with Hub({**ONE_FILE, "config.json": b"{}", "a.json": b"1"}) as hub:
            self.report(hub, NAME)
            folder = self.models / NAME
            with open(folder / "model.safetensors", "r+b") as f:
                f.write(b"x")
            (folder / "a.json").unlink()
            out = self.command("verify", code=3).stdout
            self.assertIn("model.safetensors: damaged", out)
            self.assertIn("a.json: missing", out)
            self.assertNotIn("config.json", out)
            damaged = json.loads(self.command("verify", NAME, "--json", code=3).stdout)[0]["damaged"]
            self.assertEqual(sorted(d["path"] for d in damaged), ["a.json", "model.safetensors"])
            self.report(hub, NAME, "--verify")
            self.command("verify")
            self.assertEqual(self.final(), hub.files)

    def test_rm_stays_inside(self):
        with Hub(ONE_FILE) as hub:
            self.report(hub, NAME)
        outside = self.dir / "outside"
        outside.mkdir()
        (outside / "model.safetensors").write_bytes(b"mine")
        (self.models / "link").symlink_to(outside)
        (self.models / "folder/deep").mkdir(parents=True)
        for name, code in (("../outside", 2), (str(outside), 2), ("link", 2), (".", 2), ("tester", 3), ("nothing", 3),
                           ("folder", 3), ("tester/../tester/model", 2)):
            self.command("rm", "--yes", "--", name, code=code)
        self.command("rm", "--yes", NAME, "nothing", code=3)  # nothing is gone when one name is wrong
        self.assertEqual(self.final(), ONE_FILE)
        self.assertEqual((outside / "model.safetensors").read_bytes(), b"mine")
        self.command("rm", "--yes", NAME)
        self.assertFalse((self.models / "tester").exists())

    def test_models_put_there_by_hand_and_broken_manifests(self):
        (self.models / "hand").mkdir(parents=True)
        (self.models / "hand/a.safetensors").write_bytes(b"x")
        bad = self.models / "bad/.danqing"
        bad.mkdir(parents=True)
        for text in ("", "{", "[]", '{"format": 2, "files": []}', '{"format": 1}', '{"format": 1, "files": [3]}',
                     '{"format": 1, "files": [{"path": "../../outside"}]}'):
            (bad / "manifest.json").write_text(text)
            models = {m["name"]: m for m in json.loads(self.command("list", "--json").stdout)}
            self.assertEqual(models["hand"]["from"], "by hand")
            self.assertFalse(models["bad"]["complete"])
            self.command("verify", "bad", code=3)
        self.command("verify", "hand", code=3)


if __name__ == "__main__":
    main()
