"""What an operator relies on: keys, configuration, draining, bad disks, batching, the enhancer endpoint."""
import http.server
import resource

from harness import *


class Keys(OwnServerTest):
    def key(self, name, *more):
        p = subprocess.run([PROGRAM, "serve", "--new-key", name, *more], capture_output=True, text=True, check=True)
        return p.stderr.split(": ")[1].strip(), p.stdout

    def test_who_may_do_what(self):
        (anna, a), (berta, b), (boss, c) = self.key("anna"), self.key("berta"), self.key("boss", "--admin")
        keys = self.dir / "keys"
        keys.write_text("# who\n" + a + c)
        s = self.serve("--api-key-file", keys, "--host", "0.0.0.0", wait=False)
        until(lambda: s.get("/health/ready").status == 200)
        r = s.post("/v1/jobs", SMALL)
        self.assertEqual((r.status, r.json()["error"]["type"]), (401, "authentication_error"))
        self.assertEqual(s.get("/sdapi/v1/options").headers["www-authenticate"], 'Basic realm="danqing"')
        basic = base64.b64encode(f"any:{anna}".encode()).decode()
        self.assertEqual(s.get("/sdapi/v1/options", headers={"Authorization": "Basic " + basic}).status, 200)
        job = s.post("/v1/jobs", SMALL, key=anna).json()["id"]
        done = until(lambda: (j := s.get(f"/v1/jobs/{job}", key=anna).json())["status"] == "done" and j)
        url = done["images"][0]["url"]
        self.assertIn("sig=", url)
        self.assertEqual(s.get(url).status, 200)  # the address is the permission
        self.assertEqual(s.get(url[:-1] + ("0" if url[-1] != "0" else "1")).status, 401)
        self.assertEqual(s.get(f"/v1/jobs/{job}", key=berta).status, 401)
        keys.write_text(a + b + c)
        s.process.send_signal(signal.SIGHUP)
        until(lambda: s.get(f"/v1/jobs/{job}", key=berta).status == 404)  # known now, and not berta's
        self.assertEqual(s.get("/v1/jobs", key=berta).json()["data"], [])
        self.assertEqual(len(s.get("/v1/jobs", key=boss).json()["data"]), 1)
        self.assertEqual(s.delete(f"/v1/jobs/{job}/images/0", key=berta).status, 404)
        keys.write_text("broken")
        s.process.send_signal(signal.SIGHUP)
        until(lambda: "the old keys stay" in s.log())
        self.assertEqual(s.get("/v1/jobs", key=anna).status, 200)
        self.assertEqual(s.stop(), 0)
        for secret in (anna, berta, boss):
            self.assertNotIn(secret, s.log())
            self.assertNotIn(secret, keys.read_text())

    def test_a_public_address_needs_keys(self):
        p = subprocess.run([PROGRAM, "serve", "--host", "0.0.0.0", "--port", "0"], capture_output=True, text=True, timeout=TIMEOUT)
        self.assertEqual(p.returncode, 2)
        self.assertIn("no keys", p.stderr)


class Configuration(OwnServerTest):
    def config(self, *flags, **env):
        e = {k: v for k, v in os.environ.items() if not k.startswith("DANQING")}
        return subprocess.run([PROGRAM, "serve", "--print-config", *map(str, flags)], capture_output=True, text=True, cwd=self.dir, env={**e, **env})

    def test_file_then_environment_then_flags(self):
        self.assertEqual(json.loads(self.config().stdout)["max_steps"], 150)
        (self.dir / "danqing.toml").write_text('max_steps = 10\nprecision = "f32"\nmodel = ["a", "b=c"]\nguidance_scale = 2.5\n')
        c = json.loads(self.config().stdout)
        self.assertEqual((c["max_steps"], c["precision"], c["model"], c["guidance_scale"]), (10, "f32", ["a", "b=c"], 2.5))
        self.assertEqual(json.loads(self.config(DANQING_MAX_STEPS="20").stdout)["max_steps"], 20)
        self.assertEqual(json.loads(self.config("--max-steps", 30, DANQING_MAX_STEPS="20").stdout)["max_steps"], 30)
        other = self.dir / "x.json"
        other.write_text('{"max_steps": 5, "preload": false}')
        c = json.loads(self.config("--config", other, "--preload").stdout)
        self.assertEqual((c["max_steps"], c["preload"]), (5, True))

    def test_wrong_settings_are_named(self):
        for text, says in (("max_steps = 0", "max_steps: expected 1 to 1000"), ("nonsense = 1", "unknown setting 'nonsense'"),
                           ('precision = "f8"', "expected one of"), ("= 3", "danqing.toml:1"), ('max_body = "lots"', "max_body")):
            (self.dir / "danqing.toml").write_text(text)
            p = self.config()
            self.assertIn(p.returncode, (2, 3), text)
            self.assertIn(says, p.stderr)
        (self.dir / "danqing.toml").unlink()
        self.assertIn("$DANQING_PORT", self.config(DANQING_PORT="x").stderr)
        self.assertIn("--port", self.config("--port", "70000").stderr)


class Running(OwnServerTest):
    def test_sigterm_lets_the_running_job_end_and_keeps_the_rest(self):
        s = self.serve()
        running = s.submit(prompt="a cat", num_inference_steps=40)
        waiting = [s.submit(seed=i) for i in range(3)]
        until(lambda: s.job(running)["status"] == "running")
        self.assertEqual(s.stop(), 0)
        s = self.serve()
        self.assertEqual(s.job(running)["status"], "done")
        self.assertEqual(s.job(running)["images"][0]["settings"]["num_inference_steps"], 40)
        self.assertEqual([s.finished(j)["status"] for j in waiting], ["done"] * 3)

    def test_json_log_follows_a_job(self):
        s = self.serve("--log-level", "debug")
        trace = "0123456789abcdef0123456789abcdef"
        r = s.post("/v1/jobs", {**SMALL, "prompt": "a secret thing"}, headers={"traceparent": f"00-{trace}-0123456789abcdef-01"})
        s.finished(r.json()["id"])
        s.stop()
        lines = [json.loads(line) for line in s.log().splitlines()]
        mine = [x for x in lines if x.get("trace.id") == trace]
        self.assertEqual({"job-accepted", "job-finished"} - {x.get("event.action") for x in mine}, set())
        for x in lines:
            self.assertTrue({"@timestamp", "log.level", "message", "ecs.version"} <= set(x))
        self.assertNotIn("secret", s.log())

    def test_a_batch_gives_each_its_own_picture(self):
        alone = self.serve()
        want = [alone.get(alone.finished(alone.submit(seed=i, prompt=p))["images"][0]["url"]).body for i, p in enumerate(("a cat", "a red apple under a blue sky", "一根大香蕉"))]
        alone.stop()
        s = self.serve("--batch-size", "4")
        blocker = s.submit(**LONG)
        jobs = [s.submit(seed=i, prompt=p) for i, p in enumerate(("a cat", "a red apple under a blue sky", "一根大香蕉"))]
        s.delete(f"/v1/jobs/{blocker}")
        done = [s.finished(j) for j in jobs]
        metrics = s.get("/metrics").body.decode()
        self.assertIn('danqing_batch_pictures_bucket{le="2"} 1', metrics)  # the blocker alone, then the three together
        self.assertIn("danqing_batch_pictures_count 2", metrics)
        for j, png in zip(done, want):
            self.assertEqual(pixels(s.get(j["images"][0]["url"]).body), pixels(png))

    def test_several_models_take_turns(self):
        s = self.serve("-m", f"second={MINI}", "--memory", "30MiB")
        self.assertEqual([m["loaded"] for m in s.get("/v1/models").json()["data"]], [True, False])
        one = s.finished(s.submit(seed=1))
        two = s.finished(s.submit(seed=1, model="second"))
        self.assertEqual([m["loaded"] for m in s.get("/v1/models").json()["data"]], [False, True])
        self.assertEqual((one["status"], two["status"]), ("done", "done"))
        self.assertEqual((one["model"], two["model"]), ("danqing-mini", "second"))

    def test_a_job_that_cannot_fit_is_refused_when_it_comes(self):
        s = self.serve("--memory", "30MiB", "--offload", "none", "--vae-tiling", "off")
        r = s.post("/v1/jobs", {"prompt": "a cat", "size": "1024x1024", "steps": 1})
        self.assertEqual((r.status, r.json()["error"]["code"]), (413, "does_not_fit"), r.body)
        self.assertIn("device memory", r.json()["error"]["message"])
        self.assertEqual(s.finished(s.submit(seed=1))["status"], "done")

    def test_less_memory_than_the_model(self):
        want = (s := self.serve()).finished(s.submit(seed=1))
        png = s.get(want["images"][0]["url"]).body
        s.stop()
        less = self.serve("--memory", "20MiB", "--reserve", "0", "--precision", "f32")
        got = less.finished(less.submit(seed=1))
        self.assertEqual(got["status"], "done", got)
        self.assertEqual(pixels(less.get(got["images"][0]["url"]).body), pixels(png))


class Disks(OwnServerTest):
    def test_a_damaged_database(self):
        (self.dir / "data").mkdir()
        (self.dir / "data/jobs.sqlite").write_bytes(b"this is no database, and it is the only copy" * 100)
        s = self.serve()
        self.assertIn("jobs.sqlite cannot be used", s.get("/health/ready").json()["storage"])
        job = s.finished(s.submit())
        self.assertTrue(is_png(s.get(job["images"][0]["url"]).body))
        s.stop()
        self.assertTrue((self.dir / "data/jobs.sqlite").read_bytes().startswith(b"this is no database"))

    def test_a_directory_that_cannot_be_written(self):
        (self.dir / "data").write_text("a file in its place")
        s = self.serve()
        self.assertIn("nothing can be written", s.get("/health/ready").json()["storage"])
        self.assertEqual(s.finished(s.submit())["status"], "done")

    def test_a_full_disk(self):
        # No file may grow beyond 6 kB for this process: neither the database nor a picture of 128x128.
        s = self.serve("--log-level", "error")
        limit = 6000
        first = s.finished(s.submit())
        self.assertEqual(first["status"], "done")
        running = s.submit(**LONG)
        until(lambda: s.job(running)["progress"]["step"] >= 1)
        resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE, (limit, limit))
        job = s.finished(running)  # what is being drawn can still be had, and says that it will be gone
        self.assertEqual(job["status"], "done")
        self.assertTrue(any("cannot be stored" in n for n in job["notes"]), job["notes"])
        self.assertTrue(is_png(s.get(f"/v1/jobs/{running}/images/0.png").body, 128))
        r = s.post("/v1/jobs", SMALL)
        self.assertEqual(r.status, 507, r.body)
        self.assertIn("cannot be stored", r.json()["error"]["message"])
        self.assertEqual(s.get("/v1/jobs").status, 200)
        self.assertTrue(is_png(s.get(first["images"][0]["url"]).body))
        self.assertEqual(s.get("/health/live").status, 200)


class Endpoint(OwnServerTest):
    def endpoint(self, answer):
        seen = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                seen.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                status, body = answer(seen[-1])
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *a):
                pass
        h = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=h.serve_forever, daemon=True).start()
        self.addCleanup(h.server_close)
        self.addCleanup(h.shutdown)
        return f"http://127.0.0.1:{h.server_port}/v1", seen

    def test_an_endpoint_writes_the_prompt(self):
        url, seen = self.endpoint(lambda q: (200, json.dumps({"choices": [{"message": {"content": q["messages"][1]["content"] + ", in detail"}}]}).encode()))
        s = self.serve("--enhancer-url", url, "--enhancer-model", "m")
        for _ in range(2):
            job = s.finished(s.submit(enhance=True, seed=4))
            self.assertEqual(job["images"][0]["revised_prompt"], "a red apple, in detail")
        self.assertEqual(len(seen), 1)  # the second came from the cache
        self.assertEqual((seen[0]["model"], seen[0]["seed"]), ("m", 4))
        self.assertEqual(s.post("/v1/enhance", {"prompt": "a cat"}).json()["text"], "a cat, in detail")

    def test_its_failure_is_a_note(self):
        url, _ = self.endpoint(lambda q: (500, b"no"))
        s = self.serve("--enhancer-url", url)
        job = s.finished(s.submit(enhance=True))
        self.assertEqual(job["status"], "done")
        self.assertTrue(any("used as given" in n for n in job["notes"]), job["notes"])


if __name__ == "__main__":
    main()
