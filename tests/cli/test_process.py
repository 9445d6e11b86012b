"""The program among other processes: Ctrl-C, terminals, closed and full outputs, help."""
import fcntl
import os
import pty
import re
import resource
import signal
import socket
import struct
import subprocess
import termios

from harness import MINI, ONE, SMALL, TIMEOUT, CliTest, main, png_pixels, png_settings


class Interrupt(CliTest):
    def until(self, stream, pattern):
        for line in iter(stream.readline, ""):
            if re.search(pattern, line):
                return line
        self.fail(f"no line with {pattern!r} before the end")

    def end(self, process):
        out, err = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, 130, err)
        return out, err

    def test_within_a_step(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            p = self.start("generate", "a cat", "-o", "x.png", "--size", "64x64", "--steps", "1000", *ONE, "--dump-tensors", "dump")
            self.until(p.stderr, "^denoise step [1-9]")
            p.send_signal(number)
            out, err = self.end(p)
            self.assertEqual(out, "")
            self.assertEqual(self.files(), [])  # no picture, no part of a tensor file
            self.assertEqual(err.splitlines()[-1], "danqing: [generate] cancelled; 0 of 1 pictures written")
            self.assertNotIn("denoise step 1000", err)

    def test_finished_pictures_are_kept(self):
        p = self.start("generate", "a cat", "-o", "{index:03}.png", "--seed", "1", "--batch", "900", *SMALL)
        first = [p.stdout.readline().strip() for _ in range(2)]
        p.send_signal(signal.SIGINT)
        out, err = self.end(p)
        written = first + out.splitlines()
        self.assertEqual(self.files(), written)  # each one that was told of, and no part files
        self.assertLess(len(written), 900)
        for name in written:
            self.assertEqual(png_pixels(self.dir / name)[:2], (64, 64))
        self.assertEqual(err.splitlines()[-1], f"danqing: [generate] cancelled; {len(written)} of 900 pictures written")

    def test_while_loading(self):
        p = self.start("--verbose", "generate", "a cat", "-o", "x.png", "--steps", "1000", *ONE)
        self.until(p.stderr, "ErnieImagePipeline on ")  # the model is open, no weight is loaded yet
        p.send_signal(signal.SIGINT)
        self.end(p)
        self.assertEqual(self.files(), [])

    def test_enhancer(self):
        p = self.start("enhance", "a cat", "--max-tokens", "512", "--temperature", "100", "--top-p", "1", "--top-k", "0", *ONE)
        p.stdout.read(1)  # it writes
        p.send_signal(signal.SIGINT)
        _, err = self.end(p)
        self.assertEqual(err.splitlines()[-1], "danqing: [enhance] cancelled")


class Outputs(CliTest):
    def broken(self, *args, **popen):
        """Standard output that takes nothing: exit 1 and a line that says so."""
        p = self.start(*args, **popen)
        _, err = p.communicate(timeout=TIMEOUT)
        self.assertEqual(p.returncode, 1, f"{args}: {err}")
        self.assertEqual(err.splitlines()[-1], "danqing: [output] standard output cannot be written")

    def test_reader_goes_away(self):
        for args in (("--help",), ("--version",), ("generate", "a", "b", "-o", "{index}.png", *SMALL), ("enhance", "a cat", *ONE),
                     ("generate", "a", "--json", "-o", "json.png", *SMALL), ("enhance", "a cat", "--json", *ONE)):
            with self.subTest(args=args):
                read, write = os.pipe()
                os.close(read)
                self.broken(*args, stdout=write)
                os.close(write)
        self.assertEqual(self.files(), ["0.png", "1.png", "json.png"])  # the pictures are there nevertheless

    def test_full_disk(self):
        for args in (("--help",), ("--version",), ("generate", "a", "-o", "x.png", *SMALL), ("enhance", "a cat", *ONE)):
            with self.subTest(args=args), open("/dev/full", "w", encoding="utf-8") as full:
                self.broken(*args, stdout=full)

    def test_closed_streams(self):
        """No opened file may take the number of a closed stream: messages would end up in it."""
        def close_all():
            for fd in (0, 1, 2):
                os.close(fd)
        p = self.start("generate", "a cat", "-o", "x.png", "--dump-tensors", "dump", *SMALL, preexec_fn=close_all, stdin=None, stdout=None,
                       stderr=None)
        self.assertEqual(p.wait(TIMEOUT), 1)
        self.assertEqual(png_pixels(self.dir / "x.png")[:2], (64, 64))

    def test_picture_that_cannot_be_written_whole(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))  # like a full disk, after 1000 bytes
        p = self.start("generate", "a cat", "b", "-o", "{index}.png", *SMALL, preexec_fn=limit)
        out, err = p.communicate(timeout=TIMEOUT)
        self.assertEqual(p.returncode, 1, err)
        self.assertEqual(out, "")
        self.assertRegex(err.splitlines()[-1], r"\Adanqing: \[file\] cannot write 0\.png: ")
        self.assertEqual(self.files(), [])

    def test_text_streams(self):
        """The enhancer's words come one by one: each write is one packet of this socket."""
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with here, there:
            p = self.start("enhance", "panda", "--seed", "1", *ONE, stdout=there, text=False)
            there.close()
            packets = list(iter(lambda: here.recv(65536), b""))
            p.communicate(timeout=TIMEOUT)
        self.assertEqual(p.returncode, 0)
        self.assertGreater(len(packets), 5)
        self.assertTrue(all(packet.decode("utf-8") for packet in packets))  # whole characters only
        self.assertTrue(b"".join(packets).endswith(b"\n"))


class Terminal(CliTest):
    def on_terminal(self, *args, columns=100):
        """What a terminal of that width receives on stderr."""
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        p = self.start(*args, stderr=follower, env=self.environment(TERM="xterm"))
        os.close(follower)
        seen = b""
        while True:
            try:
                block = os.read(leader, 65536)
            except OSError:  # how a pty says that the other side is closed
                break
            if not block:
                break
            seen += block
        os.close(leader)
        p.communicate(timeout=TIMEOUT)
        self.assertEqual(p.returncode, 0, seen)
        return seen.decode("utf-8")

    def test_bar(self):
        seen = self.on_terminal("generate", "a cat", "-o", "x.png", "--steps", "30", *ONE)
        bars = re.findall(r"\r\x1b\[K(\[[#-]+\] denoise step [^\r]*)", seen)
        self.assertGreater(len(bars), 1, repr(seen))
        self.assertRegex(bars[0], r"\A\[-{24}\] denoise step 0/30\Z")
        self.assertRegex(bars[-1], r"\A\[#{24}\] denoise step 30/30, [\d.]+ (it/s|s/it), ETA 0\.00 s\Z")
        for stage in ("load weights", "encode prompt", "decode picture"):
            self.assertIn(stage, seen)
        last = seen.split("\r\x1b[K")[-1]  # the bar is taken off before the closing line
        self.assertRegex(last, r"\A1 picture in ")

    def test_several_pictures(self):
        seen = self.on_terminal("generate", "a", "b", "-o", "{index}.png", *SMALL)
        self.assertIn("picture 2/2 denoise step", seen)

    def test_narrow(self):
        seen = self.on_terminal("generate", "a cat", "-o", "x.png", "--steps", "3", "--size", "64x64", *ONE, columns=30)
        for line in re.findall(r"\r\x1b\[K([^\r\n]*)\r\x1b", seen):
            self.assertLess(len(line), 30)

    def test_quiet(self):
        self.assertEqual(self.on_terminal("generate", "a cat", "-o", "x.png", "--quiet", *SMALL), "")


class Help(CliTest):
    COMMANDS = ("generate", "enhance", "inspect", "verify", "bench")

    def test_help(self):
        for args in ((), ("--help",)):
            r = self.run_ok(*args)
            self.assertEqual(r.stderr, "")
            self.assertIn("danqing generate \"a red apple\"", r.stdout)
            self.assertIn("130 cancelled", r.stdout)
            for command in self.COMMANDS:
                self.assertIn(f"\n  {command} ", r.stdout)

    def test_help_of_commands(self):
        for command in self.COMMANDS:
            with self.subTest(command=command):
                r = self.run_ok(command, "--help")
                self.assertEqual(r.stderr, "")
                self.assertRegex(r.stdout, rf"Examples:\n(  .*\n)*  danqing {command} ")
                self.assertNotIn("130 cancelled", r.stdout)  # its own examples, not those of the whole program

    def test_every_option_of_generate_is_explained(self):
        text = self.run_ok("generate", "--help").stdout
        for option in ("--model", "--output", "--width", "--height", "--size", "--steps", "--guidance", "--negative", "--seed", "--batch",
                       "--prompt-enhancer", "--sampler", "--shift", "--dtype", "--threads", "--device", "--json", "--quiet",
                       "--dump-tensors", "--prompt-file", "--transformer", "--text-encoder", "--vae", "--tokenizer"):
            self.assertRegex(text, rf"(?m)^ .*{option}\b")

    def test_version(self):
        text = self.run_ok("--version").stdout
        self.assertRegex(text, r"\Adanqing \d+\.\d+\.\d+\nggml \S+\n")
        self.assertRegex(text, r"\ndevice cpu: ")
        self.assertRegex(text, r"\ncpu features: \S+")


class Places(CliTest):
    def test_from_anywhere(self):
        (self.dir / "空 间").mkdir()
        self.generate("a cat", "-m", os.path.relpath(MINI, self.dir / "空 间"), "-o", "../x.png", *SMALL, cwd=self.dir / "空 间")
        self.generate("a cat", "-o", self.dir / "y.png", *SMALL, cwd="/")
        self.assertEqual(self.files(), ["x.png", "y.png"])
        self.assertEqual(png_settings(self.dir / "x.png")["model"], "danqing-mini")

    def test_two_at_once_take_different_names(self):
        runs = [self.start("generate", "a cat", "-o", "x.png", "--seed", str(i), *SMALL, stdout=subprocess.PIPE) for i in range(3)]
        names = []
        for p in runs:
            out, err = p.communicate(timeout=TIMEOUT)
            self.assertEqual(p.returncode, 0, err)
            names.append(out.strip())
        self.assertEqual(sorted(names), ["x-2.png", "x-3.png", "x.png"])
        self.assertEqual([png_settings(self.dir / n)["seed"] for n in names], [0, 1, 2])


if __name__ == "__main__":
    main()
