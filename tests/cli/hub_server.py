"""A hub on loopback that misbehaves on demand: Hugging Face's and ModelScope's addresses, and plain files.

Faults are rules: {"path": part of the address, "times": how often (None: always), ...what happens}. Every request is
noted with its headers, so that tests can count bytes and look for secrets.
"""
import hashlib
import http.server
import json
import threading
import time
import urllib.parse


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Hub:
    """`files`: {path: bytes} of the repository `name`. Use as a context manager."""

    def __init__(self, files, name="tester/model", commit="c" * 40):
        self.files, self.name, self.commit = dict(files), name, commit
        self.rules, self.requests = [], []
        self.ranges = True          # answers Range
        self.blobs = True           # sizes and hashes in the revision's answer, else in the tree
        self.page = 1000            # entries a page of the tree
        self.wrong = {}             # path -> fields of the listing that are replaced
        self.extra = []             # further entries of the listing
        self.etags = True
        self.lock = threading.Lock()
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                hub.answer(self)

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, address):
                pass  # clients that were killed

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.other = f"http://localhost:{self.server.server_port}"  # another origin on the same server

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc):
        self.server.shutdown()
        self.server.server_close()

    def fault(self, path, times=1, **what):
        self.rules.append({"path": path, "times": times, **what})

    def rule(self, path):
        with self.lock:
            for r in self.rules:
                if r["path"] in path and r["times"] != 0:
                    if r["times"] is not None:
                        r["times"] -= 1
                    return r
        return {}

    # what was asked for
    def asked(self, part):
        with self.lock:
            return [r for r in self.requests if part in r["path"]]

    def forget(self):
        with self.lock:
            self.requests.clear()

    def bytes_asked(self, part):
        """Sum of the ranges (or whole files) that were asked for and answered."""
        return sum(r["bytes"] for r in self.asked(part))

    # listings
    def entry(self, path):
        data = self.files[path]
        lfs = path.endswith((".safetensors", ".gguf", ".bin"))
        e = {"rfilename": path, "size": len(data), "blobId": git_sha1(data)}
        if lfs:
            e["lfs"] = {"sha256": sha256(data), "size": len(data), "pointerSize": 130}
        e.update(self.wrong.get(path, {}))
        if lfs:
            e["lfs"]["size"] = e["size"]
        return e

    def listing(self, path):
        if path.startswith(f"/api/models/{self.name}/revision/"):
            names = sorted(self.files)
            if not self.blobs:
                return {"id": self.name, "sha": self.commit, "siblings": [{"rfilename": n} for n in names]}
            return {"id": self.name, "sha": self.commit, "siblings": [self.entry(n) for n in names] + self.extra}
        return None

    def tree(self, path, query):
        names, at = sorted(self.files), int(query.get("cursor", ["0"])[0])
        out = []
        for n in names[at:at + self.page]:
            e = self.entry(n)
            t = {"type": "file", "path": n, "size": e["size"], "oid": e["blobId"]}
            if "lfs" in e:
                t["lfs"] = {"oid": e["lfs"]["sha256"], "size": e["size"]}
            out.append(t)
        link = None
        if at + self.page < len(names):
            link = f'<{self.url}{path}?recursive=true&cursor={at + self.page}>; rel="next"'
        return out, link

    def modelscope(self):
        files = [{"Path": "transformer", "Type": "tree", "Size": 0}]
        for n in sorted(self.files):
            files.append({"Path": n, "Name": n.split("/")[-1], "Type": "blob", "Size": len(self.files[n]),
                          "Sha256": sha256(self.files[n]), **self.wrong.get(n, {})})
        return {"Code": 200, "Success": True, "Data": {"Files": files}}

    def file_of(self, path, query):
        prefix = f"/{self.name}/resolve/"
        if path.startswith(prefix):
            return urllib.parse.unquote(path[len(prefix):].split("/", 1)[1])
        if path == f"/api/v1/models/{self.name}/repo":
            return query["FilePath"][0]
        if path.startswith("/files/"):
            return urllib.parse.unquote(path[len("/files/"):])
        return None

    def answer(self, h):
        url = urllib.parse.urlsplit(h.path)
        query = urllib.parse.parse_qs(url.query)
        note = {"path": h.path, "headers": {k.lower(): v for k, v in h.headers.items()}, "bytes": 0}
        with self.lock:
            self.requests.append(note)
        rule = self.rule(h.path)
        if "wait" in rule:
            time.sleep(rule["wait"])
        if "status" in rule:
            return self.send(h, rule["status"], rule.get("body", b"no"), rule.get("headers", {}))
        if "html" in rule:
            return self.send(h, 200, rule["html"], {"Content-Type": rule.get("type", "text/html; charset=utf-8")})
        if "redirect" in rule:
            return self.send(h, 302, b"", {"Location": rule["redirect"]})
        json_answer, link = self.listing(url.path), None
        if url.path.startswith(f"/api/models/{self.name}/tree/"):
            json_answer, link = self.tree(url.path, query)
        if url.path == f"/api/v1/models/{self.name}/repo/files":
            json_answer = self.modelscope()
        if json_answer is not None:
            headers = {"Content-Type": "application/json"}
            if link:
                headers["Link"] = link
            return self.send(h, 200, json.dumps(json_answer).encode(), headers)
        name = self.file_of(url.path, query)
        if name not in self.files:
            return self.send(h, 404, b"not found", {})
        self.send_file(h, self.files[name], rule, note)

    def send(self, h, status, body, headers):
        h.send_response(status)
        for k, v in headers.items():
            h.send_header(k, v)
        h.send_header("Content-Length", str(len(body)))
        h.end_headers()
        h.wfile.write(body)

    def send_file(self, h, data, rule, note):
        etag = rule.get("etag", '"%s"' % hashlib.md5(data).hexdigest())
        begin, end, status = 0, len(data), 200
        wanted = h.headers.get("Range")
        if wanted and self.ranges and h.headers.get("If-Range") in (None, etag):
            first, last = wanted.removeprefix("bytes=").split("-")
            begin, end, status = int(first), min(int(last) + 1 if last else len(data), len(data)), 206
            if begin >= len(data):
                return self.send(h, 416, b"", {"Content-Range": f"bytes */{len(data)}"})
        part = data[begin:end]
        if "corrupt" in rule:
            part = bytes([part[0] ^ 1]) + part[1:]
        length = rule.get("length", len(part))
        h.send_response(status)
        if status == 206:
            shift = rule.get("shift", 0)
            h.send_header("Content-Range", f"bytes {begin + shift}-{end - 1 + shift}/{rule.get('total', len(data))}")
        if self.etags:
            h.send_header("ETag", etag)
        h.send_header("Content-Type", "application/octet-stream")
        if rule.get("chunked"):
            h.send_header("Connection", "close")
            h.close_connection = True
        else:
            h.send_header("Content-Length", str(length))
        h.end_headers()
        note["bytes"] = len(part)
        if "drop" in rule:  # after so many bytes
            h.wfile.write(part[:rule["drop"]])
            h.wfile.flush()
            h.close_connection = True
            return
        if "slow" in rule:  # bytes a second
            for i in range(0, len(part), 16384):
                h.wfile.write(part[i:i + 16384])
                time.sleep(16384 / rule["slow"])
            return
        h.wfile.write(part[:length] if length < len(part) else part)
        if length > len(part):
            h.close_connection = True
