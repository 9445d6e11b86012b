"""The pages on installing and operating name checks and errors of `danqing doctor`: each must exist."""
import re

from tools import DEPLOY, SOURCE, harness
from harness import json, main, subprocess, unittest

PAGES = [*sorted((SOURCE / "docs/install").glob("*.md")), SOURCE / "docs/operations.md"]
ID = re.compile(r"`([a-z][a-z0-9]*(?:-[a-z0-9]+)*)`")
# Words in code marks that look like ids and are something else: devices, libraries, units, packages, settings.
OTHER = {"amdgpu-dkms", "danqing-nats", "danqing-client", "nats-jetstream", "make", "always", "madvise", "never", "fmt-devel", "llvmpipe", "id", "lscpu", "dmesg",
         "vulkan", "cuda", "rocminfo", "vulkaninfo", "hipcc", "toml", "latest", "base", "drain", "stopped", "started", "gcc-toolset", "ninja-build", "keep-groups", "nvidia",
         "job-accepted", "job-started", "job-finished", "job-recovered", "model-load-failed", "reason", "message", "models", "message", "hip", "non-free-firmware", "traceparent", "job-stage", "job-step"}


def package(word):
    return word.endswith(("-devel", "-dev")) or word.startswith("lib")


class Doctor(unittest.TestCase):
    def run_doctor(self, *words):
        p = subprocess.run([harness.PROGRAM, "doctor", *words], capture_output=True, text=True, timeout=120)
        self.assertIn(p.returncode, (0, 1), p.stderr)
        return p.stdout

    def test_every_id_exists(self):
        checks = {c["id"].split(":")[0] for c in json.loads(self.run_doctor("--json"))}
        checks |= set(re.findall(r'Check c\{"([a-z-]+):?"', "".join(f.read_text(encoding="utf-8") for f in (SOURCE / "apps/doctor").glob("*.cpp"))))
        errors = {e["id"] for e in json.loads((SOURCE / "data/doctor/errors.json").read_text(encoding="utf-8"))}
        self.assertTrue({"kfd", "numa", "disk"} <= checks and len(errors) >= 40)
        used = set()
        for page in PAGES:
            for word in ID.findall(page.read_text(encoding="utf-8")):
                if word in OTHER or package(word):
                    continue
                self.assertIn(word, checks | errors, page.name)
                used.add(word)
        readme = set(ID.findall((SOURCE / "docs/install/README.md").read_text(encoding="utf-8")))
        self.assertEqual(checks - readme, set(), "a check that docs/install/README.md does not place")
        self.assertGreater(len(used & errors), 25)

    def test_links_lead_somewhere(self):
        for page in PAGES:
            for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
                if target.startswith("http"):
                    self.assertTrue(target.startswith("https://"), target)
                    continue
                file, _, anchor = target.partition("#")
                there = (page.parent / file) if file else page
                self.assertTrue(there.exists(), f"{page.name}: {target}")
                if anchor:
                    titles = [re.sub(r"[^\w -]", "", t.lower()).replace(" ", "-") for t in re.findall(r"(?m)^#+ (.*)$", there.read_text(encoding="utf-8"))]
                    self.assertIn(anchor, titles, f"{page.name}: {target}")

    def test_files_that_are_named_exist(self):
        for page in PAGES:
            text = re.sub(r"https://\S+", "", page.read_text(encoding="utf-8"))
            for name in re.findall(r"\b((?:deploy|tools|bench|packaging)/[\w./-]*\w)", text):
                self.assertTrue((SOURCE / name).exists(), f"{page.name}: {name}")


if __name__ == "__main__":
    main()
