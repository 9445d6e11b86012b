"""The log of a real server, line by line, against the list of fields that Elasticsearch is told about."""
import datetime
import re

from tools import DEPLOY, SOURCE, harness
from harness import LONG, SMALL, OwnServerTest, json, main, unittest, until

FIELDS = json.loads((SOURCE / "tests/deploy/ecs_fields.json").read_text(encoding="utf-8"))
ALWAYS = {"@timestamp", "log.level", "message", "ecs.version", "service.name", "service.version", "event.dataset", "host.name", "process.pid"}
# What Elasticsearch takes for a type without changing it.
TAKES = {"date": lambda v: isinstance(v, str) and bool(datetime.datetime.strptime(v, "%Y-%m-%dT%H:%M:%S.%fZ")),
         "keyword": lambda v: isinstance(v, str) and len(v) <= 1024, "wildcard": lambda v: isinstance(v, str), "text": lambda v: isinstance(v, str),
         "long": lambda v: isinstance(v, int) and not isinstance(v, bool) and -2**63 <= v < 2**63}
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


class Log(OwnServerTest):
    def lines(self, server):
        out = []
        for text in server.log().splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                self.fail(f"not JSON: {text}")
            for field, value in line.items():
                self.assertIn(field, FIELDS, text)
                self.assertTrue(TAKES[FIELDS[field]](value), f"{field} is no {FIELDS[field]}: {text}")
            self.assertEqual(ALWAYS - set(line), set(), text)
            self.assertIn(line["log.level"], ("debug", "info", "warning", "error"))
            out.append(line)
        return out

    def one(self, lines, action, trace):
        found = [x for x in lines if x.get("event.action") == action and x.get("trace.id") == trace]
        self.assertEqual(len(found), 1, f"{action}: {found}")
        return found[0]

    def test_one_job_from_request_to_picture(self):
        s = self.serve("--log-level", "debug")
        job = s.post("/v1/jobs", SMALL, headers={"traceparent": PARENT}).json()["id"]
        s.finished(job)
        self.assertEqual(s.stop(), 0)
        lines = self.lines(s)
        mine = [x for x in lines if x.get("trace.id") == TRACE]
        request, = (x for x in mine if x["message"] == "request")
        self.assertEqual((request["http.request.method"], request["url.path"], request["http.response.status_code"], request["client.address"]),
                         ("POST", "/v1/jobs", 202, "127.0.0.1"))
        self.assertTrue(0 < request["event.duration"] < 60e9)
        self.assertTrue(any(x["event.action"] == "job-accepted" and x["danqing.job.id"] == job for x in mine if "event.action" in x))
        end = self.one(lines, "job-finished", TRACE)
        self.assertEqual((end["event.outcome"], end["danqing.job.id"], end["message"]), ("success", job, "job done"))
        self.assertTrue(1e6 < end["event.duration"] < 600e9)  # nanoseconds

    def test_steps_and_the_model(self):
        s = self.serve("--log-level", "debug", "--log-prompts")
        job = s.post("/v1/jobs", {**SMALL, "prompt": 'a "red" 苹果\n{"x": 1}'}, headers={"traceparent": PARENT}).json()["id"]
        s.finished(job)
        s.stop()
        lines = self.lines(s)
        accepted = self.one(lines, "job-accepted", TRACE)
        self.assertEqual((accepted["gen_ai.request.model"], accepted["gen_ai.output.type"], accepted["gen_ai.request.choice.count"]), ("danqing-mini", "image", 1))
        message, = json.loads(accepted["gen_ai.input.messages"])
        self.assertEqual(message, {"role": "user", "parts": [{"type": "text", "content": 'a "red" 苹果\n{"x": 1}'}]})
        started = self.one(lines, "job-started", TRACE)
        self.assertTrue(0 <= started["event.duration"] < 60e9)
        steps = [x for x in lines if x.get("event.action") == "job-step" and x["trace.id"] == TRACE]
        self.assertEqual([(x["danqing.job.step"], x["danqing.job.steps"], x["danqing.job.stage"]) for x in steps], [(1, 2, "denoise"), (2, 2, "denoise")])
        self.assertTrue(all(1e4 < x["event.duration"] < 60e9 and x["danqing.job.id"] == job for x in steps))
        stages = [x["danqing.job.stage"] for x in lines if x.get("event.action") == "job-stage" and x["trace.id"] == TRACE]
        self.assertEqual(len(stages), len(set(stages)))
        self.assertIn("decode", stages)

    def test_prompts_only_if_asked(self):
        s = self.serve("--log-level", "debug")
        s.finished(s.submit(prompt="a secret thing"))
        s.stop()
        self.assertNotIn("secret", s.log())
        self.assertFalse(any("gen_ai.input.messages" in x for x in self.lines(s)))
        self.assertTrue(any("gen_ai.request.model" in x for x in self.lines(s)))

    def test_a_failed_job(self):
        s = self.serve()
        job = s.submit(**LONG, deadline_seconds=1)
        self.assertEqual(s.finished(job)["status"], "failed")
        trace = s.get("/v1/queue").headers["x-request-id"]
        s.stop()
        lines = self.lines(s)
        end, = (x for x in lines if x.get("event.action") == "job-finished")
        self.assertEqual((end["event.outcome"], end["log.level"], end["danqing.job.id"]), ("failure", "warning", job))
        self.assertIn("deadline", end["error.code"])
        self.assertTrue(end["error.message"])
        self.assertNotEqual(end["trace.id"], trace)

    def test_bad_parents_begin_a_trace_of_our_own(self):
        s = self.serve()
        good = (PARENT, f"01-{TRACE}-00f067aa0ba902b7-01-and-what-comes-later", f"00-{TRACE}-00f067aa0ba902b7-00")
        bad = ("", "x", TRACE, f"00-{'0' * 32}-00f067aa0ba902b7-01", f"00-{TRACE}-{'0' * 16}-01", f"ff-{TRACE}-00f067aa0ba902b7-01",
               f"00-{TRACE.upper()}-00f067aa0ba902b7-01", f"00-{TRACE}-00f067aa0ba902b7-0", f"00-{TRACE}-00f067aa0ba902b7-01-more",
               f"00-{TRACE}-00f067aa0ba902bz-01", f"00_{TRACE}-00f067aa0ba902b7-01", "00-" + "é" * 26 + "-01")
        for parent in good:
            self.assertEqual(s.get("/v1/queue", headers={"traceparent": parent}).headers["x-request-id"], TRACE, parent)
        seen = set()
        for parent in bad:
            trace = s.get("/v1/queue", headers={"traceparent": parent.encode()}).headers["x-request-id"]
            self.assertRegex(trace, "^[0-9a-f]{32}$")
            self.assertNotEqual(trace, TRACE, parent)
            seen.add(trace)
        self.assertEqual(len(seen), len(bad))

    def test_the_engine_speaks_the_same_way(self):
        (self.dir / "data").write_text("a file in its place")  # storage says so by the engine's log
        s = self.serve("--log-level", "debug")
        s.finished(s.submit())
        s.stop()
        lines = self.lines(s)
        engine = [x for x in lines if x.get("log.logger") == "danqing.engine"]
        self.assertTrue(any("nothing can be written" in x["message"] and x["log.level"] == "error" for x in engine), engine)

    def test_text_has_the_engine_too(self):
        (self.dir / "data").write_text("a file in its place")
        s = self.serve("--log-format", "text")
        s.stop()
        line, = (x for x in s.log().splitlines() if "nothing can be written" in x and "danqing.engine" in x)
        self.assertRegex(line, r"^\d{4}-\d\d-\d\dT\S+Z error \[storage\] ")


class Index(unittest.TestCase):
    """What Elasticsearch and Kibana are given."""

    def flat(self, node, path=()):
        for name, child in node.items():
            if "properties" in child:
                yield from self.flat(child["properties"], (*path, name))
            else:
                yield ".".join((*path, name)), child["type"]

    def test_every_field_has_its_type(self):
        template = json.loads((DEPLOY / "elastic/index-template.json").read_text(encoding="utf-8"))
        mapping = dict(self.flat(template["template"]["mappings"]["properties"]))
        kinds = {"text": "match_only_text"}
        for field, kind in FIELDS.items():
            self.assertEqual(mapping.pop(field), kinds.get(kind, kind), field)
        self.assertEqual(set(mapping), {"data_stream.type", "data_stream.dataset", "data_stream.namespace"})
        # Filebeat writes where the template matches.
        index = re.search(r"index: (\S+)", (DEPLOY / "elastic/filebeat.yml").read_text(encoding="utf-8"))[1]
        pattern, = template["index_patterns"]
        self.assertTrue(index.startswith(pattern[:-1]) and pattern.endswith("*"))
        self.assertIn("data_stream", template)

    def test_saved_search(self):
        objects = [json.loads(x) for x in (DEPLOY / "elastic/saved-objects.ndjson").read_text(encoding="utf-8").splitlines()]
        ids = {(o["type"], o["id"]) for o in objects}
        self.assertEqual(len(ids), len(objects))
        titles = set()
        for o in objects:
            for r in o["references"]:
                self.assertIn((r["type"], r["id"]), ids)
            if o["type"] == "index-pattern":
                self.assertEqual((o["attributes"]["title"], o["attributes"]["timeFieldName"]), ("logs-danqing-*", "@timestamp"))
                continue
            titles.add(o["attributes"]["title"])
            self.assertEqual(o["attributes"]["sort"], [["@timestamp", "asc"]])
            for column in o["attributes"]["columns"]:
                self.assertIn(column, FIELDS)
            source = json.loads(o["attributes"]["kibanaSavedObjectMeta"]["searchSourceJSON"])
            self.assertIn(source["indexRefName"], [r["name"] for r in o["references"]])
            for field in re.findall(r"([\w.]+) :", source["query"]["query"]):
                self.assertIn(field, FIELDS)
        self.assertEqual(titles, {"One job from request to picture", "一个作业：从请求到图片"})


if __name__ == "__main__":
    main()
