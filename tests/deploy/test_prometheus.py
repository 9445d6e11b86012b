"""Prometheus: the files of deploy/ against promtool, and every query of alerts and dashboards against a real server that a
real Prometheus scrapes."""
import re
import socket
import urllib.error
import urllib.parse
import urllib.request

from tools import DEPLOY, SOURCE, full_machine, harness, tick, tool
from harness import OwnServerTest, json, main, pathlib, signal, subprocess, threading, unittest, until

import rules_cases

RULES = DEPLOY / "prometheus/rules.yml"
DASHBOARDS = sorted((DEPLOY / "grafana/dashboards").glob("*.json"))
# Series that Prometheus makes itself.
OWN = {"up"}
FUNCTIONS = re.compile(r"\b(danqing_\w+|up)\b")
needs_prometheus = unittest.skipUnless(tool("promtool") and tool("prometheus"), "no prometheus: tools/setup_tests.sh fetches it")


def alerts():
    """(name, query) of every alert, read without a YAML library: the file is ours and written in one way."""
    found, name, block = [], None, None
    for line in RULES.read_text(encoding="utf-8").splitlines():
        if match := re.match(r"      - alert: (\w+)$", line):
            name, block = match[1], None
        elif match := re.match(r"        expr: (.*)$", line):
            block = [] if match[1] == "|" else None
            if block is None:
                found.append((name, match[1]))
        elif block is not None and line.startswith("          "):
            block.append(line.strip())
        elif block:
            found.append((name, "\n".join(block)))
            block = None
    return found


def dashboard_queries():
    for file in DASHBOARDS:
        for panel in json.loads(file.read_text(encoding="utf-8"))["panels"]:
            for target in panel.get("targets", []):
                yield f"{file.name}: {panel['title']}", target["expr"]


class Rules(unittest.TestCase):
    def run_tool(self, *words):
        p = subprocess.run([tool("promtool"), *map(str, words)], capture_output=True, text=True, timeout=60)
        self.assertEqual(p.returncode, 0, p.stdout + p.stderr)
        return p.stdout

    def setUp(self):
        self.dir = pathlib.Path(harness.tempfile.mkdtemp(prefix="danqing-deploy-"))
        self.addCleanup(harness.shutil.rmtree, self.dir, ignore_errors=True)

    def test_every_alert_has_a_case_and_a_section(self):
        names = [name for name, _ in alerts()]
        self.assertEqual(sorted(names), sorted(rules_cases.CASES))
        text = (SOURCE / "docs/operations.md").read_text(encoding="utf-8")
        for name in names:
            self.assertIn(f"`{name}`", text)

    @needs_prometheus
    def test_rules(self):
        self.assertIn("SUCCESS", self.run_tool("check", "rules", RULES))

    @needs_prometheus
    def test_config(self):
        config = (DEPLOY / "prometheus/prometheus.yml").read_text(encoding="utf-8")
        file = self.dir / "prometheus.yml"
        file.write_text(config.replace("/etc/prometheus/rules.yml", str(RULES)), encoding="utf-8")
        self.assertNotIn("/etc/prometheus", file.read_text(encoding="utf-8"))
        self.run_tool("check", "config", file)

    @needs_prometheus
    def test_alerts_fire_when_they_should(self):
        file = self.dir / "test.yml"
        file.write_text(json.dumps(rules_cases.unit_tests(RULES)), encoding="utf-8")
        self.assertIn("SUCCESS", self.run_tool("test", "rules", file))

    @needs_prometheus
    def test_a_wrong_threshold_is_noticed(self):
        rules = self.dir / "rules.yml"
        rules.write_text(RULES.read_text(encoding="utf-8").replace("> 0.97", "> 0.999"), encoding="utf-8")
        file = self.dir / "test.yml"
        file.write_text(json.dumps(rules_cases.unit_tests(rules, "DanqingCardMemoryFull")), encoding="utf-8")
        p = subprocess.run([tool("promtool"), "test", "rules", str(file)], capture_output=True, text=True, timeout=60)
        self.assertNotEqual(p.returncode, 0)
        self.assertIn("DanqingCardMemoryFull", p.stdout + p.stderr)


class Scraped(OwnServerTest):
    """A server with a card (files of one), some jobs good and bad, and Prometheus beside it."""

    def prometheus(self, port):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            own = s.getsockname()[1]
        text = (DEPLOY / "prometheus/prometheus.yml").read_text(encoding="utf-8")
        for old, new in (("/etc/prometheus/rules.yml", str(RULES)), ("server:7860", f"127.0.0.1:{port}"), ("15s", "1s")):
            self.assertIn(old, text)
            text = text.replace(old, new)
        (self.dir / "prometheus.yml").write_text(text, encoding="utf-8")
        log = open(self.dir / "prometheus.log", "w", encoding="utf-8")
        self.addCleanup(log.close)
        p = subprocess.Popen([tool("prometheus"), f"--config.file={self.dir}/prometheus.yml", f"--storage.tsdb.path={self.dir}/tsdb",
                              f"--web.listen-address=127.0.0.1:{own}"], stdout=log, stderr=log, cwd=self.dir)
        self.addCleanup(p.wait)
        self.addCleanup(p.send_signal, signal.SIGTERM)
        self.url = f"http://127.0.0.1:{own}/api/v1/"
        until(lambda: self.query("up") is not None)

    def query(self, expr):
        try:
            with urllib.request.urlopen(self.url + "query?" + urllib.parse.urlencode({"query": expr}), timeout=10) as r:
                return json.load(r)["data"]["result"]
        except urllib.error.HTTPError as e:
            if e.code == 503:  # it starts
                return None
            self.fail(f"{expr}: {e.read().decode()}")
        except OSError:
            return None

    def machine(self):
        tree = self.dir / "tree"
        full_machine(tree)
        s = self.serve("--sysfs-root", tree)
        s.finished(s.submit())
        s.finished(s.submit(deadline_seconds=1, num_inference_steps=150, size="256x256"))
        over = threading.Event()

        def clock():  # the processors' time goes on; only then there is a load
            n = 0
            while not over.wait(0.3):
                tick(tree, n := n + 1)
        thread = threading.Thread(target=clock)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(over.set)
        until(lambda: "danqing_host_cpu_load_ratio " in s.get("/metrics").body.decode())
        return s

    def names(self, server):
        text = server.get("/metrics").body.decode()
        return {line.split("{")[0].split(" ")[0] for line in text.splitlines() if line and line[0] != "#"}

    def test_every_metric_that_is_named_exists(self):
        known = self.names(self.machine())
        used = set()
        for where, expr in [*alerts(), *dashboard_queries()]:
            for name in FUNCTIONS.findall(expr):
                self.assertIn(name, known | OWN, where)
                used.add(name)
        histogram = {re.sub(r"_(bucket|count|sum)$", "", n) for n in used}
        # And the other way round: what the server counts is looked at somewhere.
        self.assertEqual({n for n in known if re.sub(r"_(bucket|count|sum)$", "", n) not in histogram}, set())

    @needs_prometheus
    def test_every_query_is_answered(self):
        server = self.machine()
        self.prometheus(server.port)
        until(lambda: [r for r in self.query('up{job="danqing"} == 1') or []])
        server.finished(server.submit(seed=2))
        until(lambda: (r := self.query("count_over_time(danqing_jobs_running[1m])")) and float(r[0]["value"][1]) >= 4)
        for where, expr in dashboard_queries():
            for variable, value in (("$__rate_interval", "1m"), ("$instance", ".*"), ("$gpu", ".*")):
                expr = expr.replace(variable, value)
            self.assertNotIn("$", expr, where)
            try:
                until(lambda: self.query(expr), 20)
            except AssertionError:
                self.fail(f"{where}: {expr} gives nothing")
        for name, expr in alerts():
            self.assertIsNotNone(self.query(expr), name)
        # The alerts' sides have values too, so that a silent alert is silent because all is well.
        for name, expr in alerts():
            for series in set(re.findall(r"danqing_\w+(?:\{[^}]*\})?", expr)):
                bare = re.sub(r"\{.*", "", series)
                self.assertTrue(self.query(bare), f"{name}: {bare}")
        with urllib.request.urlopen(self.url + "rules", timeout=10) as r:
            loaded = {rule["name"]: rule["health"] for g in json.load(r)["data"]["groups"] for rule in g["rules"]}
        self.assertEqual(set(loaded), {name for name, _ in alerts()})
        self.assertNotIn("err", loaded.values())


if __name__ == "__main__":
    main()
