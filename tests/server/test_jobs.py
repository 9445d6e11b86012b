"""The native API: jobs from acceptance to picture, cancelling, events, lists, limits."""
import socket

from harness import *


class Jobs(ServerTest):
    FLAGS = ("--max-steps", "200", "--queue-size", "30")

    def test_a_job_becomes_a_picture(self):
        r = self.server.post("/v1/jobs", {**SMALL, "seed": 7, "n": 2, "surprise": 1})
        self.assertEqual(r.status, 202, r.body)
        self.assertEqual(r.json()["warnings"], ["unknown field 'surprise' was ignored"])
        job = self.server.finished(r.json()["id"])
        self.assertEqual(job["status"], "done", job)
        self.assertEqual([i["seed"] for i in job["images"]], [7, 8])
        picture = self.server.get(job["images"][0]["url"])
        self.assertEqual((picture.status, picture.headers["content-type"]), (200, "image/png"))
        self.assertTrue(is_png(picture.body, 64))
        for extension, magic in (("jpeg", b"\xff\xd8"), ("webp", b"RIFF"), ("thumb", b"RIFF")):
            other = self.server.get(f"/v1/jobs/{job['id']}/images/1.{extension}")
            self.assertEqual(other.status, 200)
            self.assertTrue(other.body.startswith(magic))
        settings = self.server.post("/v1/images/settings", picture.body).json()["metadata"]["danqing"]
        self.assertEqual((settings["seed"], settings["prompt"], settings["index"]), (7, "a red apple", 0))

    def test_the_same_seed_gives_the_same_picture(self):
        one, two = (self.server.finished(self.server.submit(seed=3)) for _ in range(2))
        self.assertEqual(self.server.get(one["images"][0]["url"]).body, self.server.get(two["images"][0]["url"]).body)

    def test_events_tell_the_whole_way(self):
        job = self.server.submit(num_inference_steps=6)
        seen = list(self.server.events(f"/v1/jobs/{job}/events"))
        kinds = [e for e, _ in seen]
        self.assertEqual(kinds[-1], "done")
        self.assertEqual(seen[-1][1]["images"][0]["n"], 0)
        self.assertIn("preview", kinds)
        preview = next(d for e, d in seen if e == "preview")
        self.assertEqual((preview["width"], preview["height"]), (8, 8))
        self.assertEqual(base64.b64decode(preview["b64_json"])[:4], b"RIFF")
        steps = [d["step"] for e, d in seen if e in ("step", "stage") and d.get("stage") == "denoise"]
        self.assertEqual(steps, sorted(steps))
        self.assertEqual(list(self.server.events(f"/v1/jobs/{job}/events"))[-1][0], "done")  # after the end too

    def test_cancel_running(self):
        job = self.server.submit(**LONG)
        until(lambda: self.server.job(job)["progress"]["step"] >= 1)
        start = time.monotonic()
        r = self.server.delete(f"/v1/jobs/{job}")
        self.assertEqual((r.status, r.json()["status"]), (200, "cancelled"))
        after = self.server.finished(self.server.submit())  # the device is free within a step
        self.assertEqual(after["status"], "done")
        self.assertLess(after["started"] - after["created"], 5)  # a step takes some 10 ms, the whole job seconds
        self.assertLess(time.monotonic() - start, 60)
        self.assertEqual(self.server.delete(f"/v1/jobs/{job}").status, 200)  # twice is the same
        self.assertEqual(self.server.delete(f"/v1/jobs/{after['id']}").status, 409)

    def test_cancel_waiting(self):
        first, second = self.server.submit(**LONG), self.server.submit()
        self.assertEqual(self.server.job(second)["status"], "queued")
        self.assertEqual(self.server.job(second)["position"], 1)
        self.assertEqual(self.server.delete(f"/v1/jobs/{second}").json()["status"], "cancelled")
        self.server.delete(f"/v1/jobs/{first}")

    def test_idempotency_key(self):
        headers = {"Idempotency-Key": "k1"}
        one = self.server.post("/v1/jobs", SMALL, headers=headers)
        two = self.server.post("/v1/jobs", SMALL, headers=headers)
        other = self.server.post("/v1/jobs", {**SMALL, "n": 2}, headers=headers)
        self.assertEqual((one.status, two.status, other.status), (202, 200, 422))
        self.assertEqual(one.json()["id"], two.json()["id"])

    def test_lists_go_page_by_page(self):
        ids = [self.server.submit(seed=i) for i in range(5)]
        for i in ids:
            self.server.finished(i)
        seen, cursor = [], ""
        while cursor is not None:
            page = self.server.get(f"/v1/jobs?limit=2{cursor and '&cursor=' + cursor}").json()
            seen += [j["id"] for j in page["data"]]
            cursor = page["next_cursor"]
        self.assertEqual([i for i in seen if i in ids], ids[::-1])
        self.assertEqual(len(seen), len(set(seen)))
        gallery = self.server.get("/v1/images?limit=3").json()
        self.assertEqual(len(gallery["data"]), 3)
        first = gallery["data"][0]
        self.assertEqual(self.server.delete(f"/v1/jobs/{first['job']}/images/{first['n']}").status, 204)
        self.assertEqual(self.server.get(first["url"]).status, 404)
        done = self.server.get("/v1/jobs?status=done&limit=200").json()["data"]
        self.assertTrue(all(j["status"] == "done" for j in done))

    def test_refusals_say_why(self):
        for status, says, body in (
                (422, "prompt", {}), (422, "prompt", {"prompt": 5}), (413, "pixels", {**SMALL, "size": "4096x4096"}),
                (422, "multiple of", {**SMALL, "size": "100x100"}), (413, "steps", {**SMALL, "num_inference_steps": 201}),
                (413, "pictures", {**SMALL, "n": 17}), (422, "guidance_scale", {**SMALL, "guidance_scale": "x"}),
                (422, "seed", {**SMALL, "seed": -1}), (404, "no model", {**SMALL, "model": "nope"}),
                (413, "prompts of at most", {**SMALL, "prompt": "x" * 20000}), (422, "NUL", {**SMALL, "prompt": "a\0b"}),
                (422, "sampler", {**SMALL, "sampler": "ddim"}), (422, "size", {**SMALL, "size": "big"})):
            r = self.server.post("/v1/jobs", body)
            self.assertEqual(r.status, status, (body, r.body))
            self.assertIn(says, r.json()["error"]["message"])
        for body in (b"{", b"[]", b"\xff\xfe", b'{"prompt": NaN}', b"[" * 100000, b'{"prompt": 1e999}'):
            r = self.server.post("/v1/jobs", body, headers={"Content-Type": "application/json"})
            self.assertEqual(r.status, 400, (body[:20], r.body))
        self.assertEqual(self.server.post("/v1/jobs", b"{}", headers={"Content-Type": "text/plain"}).status, 415)

    def test_addresses(self):
        for path, status in (("/nope", 404), ("/v1/jobs/../../etc/passwd", 404), ("/v1/jobs/job_zz", 404),
                             ("/v1/jobs/%2e%2e%2fjobs.sqlite", 404), ("/v1/jobs/job_000000000000000000000000/images/0.png", 404),
                             ("/v1/jobs/job_000000000000000000000000/images/..%2f..%2fjobs.sqlite", 404),
                             ("/v1/jobs?limit=x", 422), ("/v1/jobs?cursor=-1", 422), ("/v1/jobs?status=odd", 422), ("/%zz", 400)):
            self.assertEqual(self.server.get(path).status, status, path)
        r = self.server.request("PUT", "/v1/jobs")
        self.assertEqual((r.status, r.headers["allow"]), (405, "POST, GET, HEAD"))
        self.assertEqual(self.server.request("HEAD", "/v1/models").body, b"")

    def test_full_queue(self):
        blocker = self.server.submit(**LONG)
        until(lambda: self.server.job(blocker)["status"] == "running")
        ids = [self.server.submit() for _ in range(30)]
        r = self.server.post("/v1/jobs", SMALL)
        self.assertEqual(r.status, 429)
        self.assertGreaterEqual(int(r.headers["retry-after"]), 1)
        for i in ids + [blocker]:
            self.server.delete(f"/v1/jobs/{i}")

    def test_priority_and_deadline(self):
        blocker = self.server.submit(**LONG)
        low, high = self.server.submit(), self.server.submit(priority=5)
        late = self.server.submit(deadline_seconds=0.1)
        self.assertEqual([self.server.job(j)["position"] for j in (high, low)], [1, 2])
        job = self.server.finished(late)
        self.assertEqual((job["status"], job["error"]["code"]), ("failed", "deadline_exceeded"))
        for i in (blocker, low, high):
            self.server.delete(f"/v1/jobs/{i}")

    def test_a_client_that_hangs_up_cancels(self):
        s = socket.create_connection(("127.0.0.1", self.server.port))
        body = json.dumps({"prompt": "x", "size": "128x128", "num_inference_steps": 150})
        s.sendall(f"POST /v1/images/generations HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                  f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        job = until(lambda: [j for j in self.server.get("/v1/queue").json()["data"] if j["status"] == "running"])[0]["id"]
        s.close()
        self.assertEqual(self.server.finished(job)["status"], "cancelled")

    def test_strange_connections(self):
        def raw(data):
            with socket.create_connection(("127.0.0.1", self.server.port)) as s:
                s.settimeout(TIMEOUT)
                s.sendall(data)
                return s.recv(100)
        self.assertIn(b" 400 ", raw(b"what is this\r\n\r\n"))
        self.assertIn(b" 431 ", raw(b"GET / HTTP/1.1\r\nX: " + b"y" * 100000 + b"\r\n\r\n"))
        self.assertIn(b" 413 ", raw(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n"))
        self.assertIn(b" 403 ", raw(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"))
        self.assertEqual(self.server.post("/v1/jobs", SMALL, headers={"Origin": "http://evil.example"}).status, 403)
        with socket.create_connection(("127.0.0.1", self.server.port)) as s:  # two at once
            s.sendall(b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 2)
            data = b""
            while data.count(b'"live"') < 2:
                data += s.recv(1000)
        self.assertEqual(self.server.get("/health/live").status, 200)

    def test_enhance(self):
        r = self.server.post("/v1/enhance", {"prompt": "a cat", "seed": 3, "max_new_tokens": 40})
        self.assertEqual(r.status, 200, r.body)
        events = list(self.server.events("/v1/enhance", "POST", {"prompt": "a cat", "seed": 3, "max_new_tokens": 40, "stream": True}))
        self.assertEqual(events[-1][0], "done")
        self.assertEqual(events[-1][1]["text"], r.json()["text"])
        self.assertEqual("".join(d["text"] for e, d in events if e == "text").strip(), r.json()["text"])
        job = self.server.finished(self.server.submit(prompt="a cat", enhance=True, seed=3))
        self.assertEqual(job["status"], "done")
        self.assertNotEqual(job["images"][0]["revised_prompt"], "")
        self.assertEqual(job["images"][0]["prompt"], "a cat")

    def test_health_and_metrics(self):
        self.assertEqual(self.server.get("/health/live").json(), {"status": "live"})
        self.assertEqual(self.server.get("/health/ready").json()["storage"], "ok")
        self.server.finished(self.server.submit())
        text = self.server.get("/metrics").body.decode()
        for name in ("danqing_jobs_total", "danqing_queue_wait_seconds_count", "danqing_step_seconds_count",
                     "danqing_pictures_total", "danqing_device_memory_used_bytes", "danqing_jobs_queued"):
            self.assertIn(name, text)
        system = self.server.get("/v1/system").json()
        self.assertGreater(system["samples"][0]["process"], 0)

    def test_security_headers(self):
        r = self.server.get("/")
        self.assertEqual(r.headers["x-content-type-options"], "nosniff")
        self.assertIn("default-src 'none'", r.headers["content-security-policy"])
        self.assertIn(b"Danqing", r.body)
        again = self.server.get("/", headers={"If-None-Match": r.headers["etag"]})
        self.assertEqual((again.status, again.body), (304, b""))
        self.assertNotIn(b"http://", self.server.get("/js/main.js").body)  # no request to anywhere else


if __name__ == "__main__":
    main()
