"""danqing serve --queue with danqing worker: what one machine does, and what only many can do."""
from queue_harness import *

LONG = {"prompt": "a red apple", "size": "128x128", "num_inference_steps": 150}


class Workers(QueueTest):

    def test_a_picture_from_request_to_gallery(self):
        nats = self.nats()
        server = self.serve(nats.url)
        trace = "0af7651916cd43dd8448eb211c80319c"
        r = server.post("/v1/jobs", {**LONG, "seed": 3, "n": 2},
                        headers={"traceparent": f"00-{trace}-b7ad6b7169203331-01"})
        self.assertEqual(r.status, 202)
        job = r.json()["id"]
        self.assertEqual(r.json()["status"], "queued")
        self.assertEqual(server.job(job)["position"], 1)
        worker = self.worker(nats.url)
        seen = list(server.events(f"/v1/jobs/{job}/events"))
        kinds = {e for e, _ in seen}
        self.assertLessEqual({"queued", "running", "stage", "step", "preview", "image", "done"}, kinds)
        end = seen[-1][1]
        self.assertEqual(end["status"], "done")
        self.assertEqual([p["seed"] for p in end["images"]], [3, 4])
        for p in end["images"]:
            self.assertTrue(is_png(server.get(p["url"]).body, 128))
            self.assertEqual(server.get(p["thumbnail"]).body[:4], b"RIFF")
        self.assertEqual(len(server.get("/v1/images").json()["data"]), 2)
        self.assertGreater(end["seconds"]["denoise"], 0)
        finished = [x for x in worker.records() if x.get("event.action") == "job-finished"]
        self.assertEqual([x["trace.id"] for x in finished], [trace])
        self.assertGreater(finished[0]["event.duration"], 0)
        self.assertEqual(finished[0]["danqing.job.id"], job)
        self.assertEqual(worker.stop(), 0)

    def test_the_picture_is_the_one_that_a_single_machine_draws(self):
        nats = self.nats()
        server = self.serve(nats.url)
        self.worker(nats.url)
        body = {**SMALL, "seed": 77}
        far = server.finished(server.submit(**body))
        server.stop()
        alone = self.keep(Server(self.dir / "..", "--data", self.dir / "alone"))
        near = alone.finished(alone.submit(**body))
        self.assertEqual(far["images"][0]["settings"], near["images"][0]["settings"])
        self.assertEqual(far["images"][0]["bytes"], near["images"][0]["bytes"])

    def test_cancel_reaches_the_worker(self):
        nats = self.nats()
        server = self.serve(nats.url)
        self.worker(nats.url)
        job = server.submit(**LONG)
        until(lambda: server.job(job)["progress"] and server.job(job)["progress"]["step"] >= 1)
        self.assertEqual(server.delete(f"/v1/jobs/{job}").json()["status"], "cancelled")
        start = time.monotonic()
        self.assertEqual(server.finished(server.submit())["status"], "done")
        self.assertLess(time.monotonic() - start, 5, "the long job takes seconds more")
        self.assertEqual(server.job(job)["status"], "cancelled")
        waiting = server.submit()
        server.delete(f"/v1/jobs/{waiting}")

    def test_a_server_that_restarts_finds_its_jobs(self):
        nats = self.nats()
        server = self.serve(nats.url)
        ids = [server.submit(seed=i) for i in range(4)]
        server.stop(signal.SIGKILL)
        worker = self.worker(nats.url)
        until(lambda: worker.log().count("job-finished") == 4)
        server = self.serve(nats.url)
        for i in ids:
            j = server.finished(i)
            self.assertEqual(j["status"], "done")
            self.assertTrue(is_png(server.get(j["images"][0]["url"]).body))
        self.assertEqual(worker.log().count('"job-started"'), 4, "none was drawn twice")

    def test_a_worker_that_is_asked_to_stop_gives_its_job_back(self):
        nats = self.nats()
        server = self.serve(nats.url)
        one = self.worker(nats.url, "--drain-seconds", 0, name="one")
        job = server.submit(**LONG)
        until(lambda: server.job(job)["status"] == "running")
        self.assertEqual(one.stop(), 0)
        until(lambda: server.job(job)["status"] == "queued")
        self.worker(nats.url, name="two")
        self.assertEqual(server.finished(job)["status"], "done")
        self.assertEqual(json.loads(command("queue", "stats", "--queue", nats.url, "--json").stdout)["dead"], 0)

    def test_nats_away_at_the_start_and_in_between(self):
        nats = self.nats()
        nats.stop()
        server = self.serve(nats.url, wait=False)
        worker = self.worker(nats.url)
        self.assertEqual(server.get("/health/ready").status, 503)
        self.assertIn("cannot be reached", server.get("/health/ready").json()["error"])
        job = server.submit()  # it is kept here until the queue is back
        time.sleep(1)
        self.assertIsNone(worker.process.poll(), "it keeps trying")
        nats.start()
        self.assertEqual(server.finished(job)["status"], "done")
        self.assertEqual(server.get("/health/ready").status, 200)
        long = server.submit(**LONG)
        until(lambda: server.job(long)["status"] == "running")
        nats.restart()
        self.assertEqual(server.finished(long)["status"], "done")
        self.assertEqual(worker.log().count('"job-started"'), 2)

    def test_also_work(self):
        nats = self.nats()
        server = self.serve(nats.url, "--also-work")
        self.assertEqual(server.finished(server.submit())["status"], "done")

    def test_a_job_that_kills_its_workers(self):
        nats = self.nats()
        server = self.serve(nats.url, "--queue-attempts", 2)
        job = server.submit(**LONG)
        for i in range(2):
            w = self.worker(nats.url, "--queue-attempts", 2, name=f"victim-{i}")
            until(lambda: "job-started" in w.log())
            w.stop(signal.SIGKILL)
        self.worker(nats.url, "--queue-attempts", 2, name="survivor")
        j = server.finished(job)
        self.assertEqual((j["status"], j["error"]["code"]), ("failed", "interrupted"))
        self.assertIn(job, command("queue", "dead", "list", "--queue", nats.url).stdout)
        story = json.loads(command("queue", "dead", "show", job, "--queue", nats.url).stdout)
        self.assertEqual([x["worker"] for x in story["story"]], ["victim-0", "victim-1"])
        self.assertEqual(story["job"]["spec"]["prompts"], ["a red apple"])
        self.assertEqual(server.finished(server.submit())["status"], "done", "the queue goes on")
        r = command("queue", "dead", "replay", job, "--queue", nats.url)
        self.assertEqual(r.returncode, 0, r.stderr)
        until(lambda: server.job(job)["status"] != "failed")
        self.assertEqual(server.finished(job)["status"], "done")
        self.assertEqual(command("queue", "dead", "list", "--queue", nats.url).stdout, "no dead jobs\n")
        self.assertEqual(command("queue", "dead", "show", job, "--queue", nats.url).returncode, 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
