#!/usr/bin/env python3
"""Runs a target of deploy/Containerfile without a container engine, in roots made by debootstrap, and tries the result:
the server as the image's user, on a read-only root, with its health check and one picture. Root only; needs debootstrap
and the network.

    sudo bench/container_steps.py --work /var/tmp/danqing-image [--target cpu]

Understands what the Containerfile uses: ARG, FROM, WORKDIR, COPY, RUN, ENV, USER, ENTRYPOINT, CMD, HEALTHCHECK. A base
image is a debootstrap root of --suite, whatever its name says, so only targets on Debian's own base are proven by it.
"""
import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

SOURCE = pathlib.Path(__file__).resolve().parent.parent
IGNORED = ("COMMENT", "VOLUME", "EXPOSE", "STOPSIGNAL")


def parse(text):
    """The stages by name, each with its base and its (instruction, rest) pairs, and the arguments before the first."""
    lines = re.sub(r"\\\n", " ", "\n".join(x for x in text.splitlines() if not x.lstrip().startswith("#"))).splitlines()
    arguments, stages, stage = {}, {}, None
    for line in filter(str.strip, lines):
        word, rest = line.strip().split(None, 1)
        if word == "ARG" and stage is None:
            name, _, value = rest.partition("=")
            arguments[name] = expand(value, arguments)
        elif word == "FROM":
            base, _, name = rest.partition(" AS ")
            stage = stages[name] = {"base": expand(base, arguments), "steps": []}
        else:
            stage["steps"].append((word, rest))
    return arguments, stages


def expand(text, values):
    return re.sub(r"\$\{(\w+)\}", lambda m: values[m[1]], text)


class Root:
    """One stage's file system."""

    def __init__(self, path, base):
        self.path, self.env, self.cwd, self.user = path, {}, "/", None
        self.entrypoint, self.cmd, self.health = [], [], []
        if path.exists():
            sh("rm", "-rf", "--one-file-system", path)
        sh("cp", "-a", base, path)
        # The network as this machine has it: names, mirrors, certificates.
        for file in ("etc/resolv.conf", "etc/ssl/certs/ca-certificates.crt"):
            if pathlib.Path("/", file).exists():
                (path / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(pathlib.Path("/", file), path / file)

    def run(self, command, **kw):
        env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
        env |= {k: v for k, v in os.environ.items() if k.startswith(("PIP_", "SSL_CERT", "http_proxy", "https_proxy", "no_proxy", "CCACHE_"))}
        env |= self.env
        # /proc and /dev live as long as the command: its own mounts, in its own namespace.
        script = 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" /bin/sh -c "cd $1 && $2"'
        sh("unshare", "--mount", "--pid", "--fork", "--", "sh", "-c", script, self.path, shlex.quote(self.cwd), command, env=env, **kw)

    def step(self, word, rest, roots, arguments):
        if word == "ARG":
            name, _, value = rest.partition("=")
            self.env.setdefault(name, arguments.get(name, value))
        elif word == "ENV":
            self.env |= dict(x.split("=", 1) for x in shlex.split(rest))
        elif word == "WORKDIR":
            self.cwd = rest
            self.inside(rest).mkdir(parents=True, exist_ok=True)
        elif word == "COPY":
            self.copy(rest.split(), roots)
        elif word == "RUN":
            self.run(rest)
        elif word == "USER":
            self.user = rest
        elif word == "ENTRYPOINT":
            self.entrypoint = json.loads(rest)
        elif word == "CMD":
            self.cmd = json.loads(rest)
        elif word == "HEALTHCHECK":
            self.health = json.loads(rest[rest.index("["):])
        elif word not in IGNORED:
            sys.exit(f"container_steps: cannot do {word}")

    def inside(self, path):
        return self.path / str(pathlib.PurePosixPath(self.cwd, path)).lstrip("/")

    def copy(self, words, roots):
        if words[0].startswith("--from="):
            stage, (source, target) = words[0][7:], words[1:]
            return sh("cp", "-a", f"{roots[stage].inside(source)}/.", self.inside(target))
        source, target = words
        # The checkout, without what the image's ignore file names.
        ignored = (SOURCE / "deploy/Containerfile.dockerignore").read_text().split()
        excludes = [f"--exclude=./{x}" if "*" not in x or not x.startswith("**") else f"--exclude={x[3:]}" for x in ignored]
        pack = subprocess.Popen(["tar", "-C", SOURCE / source, *excludes, "-c", "."], stdout=subprocess.PIPE)
        subprocess.run(["tar", "-C", self.inside(target), "--no-same-owner", "-x"], stdin=pack.stdout, check=True)
        if pack.wait() != 0:
            sys.exit("container_steps: the checkout cannot be read")


def sh(*words, **kw):
    subprocess.run([str(w) for w in words], check=True, **kw)


def base_root(work, suite, mirror):
    base = work / f"base-{suite}"
    if not (base / "etc/debian_version").exists():
        sh("debootstrap", "--variant=minbase", suite, base, mirror)
    return base


def try_image(root, work, port):
    """The image as `docker run --read-only --tmpfs /tmp -v data:/var/lib/danqing -u USER` starts it."""
    data = work / "data"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir()
    uid, gid = map(int, root.user.split(":"))
    os.chown(data, uid, gid)
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **root.env, "DANQING_HOST": "127.0.0.1", "DANQING_PORT": str(port)}
    script = ('mount --bind "$0" "$0" && mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount -t tmpfs tmpfs "$0/tmp" && '
              'mount --bind "$1" "$0/var/lib/danqing" && mount -o remount,ro,bind "$0" && '
              'exec chroot --userspec="$2" "$0" /usr/bin/setpriv --no-new-privs "${@:3}"')
    inside = ["unshare", "--mount", "--", "bash", "-c", script, str(root.path), str(data), root.user]
    server = subprocess.Popen(inside + root.entrypoint + root.cmd, env=env, cwd="/", stdout=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().strip()
        for _ in range(600):
            health = subprocess.run([root.path / root.health[0].lstrip("/")], env=env, stderr=subprocess.DEVNULL)
            if health.returncode == 0:
                break
            time.sleep(0.1)
        else:
            sys.exit("container_steps: the health check never passed")
        status = pathlib.Path(f"/proc/{server.pid}/status").read_text()
        print("health check passed; the process:", re.search(r"^Uid:.*$", status, re.M)[0].split()[1], re.search(r"^NoNewPrivs:.*$", status, re.M)[0])
        writes = subprocess.run(["nsenter", f"--mount=/proc/{server.pid}/ns/mnt", "touch", root.path / "usr/written"], capture_output=True, text=True)
        if writes.returncode == 0 or "Read-only" not in writes.stderr:
            sys.exit("container_steps: the root can be written to")
        print("the root is read-only:", writes.stderr.strip())
        body = json.dumps({"prompt": "a red apple", "size": "128x128", "response_format": "b64_json"}).encode()
        start = time.monotonic()
        answer = json.load(urllib.request.urlopen(urllib.request.Request(f"{url}/v1/images/generations", body, {"Content-Type": "application/json"}), timeout=300))
        print(f"a picture of {len(answer['data'][0]['b64_json']) * 3 // 4} bytes after {time.monotonic() - start:.1f} s")
    finally:
        server.send_signal(signal.SIGTERM)
        if server.wait(60) != 0:
            sys.exit(f"container_steps: the server ended with {server.returncode}")
    print("ended by SIGTERM with 0")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--work", type=pathlib.Path, required=True, help="directory for the roots (several GB)")
    p.add_argument("--target", default="cpu")
    p.add_argument("--suite", default="bookworm")
    p.add_argument("--mirror", default="http://deb.debian.org/debian")
    p.add_argument("--port", type=int, default=17860)
    p.add_argument("--only-try", action="store_true", help="use the image that an earlier run made")
    o = p.parse_args()
    if os.geteuid() != 0:
        sys.exit("container_steps: needs root (debootstrap, chroot, mount)")
    o.work = o.work.resolve()
    o.work.mkdir(parents=True, exist_ok=True)
    arguments, stages = parse((SOURCE / "deploy/Containerfile").read_text())
    base = base_root(o.work, o.suite, o.mirror)
    roots, seconds = {}, {}
    for name in (f"build-{o.target}", o.target):
        start = time.monotonic()
        path = o.work / name
        roots[name] = root = Root.__new__(Root) if o.only_try else Root(path, base)
        if o.only_try:
            root.path, root.env, root.cwd, root.user = path, {}, "/", None
        for word, rest in stages[name]["steps"]:
            if o.only_try and word in ("RUN", "COPY"):
                continue
            print(f"[{name}] {word} {rest}", flush=True)
            root.step(word, rest, roots, arguments)
        seconds[name] = time.monotonic() - start
        size = subprocess.run(["du", "-sm", "--one-file-system", path], capture_output=True, text=True, check=True).stdout.split()[0]
        print(f"[{name}] {seconds[name]:.0f} s, {size} MB", flush=True)
    try_image(roots[o.target], o.work, o.port)


if __name__ == "__main__":
    main()
