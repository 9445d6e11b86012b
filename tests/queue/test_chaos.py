"""Three workers, killed with -9 and frozen at random, and a nats-server that is killed meanwhile: every job has exactly
one result.

    test_chaos.py Chaos               60 jobs, as ctest runs it
    test_chaos.py --jobs 500          the long run
"""
import argparse
import random
import socket
import sys
import threading

from queue_harness import *


def slow_consumer(url, stop):
    """Subscribes to everything and reads nothing, as a client that hangs."""
    host, port = url.split("//")[1].split(":")
    s = socket.create_connection((host, int(port)))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB danqing.> 1\r\nPING\r\n')
    stop.wait()
    s.close()


class Chaos(QueueTest):
    JOBS = 60
    STEPS = 12

    def test_every_job_has_one_result(self):
        rng = random.Random(11)
        nats = self.nats()
        server = self.serve(nats.url, "--queue-size", 100000, "--queue-per-key", 100000)
        workers = [self.worker(nats.url, name=f"w{i}") for i in range(3)]
        stop = threading.Event()
        lazy = threading.Thread(target=slow_consumer, args=(nats.url, stop))
        lazy.start()
        self.addCleanup(lazy.join)
        self.addCleanup(stop.set)
        start = time.monotonic()
        ids = []
        for i in range(self.JOBS):
            headers = {"Idempotency-Key": f"key-{i}"}
            body = {**SMALL, "seed": i, "num_inference_steps": self.STEPS}
            answers = [server.post("/v1/jobs", body, headers=headers) for _ in range(2)]
            self.assertEqual([a.status for a in answers], [202, 200])
            self.assertEqual(answers[0].json()["id"], answers[1].json()["id"])
            ids.append(answers[0].json()["id"])
        submitted = time.monotonic() - start
        kills, freezes, restarts, frozen = 0, 0, 0, {}

        def unfinished():
            return [j for j in server.get("/v1/queue").json()["data"]]

        next_restart = time.monotonic() + 4
        left = unfinished()
        while left:
            time.sleep(rng.uniform(0.3, 1.0))
            for w in [w for w, until_time in frozen.items() if time.monotonic() > until_time]:
                w.process.send_signal(signal.SIGCONT)
                del frozen[w]
            awake = [i for i, w in enumerate(workers) if w not in frozen]
            what = rng.random()
            if what < 0.35 and len(left) > 3 and awake:  # kill -9, and another one comes
                i = rng.choice(awake)
                workers[i].stop(signal.SIGKILL)
                workers[i] = self.worker(nats.url, name=f"w{i}-{kills}")
                kills += 1
            elif what < 0.45 and not frozen and awake and len(left) > 3:  # so slow that its lease ends
                w = workers[rng.choice(awake)]
                w.process.send_signal(signal.SIGSTOP)
                frozen[w] = time.monotonic() + LEASE * 1.5
                freezes += 1
            elif time.monotonic() > next_restart:
                nats.restart(pause=rng.uniform(0, 1))
                restarts += 1
                next_restart = time.monotonic() + (15 if self.JOBS > 100 else 1e9)
            left = unfinished()
            self.assertLess(time.monotonic() - start, 30 + self.JOBS * 3, f"{len(left)} jobs left")
        for w in frozen:
            w.process.send_signal(signal.SIGCONT)
        seconds = time.monotonic() - start
        states = {}
        for i in ids:
            j = server.job(i)
            states[j["status"]] = states.get(j["status"], 0) + 1
            self.assertEqual(j["status"], "done", j)
            self.assertEqual(len(j["images"]), 1, j)
            self.assertTrue(is_png(server.get(j["images"][0]["url"]).body, 64))
        time.sleep(0.5)
        stats = json.loads(command("queue", "stats", "--queue", nats.url, "--json").stdout)
        self.assertEqual((stats["waiting"], stats["dead"]), (0, 0), stats)
        results = self.results(nats)
        self.assertEqual(sorted(results), sorted(ids), "one result a job, and none besides")
        print(f"{self.JOBS} jobs: accepted in {submitted:.1f} s, done in {seconds:.1f} s; workers killed {kills}, frozen "
              f"{freezes}; nats-server killed {restarts}", file=sys.stderr)
        self.assertGreater(kills + freezes, 0)

    def results(self, nats):
        """Ids of all messages of the stream of results, by JetStream's own interface."""
        out = []
        with socket.create_connection(("127.0.0.1", int(nats.port))) as s:
            f = s.makefile("rwb")
            f.readline()
            f.write(b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\nSUB mine 1\r\n')
            sequence = 1
            while True:
                body = json.dumps({"seq": sequence, "next_by_subj": "danqing.results.>"}).encode()
                f.write(b"PUB $JS.API.DIRECT.GET.DANQING_RESULTS mine %d\r\n%s\r\n" % (len(body), body))
                f.flush()
                line = f.readline()
                while not line.startswith(b"HMSG"):
                    if line.startswith(b"PING"):
                        f.write(b"PONG\r\n")
                        f.flush()
                    line = f.readline()
                head, total = map(int, line.split()[-2:])
                data = f.read(total + 2)[:head].decode()
                fields = dict(x.split(": ", 1) for x in data.split("\r\n")[1:] if ": " in x)
                if "Nats-Subject" not in fields:
                    return out
                out.append(fields["Nats-Subject"].rsplit(".", 1)[1])
                sequence = int(fields["Nats-Sequence"]) + 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=Chaos.JOBS)
    options, rest = parser.parse_known_args()
    Chaos.JOBS = options.jobs
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
