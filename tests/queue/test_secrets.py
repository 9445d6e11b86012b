"""Who may use the queue: TLS, user and password, token; and that no secret is printed."""
from queue_harness import *


def certificate(directory, name, *more):
    subprocess.run(["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-subj", f"/CN={name}",
                    *more], cwd=directory, check=True, capture_output=True)


class Secrets(QueueTest):

    def draws(self, server):
        self.assertEqual(server.finished(server.submit())["status"], "done")

    def test_user_and_password(self):
        nats = self.nats("--user", "anna", "--pass", "s3cret-word")
        password = self.dir / "password"
        password.write_text("s3cret-word\n")
        server = self.serve(nats.url, "--queue-user", "anna", "--queue-password-file", password)
        worker = self.worker(nats.url, "--queue-user", "anna", env={"DANQING_QUEUE_PASSWORD": "s3cret-word"})
        self.draws(server)
        printed = command("serve", "--print-config", "--queue", nats.url, "--queue-user", "anna",
                          env={"DANQING_QUEUE_PASSWORD": "s3cret-word"}).stdout
        for text in (server.log(), worker.log(), printed):
            self.assertNotIn("s3cret", text)
        wrong = self.worker(nats.url, "--queue-user", "anna", env={"DANQING_QUEUE_PASSWORD": "wrong"})
        self.assertEqual(wrong.process.wait(TIMEOUT), 1)
        self.assertIn("refuses", wrong.log())
        r = command("queue", "stats", "--queue", nats.url)
        self.assertEqual(r.returncode, 1)
        self.assertEqual(len(r.stderr.strip().splitlines()), 1, r.stderr)

    def test_token(self):
        nats = self.nats("--auth", "t0ken-word")
        server = self.serve(nats.url, env={"DANQING_QUEUE_TOKEN": "t0ken-word"})
        file = self.dir / "token"
        file.write_text("t0ken-word\n")
        self.worker(nats.url, "--queue-token-file", file)
        self.draws(server)

    def test_tls_both_ways(self):
        d = self.dir
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem",
                        "-days", "2", "-subj", "/CN=test"], cwd=d, check=True, capture_output=True)
        (d / "names").write_text("subjectAltName=IP:127.0.0.1\n")
        for name in ("server", "client"):
            certificate(d, name, "-out", f"{name}.csr")
            subprocess.run(["openssl", "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                            "-CAcreateserial", "-days", "2", "-out", f"{name}.pem", "-extfile", "names"], cwd=d,
                           check=True, capture_output=True)
        nats = self.nats("--tlsverify", "--tlscert", str(d / "server.pem"), "--tlskey", str(d / "server.key"),
                         "--tlscacert", str(d / "ca.pem"), scheme="tls")
        flags = ["--queue-tls-ca", d / "ca.pem", "--queue-tls-cert", d / "client.pem", "--queue-tls-key",
                 d / "client.key"]
        server = self.serve(nats.url, *flags)
        self.worker(nats.url, *flags)
        self.draws(server)
        r = command("queue", "stats", "--queue", nats.url, "--queue-tls-ca", d / "ca.pem")
        self.assertEqual(r.returncode, 1, "without a certificate of its own")

    def test_bad_settings_are_said_in_one_line(self):
        empty = self.dir / "empty"
        empty.write_text("\n")
        bad = self.dir / "bad.pem"
        bad.write_text("no certificate\n")
        url = "nats://127.0.0.1:1"
        for says, code, words in (
                ("--queue nats://", 2, []), ("nats://HOST", 2, ["--queue", "http://x"]),
                ("password", 2, ["--queue", "nats://anna:word@127.0.0.1"]), ("nats://HOST", 2, ["--queue", "nats://"]),
                ("belong together", 2, ["--queue", url, "--queue-tls-cert", bad]),
                ("PEM", 3, ["--queue", url, "--queue-tls-ca", bad]),
                ("empty", 3, ["--queue", url, "--queue-token-file", empty]),
                ("/none", 3, ["--queue", url, "--queue-creds", "/none"]),
                ("s, m, l or xl", 2, ["--queue", url, "--size-classes", "huge"]),
                ("prefix", 2, ["--queue", url, "--queue-prefix", "a.b"])):
            r = command("worker", *words)
            self.assertEqual(r.returncode, code, (words, r.stderr))
            self.assertIn(says, r.stderr)
            self.assertNotIn("word@", r.stderr)
        r = command("queue", "stats", "--queue", url)
        self.assertEqual(r.returncode, 1)
        self.assertIn("cannot be reached", r.stderr)
        self.assertEqual(command("queue", "dead", "show", "../x", "--queue", url).returncode, 2)
        self.assertEqual(command("queue", "stats", "--data", self.dir / "none").returncode, 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
