"""Load on a running server, with the standard library: many clients, mixed sizes, some cancel, some send nonsense, some read slowly.

    python3 bench/serve_load.py build/release/bin/danqing [--clients 200] [--jobs 2000] [--threads N] [--batch-size N]

Prints one JSON object: lost jobs and unexpected errors (both must be 0), throughput beside the program's own best batch
throughput on the same jobs' mix, p99 of GET /health/live meanwhile, resident memory over the last half. Numbers, not a test.
"""
import argparse
import asyncio
import json
import pathlib
import random
import re
import subprocess
import tempfile
import time

SIZES = ("64x64", "96x64", "128x128")
STEPS = 4


class Http:
    def __init__(self, port):
        self.port = port

    async def call(self, method, path, body=None, slow=False):
        """(status, body); one connection a call, as the worst clients do."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 26)
        try:
            data = b"" if body is None else (body if isinstance(body, bytes) else json.dumps(body).encode())
            head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: {len(data)}\r\n"
            if data:
                head += "Content-Type: application/json\r\n"
            writer.write(head.encode() + b"\r\n" + data)
            await writer.drain()
            if slow:
                parts = []
                while part := await reader.read(2048):
                    parts.append(part)
                    await asyncio.sleep(0.02)
                answer = b"".join(parts)
            else:
                answer = await reader.read()
            top, _, rest = answer.partition(b"\r\n\r\n")
            return int(top.split(b" ", 2)[1]), rest
        finally:
            writer.close()


class Load:
    def __init__(self, http, options):
        self.http, self.o, self.rng = http, options, random.Random(1)
        self.accepted, self.cancelled, self.errors, self.refused = [], set(), [], 0
        self.latencies, self.memory = [], []
        self.next = 0

    async def client(self):
        while self.next < self.o.jobs:
            number, self.next = self.next, self.next + 1
            kind = self.rng.random()
            if kind < 0.02:
                bad = self.rng.choice((b"{", {"prompt": 1}, {"prompt": "x", "size": "1x1"}, {"prompt": "x", "steps": 10**9}))
                status, _ = await self.http.call("POST", "/v1/jobs", bad)
                if status not in (400, 413, 422):
                    self.errors.append(f"malformed: {status}")
                continue
            body = {"prompt": f"a red apple {number}", "size": self.rng.choice(SIZES), "num_inference_steps": STEPS, "seed": number}
            while True:
                status, answer = await self.http.call("POST", "/v1/jobs", body)
                if status != 429:
                    break
                self.refused += 1
                await asyncio.sleep(self.rng.uniform(0.2, 1.0))
            if status != 202:
                self.errors.append(f"submit: {status} {answer[:200]!r}")
                continue
            job = json.loads(answer)["id"]
            self.accepted.append(job)
            if kind < 0.07:
                await asyncio.sleep(self.rng.uniform(0, 2))
                await self.http.call("DELETE", f"/v1/jobs/{job}")
                self.cancelled.add(job)
            status, answer = await self.http.call("GET", f"/v1/jobs/{job}/events")  # until the end
            if status != 200:
                self.errors.append(f"events: {status}")
            elif b"event: done" in answer:
                status, picture = await self.http.call("GET", f"/v1/jobs/{job}/images/0.png", slow=kind > 0.97)
                if status != 200 or picture[:4] != b"\x89PNG":
                    self.errors.append(f"picture: {status}")
            elif job not in self.cancelled:
                self.errors.append(f"end: {answer[-300:]!r}")

    async def watch(self, pid, stop):
        while not stop.is_set():
            start = time.perf_counter()
            await self.http.call("GET", "/health/live")
            self.latencies.append(time.perf_counter() - start)
            pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
            self.memory.append((len(self.accepted), pages * 4096))
            await asyncio.sleep(0.05)

    async def run(self, pid):
        stop = asyncio.Event()
        watcher = asyncio.create_task(self.watch(pid, stop))
        start = time.perf_counter()
        await asyncio.gather(*(self.client() for _ in range(self.o.clients)))
        seconds = time.perf_counter() - start
        stop.set()
        await watcher
        lost = 0
        for job in self.accepted:
            status, answer = await self.http.call("GET", f"/v1/jobs/{job}")
            lost += status != 200 or json.loads(answer)["status"] not in ("done", "cancelled")
        half = [m for n, m in self.memory if n > len(self.accepted) / 2] or [m for _, m in self.memory]
        latencies = sorted(self.latencies)
        return {"seconds": seconds, "accepted": len(self.accepted), "cancelled": len(self.cancelled), "asked_to_wait": self.refused,
                "lost": lost, "errors": self.errors[:10], "error_count": len(self.errors),
                "pictures_per_second": (len(self.accepted) - len(self.cancelled)) / seconds,
                "health_p50_ms": 1000 * latencies[len(latencies) // 2], "health_p99_ms": 1000 * latencies[int(len(latencies) * 0.99)],
                "memory_last_half_spread": (max(half) - min(half)) / min(half), "memory_bytes": half[-1]}


def best_batch(o):
    """Pictures a second of the program itself, the same mix of sizes, at its best batch size."""
    best = 0.0
    for batch in (1, 4):
        pictures, seconds = 0, 0.0
        for size in SIZES:
            with tempfile.TemporaryDirectory() as d:
                run = subprocess.run([o.program, "generate", "a red apple", "--batch", "32", "--batch-size", str(batch), "--size", size, "--steps",
                                      str(STEPS), "--seed", "1", "--json", "-q", "-o", f"{d}/x.png", *(["--threads", str(o.threads)] if o.threads else [])],
                                     capture_output=True, text=True, check=True)
                s = json.loads(run.stdout)["seconds"]
                pictures += 32
                seconds += s["total"] - s["load"]
        best = max(best, pictures / seconds)
    return best


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("program")
    p.add_argument("--clients", type=int, default=200)
    p.add_argument("--jobs", type=int, default=2000)
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--batch-size", type=int, default=0)
    o = p.parse_args()
    with tempfile.TemporaryDirectory() as d:
        server = subprocess.Popen([o.program, "serve", "--port", "0", "--data", d, "--log-level", "error", "--batch-size", str(o.batch_size),
                                   *(["--threads", str(o.threads)] if o.threads else [])], stdout=subprocess.PIPE, text=True)
        try:
            port = int(re.search(r":(\d+)", server.stdout.readline()).group(1))
            result = asyncio.run(Load(Http(port), o).run(server.pid))
        finally:
            server.terminate()
            server.wait()
    result["program_pictures_per_second"] = best_batch(o)
    result["share_of_program"] = result["pictures_per_second"] / result["program_pictures_per_second"]
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
