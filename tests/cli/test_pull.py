"""danqing pull and danqing models: whole models, choice of files, order, the folder of models."""
import json
import shutil

from harness import SMALL, main
from hub_server import Hub, sha256
from pull_harness import NAME, ONE_FILE, PullTest, pipeline, plain


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
            self.assertIn("--variant", self.pull(hub, NAME, "--name", "none", "--variant", "int8", code=2).stderr)
        with Hub({"model_index.json": b'{"_class_name": "OtherPipeline"}', **ONE_FILE}) as hub:
            self.assertIn("OtherPipeline", self.pull(hub, NAME, "--name", "third", code=3).stderr)

    def test_dry_run_writes_nothing(self):
        with Hub(pipeline()) as hub:
            text = self.pull(hub, NAME, "--dry-run").stdout
            self.assertIn("text encoder:", text)
            self.assertIn("another format of weights", text)
            self.assertFalse(self.models.exists())
            self.assertEqual([f["state"] for f in self.report(hub, NAME, "--dry-run")["files"]][0], "planned")


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
