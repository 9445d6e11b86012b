"""Runs the program as a user does and reads what it wrote, with nothing but the standard library.

Environment: DANQING (the program), DANQING_SOURCE (the checkout), DANQING_TEST_DATA (the unpacked test data).
"""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import unittest
import zlib

PROGRAM = os.environ["DANQING"]
SOURCE = pathlib.Path(os.environ["DANQING_SOURCE"])
MINI = SOURCE / "models/danqing-mini"
TINY = pathlib.Path(os.environ["DANQING_TEST_DATA"]) / "fixtures/ernie-tiny"
Z_TINY = pathlib.Path(os.environ["DANQING_TEST_DATA"]) / "fixtures/zimage-tiny"
GGUF = pathlib.Path(os.environ["DANQING_TEST_DATA"]) / "fixtures/gguf"

TIMEOUT = 300  # seconds; only there so that a hang ends: sanitizer builds on a loaded machine are slow
# One thread: other tests run beside this one, and threads that wait for each other's turn make small work slow.
ONE = ("--threads", "1")
SMALL = ("--size", "64x64", "--steps", "2", *ONE)


class CliTest(unittest.TestCase):
    """Every test gets an empty directory of its own as working directory."""
    maxDiff = None

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="danqing-cli-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def environment(self, **extra):
        env = {k: v for k, v in os.environ.items() if not k.startswith("DANQING")}
        env.update({"TERM": "dumb", "LC_ALL": "C.UTF-8", **extra})
        return env

    def start(self, *args, **popen):
        settings = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.dir,
                        env=self.environment(), text=True, encoding="utf-8", errors="surrogateescape")
        settings.update(popen)
        return subprocess.Popen([PROGRAM, *map(str, args)], **settings)

    def danqing(self, *args, stdin=None, **popen):
        """Runs to the end; a test fails on a crash whatever it expected."""
        if stdin is not None:
            popen["stdin"] = subprocess.PIPE
        p = self.start(*args, **popen)
        try:
            out, err = p.communicate(stdin, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            p.kill()
            p.communicate()
            self.fail(f"no end after {TIMEOUT} s: {args}")
        self.assertIn(p.returncode, (0, 1, 2, 3, 4, 5, 130), f"{args}: {err}")
        return subprocess.CompletedProcess(args, p.returncode, out, err)

    def run_ok(self, *args, **popen):
        r = self.danqing(*args, **popen)
        self.assertEqual(r.returncode, 0, f"{args}: {r.stderr}")
        return r

    def generate(self, *args, **popen):
        return self.run_ok("generate", *args, **popen)

    def files(self):
        """Everything below the test's directory, hidden files too."""
        return sorted(str(p.relative_to(self.dir)) for p in self.dir.rglob("*") if not p.is_dir())

    def assert_refused(self, code, *args, says=None, **popen):
        """One line on stderr, nothing on stdout, the documented exit code, no file that was not there before."""
        before = sorted(self.dir.rglob("*"))
        r = self.danqing(*args, **popen)
        what = f"{' '.join(map(str, args))}\nexit {r.returncode}, stderr: {r.stderr!r}"
        self.assertEqual(r.returncode, code, what)
        self.assertEqual(r.stdout, "", what)
        self.assertRegex(r.stderr, r"\Adanqing: \[[^\]\n]+\] [^\n]+\n\Z", what)
        if says:
            self.assertIn(says, r.stderr, what)
        self.assertEqual(sorted(self.dir.rglob("*")), before, what)
        return r


def png_chunks(data):
    """[(type, body)], every length and checksum checked."""
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        raise ValueError("not a PNG")
    chunks, at = [], 8
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        if struct.unpack(">I", data[at + 8 + size:at + 12 + size])[0] != zlib.crc32(kind + body):
            raise ValueError(f"bad checksum in {kind}")
        chunks.append((kind, body))
        at += 12 + size
    if chunks[0][0] != b"IHDR" or chunks[-1] != (b"IEND", b""):
        raise ValueError("not a whole PNG")
    return chunks


def png_text(path):
    """The texts of tEXt and iTXt chunks."""
    texts = {}
    for kind, body in png_chunks(pathlib.Path(path).read_bytes()):
        if kind == b"tEXt":
            key, value = body.split(b"\0", 1)
            texts[key.decode("latin-1")] = value.decode("latin-1")
        elif kind == b"iTXt":
            key, rest = body.split(b"\0", 1)
            compressed, (_, _, value) = rest[0], rest[2:].split(b"\0", 2)
            texts[key.decode("latin-1")] = (zlib.decompress(value) if compressed else value).decode("utf-8")
    return texts


def png_settings(path):
    return json.loads(png_text(path)["danqing"])


def png_pixels(path):
    """(width, height, RGB bytes) of an 8-bit RGB picture."""
    chunks = png_chunks(pathlib.Path(path).read_bytes())
    width, height, depth, colour, _, _, interlace = struct.unpack(">IIBBBBB", chunks[0][1])
    if (depth, colour, interlace) != (8, 2, 0):
        raise ValueError(f"depth {depth}, colour {colour}, interlace {interlace}")
    raw = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    line, rows, above = 3 * width, [], bytes(3 * width)
    if len(raw) != height * (line + 1):
        raise ValueError("pixel data of the wrong size")
    for y in range(height):
        above = unfilter(raw[y * (line + 1)], bytearray(raw[y * (line + 1) + 1:(y + 1) * (line + 1)]), above)
        rows.append(bytes(above))
    return width, height, b"".join(rows)


def unfilter(kind, row, above):
    for i in range(len(row)):
        a, b, c = (row[i - 3] if i >= 3 else 0), above[i], (above[i - 3] if i >= 3 else 0)
        if kind == 1:
            row[i] = (row[i] + a) & 255
        elif kind == 2:
            row[i] = (row[i] + b) & 255
        elif kind == 3:
            row[i] = (row[i] + (a + b) // 2) & 255
        elif kind == 4:
            p = a + b - c
            best = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
            row[i] = (row[i] + best) & 255
        elif kind != 0:
            raise ValueError(f"filter {kind}")
    return row


def safetensors_header(path):
    with open(path, "rb") as f:
        return json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))


def main():
    unittest.main(verbosity=2)
