"""openapi.json is true: every operation of it is there; schemathesis finds no answer that it does not tell of."""
import sys

from harness import *

TOOL = pathlib.Path(sys.prefix) / "bin/schemathesis"
# Unknown fields are accepted by design, so "negative data" may pass; and valid requests may be beyond a limit.
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,unsupported_method"


class OpenApi(ServerTest):
    FLAGS = ("--max-steps", "2", "--max-side", "128", "--max-images", "2", "--log-level", "error")

    def test_every_operation_is_there(self):
        doc = self.server.get("/openapi.json").json()
        self.assertEqual(doc["openapi"], "3.1.0")
        for path, item in doc["paths"].items():
            for method, operation in item.items():
                real = path.replace("{id}", "job_" + "0" * 24).replace("{file}", "0.png")
                r = self.server.request(method.upper(), real, {} if method == "post" else None)
                self.assertIn(str(r.status), operation["responses"], f"{method} {path}: {r.body[:200]!r}")
                self.assertNotEqual(r.status, 405, path)
                self.assertNotIn(b"nothing at this address", r.body, path)

    def test_references_resolve(self):
        doc = self.server.get("/openapi.json").json()

        def walk(node):
            if isinstance(node, dict):
                if "$ref" in node:
                    self.assertIn(node["$ref"].rsplit("/", 1)[1], doc["components"]["schemas"])
                for v in node.values():
                    walk(v)
            elif isinstance(node, list):
                for v in node:
                    walk(v)
        walk(doc)

    @unittest.skipUnless(TOOL.exists(), "skipped: schemathesis is not installed (tools/setup_tests.sh)")
    def test_schemathesis(self):
        r = subprocess.run([TOOL, "run", self.server.url + "/openapi.json", "--checks", CHECKS, "--max-examples", "3", "--max-time", "25",
                            "--generation-deterministic", "--no-shrink", "--phases", "examples,coverage,fuzzing", "--request-timeout", "60",
                            "--suppress-health-check", "all"], capture_output=True, text=True, cwd=self.dir, timeout=300)
        self.assertEqual(r.returncode, 0, r.stdout[-6000:] + r.stderr[-2000:])
        self.assertEqual(self.server.get("/health/live").status, 200)


if __name__ == "__main__":
    main()
