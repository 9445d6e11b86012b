"""danqing pull against servers, networks and disks that misbehave."""
import resource
import shutil
import socket
import time

from harness import main
from hub_server import Hub
from pull_harness import NAME, ONE_FILE, SECRET, PullTest, tree


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


if __name__ == "__main__":
    main()
