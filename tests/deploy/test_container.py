"""The Containerfile and its scripts, as far as they can be tried without building an image (bench/container_steps.py does that)."""
import importlib.util
import os
import re

from tools import DEPLOY, SOURCE, harness
from harness import OwnServerTest, main, pathlib, shutil, subprocess, unittest

SCRIPTS = DEPLOY / "container"
TARGETS = {"cpu", "vulkan", "rocm", "cuda"}


def containerfile():
    spec = importlib.util.spec_from_file_location("container_steps", SOURCE / "bench/container_steps.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.parse((DEPLOY / "Containerfile").read_text(encoding="utf-8"))


class Containerfile(unittest.TestCase):
    def test_targets(self):
        arguments, stages = containerfile()
        self.assertEqual({s for s in stages if not s.startswith("build-")}, TARGETS)
        common = []
        for target in TARGETS:
            build, run = stages[f"build-{target}"]["steps"], stages[target]["steps"]
            self.assertIn(("RUN", f"deploy/container/build.sh {target} /out"), build)
            self.assertEqual(run[:2], [("COPY", f"--from=build-{target} /out /"), ("RUN", "/usr/share/danqing/container/runtime.sh")])
            last = dict(run)
            self.assertRegex(last["USER"], r"^[1-9]\d+:[1-9]\d+$")  # by number, so that a cluster can see that it is not root
            self.assertGreater([w for w, _ in run].index("USER"), max(i for i, (w, _) in enumerate(run) if w == "RUN"))
            self.assertIn("healthcheck.sh", last["HEALTHCHECK"])
            common.append([x for x in run[2:] if "NVIDIA" not in x[1]])
        self.assertTrue(all(c == common[0] for c in common), "the run stages differ")
        user = dict(stages["cpu"]["steps"])["USER"].split(":")[0]
        self.assertIn(f"uid={user}\n", (SCRIPTS / "runtime.sh").read_text(encoding="utf-8"))

    def test_bases_are_arguments(self):
        text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
        for base in re.findall(r"^FROM (\S+)", text, re.M):
            self.assertRegex(base, r"^\$\{[A-Z_]+\}$")
        arguments, _ = containerfile()
        self.assertTrue(arguments["ROCM_BASE"].endswith(":latest"))
        for file in (DEPLOY / "Containerfile", *SCRIPTS.iterdir()):
            self.assertIsNone(re.search(r"rocm[-/:=]?\d", file.read_text(encoding="utf-8"), re.I), f"{file.name} names a version of ROCm")

    def test_scripts(self):
        for script in (*SCRIPTS.glob("*.sh"), DEPLOY / "elastic/setup.sh"):
            self.assertTrue(os.access(script, os.X_OK), script)
            self.assertEqual(subprocess.run(["bash", "-n", str(script)], timeout=60).returncode, 0)
            if shutil.which("shellcheck"):
                p = subprocess.run(["shellcheck", str(script)], capture_output=True, text=True, timeout=60)
                self.assertEqual(p.returncode, 0, p.stdout)

    def test_a_wrong_target_does_nothing(self):
        for words in ((), ("cpu",), ("metal", "/tmp/nowhere")):
            p = subprocess.run([str(SCRIPTS / "build.sh"), *words], capture_output=True, text=True, timeout=60)
            self.assertEqual(p.returncode, 2, p.stderr)

    def test_what_is_ignored_exists_or_is_made(self):
        ignored = (DEPLOY / "Containerfile.dockerignore").read_text(encoding="utf-8").split()
        for needed in ("src", "apps", "tools", "models", "deploy", "packaging", "web", "data", "cmake"):
            self.assertNotIn(needed, ignored)
        self.assertTrue({".git", ".deps", "build*"} <= set(ignored))


class Running(OwnServerTest):
    def health(self, port):
        env = {"PATH": os.environ["PATH"], "DANQING_PORT": str(port)}
        return subprocess.run([str(SCRIPTS / "healthcheck.sh")], env=env, capture_output=True, timeout=60).returncode

    def test_health(self):
        s = self.serve()
        self.assertEqual(self.health(s.port), 0)
        s.stop()
        self.assertNotEqual(self.health(s.port), 0)

    def test_health_of_a_server_that_is_not_ready(self):
        model = self.dir / "broken"
        shutil.copytree(harness.MINI, model, ignore=shutil.ignore_patterns("golden"))
        weights = next((model / "transformer").glob("*.safetensors"))
        s = self.serve("-m", model, wait=False)
        harness.until(lambda: s.get("/health/ready").status == 200)
        s.stop()
        with open(weights, "r+b") as f:
            f.truncate(weights.stat().st_size // 2)
        p = subprocess.run([harness.PROGRAM, "serve", "-m", str(model), "--port", "0", "--data", str(self.dir / "d")], capture_output=True, text=True, timeout=60)
        self.assertEqual(p.returncode, 3, p.stderr)  # a container with a damaged model ends, and says why

    @unittest.skipUnless(shutil.which("dpkg-query"), "not Debian")
    def test_packages_of_the_program(self):
        (self.dir / "usr/bin").mkdir(parents=True)
        shutil.copy(harness.PROGRAM, self.dir / "usr/bin/danqing")
        p = subprocess.run([str(SCRIPTS / "packages.sh"), str(self.dir), "ca-certificates"], capture_output=True, text=True, timeout=120)
        self.assertEqual(p.returncode, 0, p.stderr)
        packages = p.stdout.split()
        self.assertIn("ca-certificates", packages)
        for start in ("libc6", "libsqlite3-0", "libssl", "libcurl", "libstdc++6", "libpng16"):
            self.assertTrue(any(x.startswith(start) for x in packages), f"{start}: {packages}")
        self.assertEqual(packages, sorted(set(packages)))


if __name__ == "__main__":
    main()
