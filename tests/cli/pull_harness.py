"""Runs danqing pull and danqing models against a hub on loopback (hub_server.py)."""
import json
import random

from harness import CliTest, TINY

QUICK = ("--retry-wait", "0.02")
NAME = "tester/model"
SECRET = "hf_SecretOfTheTest0123456789"


def tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def pipeline():
    """The small random pipeline of the other tests, with what a hub has beside it."""
    parts = ("model_index.json", "pe", "pe_tokenizer", "scheduler", "text_encoder", "tokenizer", "transformer", "vae")
    files = {k: v for k, v in tree(TINY).items() if k.split("/")[0] in parts}
    return {**files, "README.md": b"# model\n", ".gitattributes": b"*.bin lfs\n", "images/a.png": b"png",
            "transformer/model.bin": b"pickle", "transformer/convert.py": b"code", "LICENSE": b"Apache\n"}


def plain(size, seed=1):
    return random.Random(seed).randbytes(size)


ONE_FILE = {"model.safetensors": plain(300_000)}


class PullTest(CliTest):
    @property
    def models(self):
        return self.dir / "models"

    def settings(self, hub, **env):
        return self.environment(HF_ENDPOINT=hub.url, MODELSCOPE_ENDPOINT=hub.url, DANQING_MODELS=str(self.models), **env)

    def pull(self, hub, *args, code=0, env=None):
        r = self.danqing("pull", *QUICK, *args, env=self.settings(hub, **(env or {})))
        self.assertEqual(r.returncode, code, r.stderr + r.stdout)
        self.assertNotIn(SECRET, r.stderr + r.stdout)
        return r

    def report(self, hub, *args, **more):
        return json.loads(self.pull(hub, "--json", "--quiet", *args, **more).stdout)

    def refused(self, hub, code, says, *args, **more):
        """One line that says why; nothing under a final name that is not right."""
        r = self.pull(hub, "--quiet", *args, code=code, **more)
        line = r.stderr.splitlines()[0]
        self.assertRegex(line, r"\Adanqing: \[[^\]]+\] .*")
        self.assertIn(says, line)
        self.assertEqual(r.stdout, "")
        for path, data in self.final().items():
            self.assertTrue(data in hub.files.values(), path)
        return r

    def final(self, name=NAME):
        """The files under their final names."""
        folder = self.models / name
        return {k: v for k, v in tree(folder).items() if not k.startswith(".danqing/") and ".part" not in k
                and ".danqing-part" not in k} if folder.exists() else {}

    def leftovers(self, name=NAME):
        return [k for k in tree(self.models / name) if ".part" in k or ".danqing-part" in k]

    def command(self, *args, code=0, **popen):
        r = self.danqing("models", *args, env=self.environment(DANQING_MODELS=str(self.models)), **popen)
        self.assertEqual(r.returncode, code, r.stderr + r.stdout)
        return r
