"""New weights for a running server: jobs keep their place, the running one ends with the old ones, bad files change nothing."""
import hashlib
import random
import struct

from harness import *

WEIGHTS = "vae/diffusion_pytorch_model.safetensors"


class Reload(OwnServerTest):
    def setUp(self):
        super().setUp()
        self.model = self.dir / "work"
        copy_model(MINI, self.model)
        self.old = (self.model / WEIGHTS).read_bytes()

    def replace(self, data):
        """As an update does: a new file takes the name of the old one."""
        part = self.model / (WEIGHTS + ".part")
        part.write_bytes(data)
        os.replace(part, self.model / WEIGHTS)

    def changed(self, value=None, every=False):
        """The same file with other numbers in it: those of the last layer exchanged, or `value`; or in every layer."""
        length = 8 + struct.unpack("<Q", self.old[:8])[0]
        header = json.loads(self.old[8:length])
        data = bytearray(self.old[length:])
        for name, t in header.items():
            if name == "__metadata__" or not (name.startswith("decoder.conv_out") or every):
                continue
            a, b = t["data_offsets"]
            if value:
                data[a:b] = (value * (b - a))[:b - a]
            else:
                size = {"F32": 4, "BF16": 2, "F16": 2}[t["dtype"]]
                items = [bytes(data[i:i + size]) for i in range(a, b, size)]
                random.Random(3).shuffle(items)
                data[a:b] = b"".join(items)
        return self.old[:length] + bytes(data)


    def picture(self, s, job):
        j = s.finished(job)
        self.assertEqual(j["status"], "done", j)
        return hashlib.sha256(pixels(s.get(j["images"][0]["url"]).body)).hexdigest()

    def test_running_jobs_end_with_the_old_weights_and_queued_ones_keep_their_place(self):
        s = self.serve("-m", f"work={self.model}")
        long = {**LONG, "model": "work", "seed": 5, "num_inference_steps": 60}
        old_long = self.picture(s, s.submit(**long))
        old = self.picture(s, s.submit(model="work", seed=5))
        running = s.submit(**long)
        queued = [s.submit(model="work", seed=5), s.submit(model="work", seed=5)]
        until(lambda: s.job(running)["status"] == "running")
        self.replace(self.changed())
        r = s.post("/v1/admin/models/work:reload", {})
        self.assertEqual(r.status, 200, r.body)
        self.assertEqual((r.json()["model"], r.json()["loaded"]), ("work", True))
        self.assertEqual(self.picture(s, running), old_long)
        new = [self.picture(s, j) for j in queued]
        self.assertEqual(new[0], new[1])
        self.assertNotEqual(new[0], old)
        ends = [s.job(j)["finished"] for j in (running, *queued)]
        self.assertEqual(ends, sorted(ends))
        self.replace(self.old)
        s.process.send_signal(signal.SIGHUP)
        until(lambda: self.picture(s, s.submit(model="work", seed=5)) == old, 60)

    def test_bad_files_leave_the_old_weights_serving(self):
        s = self.serve("-m", f"work={self.model}")
        old = self.picture(s, s.submit(model="work", seed=5))
        for data, says in ((self.old[:-100], "download is incomplete"), (b"", ""), (b"<html>", ""),
                           (self.changed(b"\xff\xff\xff\x7f", every=True), "finite"),
                           (self.changed(b"\xff\xff\xff\x7f"), "finite")):
            self.replace(data)
            r = s.post("/v1/admin/models/work:reload", {})
            self.assertEqual(r.status, 422, r.body)
            message = r.json()["error"]["message"]
            self.assertIn("the old weights keep serving", message)
            self.assertIn(says, message)
            self.assertEqual(self.picture(s, s.submit(model="work", seed=5)), old)
        s.process.send_signal(signal.SIGHUP)
        until(lambda: s.log().count("model-not-reloaded") >= 6)
        self.assertEqual(self.picture(s, s.submit(model="work", seed=5)), old)
        self.assertEqual(s.post("/v1/admin/models/nothing:reload", {}).status, 404)
        self.assertEqual(s.get("/v1/admin/models/work:reload").status, 405)
        self.assertEqual(s.get("/health/ready").status, 200)

    def test_a_half_updated_or_damaged_pull_is_not_taken(self):
        s = self.serve("-m", f"work={self.model}")
        folder = self.model / ".danqing"
        folder.mkdir()
        data = (self.model / WEIGHTS).read_bytes()
        manifest = {"format": 1, "complete": False, "commit": "e" * 40,
                    "files": [{"path": WEIGHTS, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}]}
        for change, says in (({}, "not finished"), ({"complete": True}, None), ({"files": [{**manifest["files"][0], "sha256": "0" * 64}]}, "damaged")):
            manifest.update(change)
            (folder / "manifest.json").write_text(json.dumps(manifest))
            r = s.post("/v1/admin/models/work:reload", {})
            self.assertEqual(r.status, 422 if says else 200, r.body)
            if says:
                self.assertIn(says, r.json()["error"]["message"])
            else:
                self.assertEqual(r.json()["commit"], "e" * 40)

    def test_without_room_for_both_the_new_ones_load_with_the_next_job(self):
        s = self.serve("-m", f"work={self.model}", "--memory", "48MiB", wait=False)
        old = self.picture(s, s.submit(model="work", seed=5))
        self.replace(self.changed())
        r = s.post("/v1/admin/models/work:reload", {})
        self.assertEqual(r.status, 200, r.body)
        self.assertFalse(r.json()["loaded"])
        self.assertNotEqual(self.picture(s, s.submit(model="work", seed=5)), old)

    def test_only_an_admin_may(self):
        keys = self.dir / "keys"
        secret = {}
        for name, more in (("anna", ()), ("boss", ("--admin",))):
            p = subprocess.run([PROGRAM, "serve", "--new-key", name, *more], capture_output=True, text=True, check=True)
            secret[name] = p.stderr.split(": ")[1].strip()
            with open(keys, "a", encoding="utf-8") as f:
                f.write(p.stdout)
        s = self.serve("--api-key-file", keys, "-m", f"work={self.model}")
        path = "/v1/admin/models/work:reload"
        self.assertEqual([s.post(path, {}).status, s.post(path, {}, key=secret["anna"]).status,
                          s.post(path, {}, key=secret["boss"]).status], [401, 403, 200])


def copy_model(source, target):
    for p in source.rglob("*"):
        if p.is_file() and "golden" not in p.parts:
            to = target / p.relative_to(source)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(p.read_bytes())


if __name__ == "__main__":
    main()
