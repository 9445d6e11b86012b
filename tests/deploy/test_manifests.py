"""Every YAML and JSON file of deploy/ against the schema of whoever reads it."""
import copy
import importlib.util
import json
import re
import sys

from tools import DEPLOY, SOURCE, harness, tool
from harness import main, pathlib, subprocess, unittest

have_schemas = all(importlib.util.find_spec(m) for m in ("yaml", "check_jsonschema", "kubernetes_validate"))
if have_schemas:
    import yaml
needs_schemas = unittest.skipUnless(have_schemas, "no schemas: tools/setup_tests.sh fetches them")
OVERLAYS = sorted(p.parent.name for p in (DEPLOY / "kubernetes/overlays").glob("*/kustomization.yaml"))
# The oldest and the newest Kubernetes that the manifests are held against.
KUBERNETES = ("1.29", "1.34")


def load_all(path):
    return [d for d in yaml.safe_load_all(path.read_text(encoding="utf-8")) if d]


def merge(base, patch, key=None):
    """A strategic merge: objects by field; lists of named things by name (volumes' mounts by path), other lists replaced."""
    if isinstance(base, dict) and isinstance(patch, dict):
        out = dict(base)
        for k, v in patch.items():
            out[k] = merge(base[k], v, k) if k in base else copy.deepcopy(v)
        return out
    by = {"volumeMounts": "mountPath"}.get(key, "name")
    if isinstance(base, list) and isinstance(patch, list) and patch and all(isinstance(x, dict) and by in x for x in base + patch):
        out, names = list(base), [x[by] for x in base]
        fresh = [x for x in patch if x[by] not in names]
        for x in patch:
            if x[by] in names:
                out[names.index(x[by])] = merge(out[names.index(x[by])], x)
        return fresh + out
    return copy.deepcopy(patch)


def render(folder, inherited=()):
    """What `kubectl kustomize` makes of a folder, for the few things that ours use; compared with the real one where it is
    installed."""
    k = load_all(folder / "kustomization.yaml")[0]
    unknown = set(k) - {"apiVersion", "kind", "namespace", "resources", "components", "patches", "images"}
    assert not unknown, f"{folder}: {unknown}"
    objects = list(inherited)
    for r in k.get("resources", []):
        path = folder / r
        objects += render(path) if path.is_dir() else load_all(path)
    for c in k.get("components", []):
        objects = render(folder / c, objects)
    for p in k.get("patches", []):
        patch, target = load_all(folder / p["path"])[0], p.get("target")
        hit = 0
        for i, o in enumerate(objects):
            if target:
                label, value = target["labelSelector"].split("=")
                match = o["kind"] == target["kind"] and o["metadata"].get("labels", {}).get(label) == value
            else:
                match = (o["kind"], o["metadata"]["name"]) == (patch["kind"], patch["metadata"]["name"])
            if match:
                hit += 1
                name = o["metadata"]["name"]
                objects[i] = merge(o, patch)
                objects[i]["metadata"]["name"] = name
        assert hit, f"{folder}: {p} changes nothing"
    for o in objects:
        if "namespace" in k and o["kind"] != "Namespace":
            o["metadata"]["namespace"] = k["namespace"]
        for image in k.get("images", []):
            for c in containers(o):
                if c["image"] == image["name"]:
                    c["image"] += ":" + image["newTag"]
    return objects


def containers(o):
    return o.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []) if o["kind"] != "ScaledObject" else []


def plain(objects):
    def ordered(x):
        if isinstance(x, dict):
            return {k: ordered(v) for k, v in sorted(x.items())}
        if isinstance(x, list):
            items = [ordered(v) for v in x]
            return sorted(items, key=lambda v: json.dumps(v, sort_keys=True)) if all(isinstance(v, dict) for v in items) else items
        return x
    return sorted((ordered(o) for o in objects), key=lambda o: (o["kind"], o["metadata"]["name"]))


@needs_schemas
class Kubernetes(unittest.TestCase):
    # The two kinds that are not Kubernetes' own, as their documentation has them.
    OTHER = {("keda.sh/v1alpha1", "ScaledObject"): {"scaleTargetRef", "minReplicaCount", "maxReplicaCount", "pollingInterval", "cooldownPeriod", "triggers"},
             ("monitoring.coreos.com/v1", "ServiceMonitor"): {"selector", "endpoints"},
             ("monitoring.coreos.com/v1", "PrometheusRule"): {"groups"}}

    def objects(self):
        for overlay in OVERLAYS:
            for o in render(DEPLOY / "kubernetes/overlays" / overlay):
                yield overlay, o
        for o in render(DEPLOY / "kubernetes/components/prometheus-operator"):
            yield "prometheus-operator", o

    def test_schemas(self):
        import kubernetes_validate
        seen = set()
        for overlay, o in self.objects():
            text = json.dumps(o, sort_keys=True)
            if text in seen:
                continue
            seen.add(text)
            if fields := self.OTHER.get((o["apiVersion"], o["kind"])):
                self.assertEqual(set(o["spec"]) - fields, set(), o["kind"])
                continue
            for version in KUBERNETES:
                with self.subTest(overlay=overlay, kind=o["kind"], name=o["metadata"]["name"], version=version):
                    kubernetes_validate.validate(o, version, strict=True)
        bad = next(o for _, o in self.objects() if o["kind"] == "Deployment")
        bad["spec"]["template"]["spec"]["containers"][0]["securityContext"]["readOnlyRootFileSystem"] = True  # a wrong letter
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(bad, KUBERNETES[0], strict=True)

    @unittest.skipUnless(tool("kubectl"), "no kubectl: only our own rendering is checked")
    def test_kustomize_makes_the_same(self):
        for overlay in OVERLAYS:
            folder = DEPLOY / "kubernetes/overlays" / overlay
            p = subprocess.run([tool("kubectl"), "kustomize", str(folder)], capture_output=True, text=True, timeout=60)
            self.assertEqual(p.returncode, 0, p.stderr)
            self.assertEqual(plain(yaml.safe_load_all(p.stdout)), plain(render(folder)), overlay)

    def test_pods_are_closed(self):
        for overlay, o in self.objects():
            if o["kind"] not in ("Deployment", "StatefulSet"):
                continue
            pod = o["spec"]["template"]["spec"]
            self.assertTrue(pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0)
            self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
            self.assertFalse(pod["automountServiceAccountToken"])
            for c in pod["containers"]:
                s = c["securityContext"]
                self.assertEqual((s["allowPrivilegeEscalation"], s["readOnlyRootFilesystem"], s["capabilities"]["drop"]), (False, True, ["ALL"]), overlay)
                self.assertIn("memory", c["resources"]["limits"])
            mounted = {m["name"] for c in pod["containers"] for m in c["volumeMounts"]}
            offered = {v["name"] for v in pod.get("volumes", [])} | {v["metadata"]["name"] for v in o["spec"].get("volumeClaimTemplates", [])}
            self.assertEqual(mounted, offered)

    def test_what_belongs_together(self):
        for overlay in OVERLAYS:
            objects = render(DEPLOY / "kubernetes/overlays" / overlay)
            by = {(o["kind"], o["metadata"]["name"]): o for o in objects}
            workloads = [o for o in objects if o["kind"] in ("Deployment", "StatefulSet")]
            labels = [o["spec"]["template"]["metadata"]["labels"] for o in workloads]
            for o in objects:
                if o["kind"] == "Service":
                    self.assertTrue(any(o["spec"]["selector"].items() <= x.items() for x in labels), o["metadata"]["name"])
                elif o["kind"] in ("PodDisruptionBudget", "NetworkPolicy"):
                    wanted = (o["spec"].get("selector") or o["spec"]["podSelector"]).get("matchLabels", {})
                    self.assertTrue(any(wanted.items() <= x.items() for x in labels), o["metadata"]["name"])
                elif o["kind"] == "ScaledObject":
                    self.assertIn(("Deployment", o["spec"]["scaleTargetRef"]["name"]), by)
                    for trigger in o["spec"]["triggers"]:
                        self.assertEqual(trigger["type"], "nats-jetstream")
                        self.assertEqual(set(trigger["metadata"]), {"natsServerMonitoringEndpoint", "account", "stream", "consumer", "lagThreshold"})
                        self.assertTrue(all(isinstance(v, str) for v in trigger["metadata"].values()))
            for o in workloads:
                self.assertLessEqual(o["spec"]["selector"]["matchLabels"].items(), o["spec"]["template"]["metadata"]["labels"].items())
                for v in o["spec"]["template"]["spec"].get("volumes", []):
                    if claim := v.get("persistentVolumeClaim"):
                        self.assertIn(("PersistentVolumeClaim", claim["claimName"]), by)
                    if v.get("configMap"):
                        self.assertIn(("ConfigMap", v["configMap"]["name"]), by)
            server = by["Deployment", "danqing"]
            probes = [server["spec"]["template"]["spec"]["containers"][0][p]["httpGet"]["path"] for p in ("startupProbe", "livenessProbe", "readinessProbe")]
            self.assertEqual(probes, ["/health/live", "/health/live", "/health/ready"])
            drawing = by.get(("Deployment", "danqing-worker"), server)
            limits = drawing["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
            self.assertEqual([k for k in limits if k.endswith("/gpu")], {"amd": ["amd.com/gpu"], "nvidia": ["nvidia.com/gpu"]}.get(overlay.split("-")[0], []))

    def test_the_settings_are_settings(self):
        text = next(o for _, o in self.objects() if o["kind"] == "ConfigMap" and o["metadata"]["name"] == "danqing")["data"]["danqing.toml"]
        folder = pathlib.Path(harness.tempfile.mkdtemp(prefix="danqing-config-"))
        self.addCleanup(harness.shutil.rmtree, folder)
        (folder / "danqing.toml").write_text(text, encoding="utf-8")
        p = subprocess.run([harness.PROGRAM, "serve", "--config", str(folder / "danqing.toml"), "--print-config"], capture_output=True, text=True, timeout=60)
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertEqual(json.loads(p.stdout)["api_key_file"], "/run/secrets/danqing/keys")

    def test_the_operator_has_the_same_alerts(self):
        spec = importlib.util.spec_from_file_location("make_alerts", DEPLOY / "kubernetes/make_alerts.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        file = DEPLOY / "kubernetes/components/prometheus-operator/alerts.yaml"
        self.assertEqual(file.read_text(encoding="utf-8"), module.text(), "run deploy/kubernetes/make_alerts.py")
        self.assertEqual(load_all(file)[0]["spec"], load_all(DEPLOY / "prometheus/rules.yml")[0])


@needs_schemas
class Compose(unittest.TestCase):
    FILES = sorted(DEPLOY.glob("compose*.yaml"))

    def check(self, *files):
        return subprocess.run([sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec",
                               *map(str, files)], capture_output=True, text=True, timeout=120)

    def test_schema(self):
        self.assertEqual(len(self.FILES), 3)
        p = self.check(*self.FILES)
        self.assertEqual(p.returncode, 0, p.stdout + p.stderr)
        folder = pathlib.Path(harness.tempfile.mkdtemp(prefix="danqing-compose-"))
        self.addCleanup(harness.shutil.rmtree, folder)
        (folder / "compose.yaml").write_text((DEPLOY / "compose.yaml").read_text(encoding="utf-8").replace("read_only:", "readonly:"), encoding="utf-8")
        self.assertNotEqual(self.check(folder / "compose.yaml").returncode, 0)

    def test_what_is_named_is_there(self):
        c = load_all(DEPLOY / "compose.yaml")[0]
        for name, s in c["services"].items():
            for volume in s.get("volumes", []):
                source = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", volume).split(":")[0]
                self.assertTrue(source in c["volumes"] or source.startswith("/") or (DEPLOY / source).exists(), f"{name}: {volume}")
            self.assertLessEqual(set(s.get("networks", [])), set(c["networks"]))
            self.assertLessEqual(set(s.get("secrets", [])), set(c["secrets"]))
            self.assertLessEqual(set(s.get("depends_on", {})), set(c["services"]))
            self.assertIn("mem_limit", s, name)
            self.assertEqual(s["cap_drop"], ["ALL"], name)
            self.assertIn("no-new-privileges:true", s["security_opt"], name)
            for port in s.get("ports", []):
                self.assertTrue(port.startswith("127.0.0.1:"), f"{name} listens on every address")
        for name in ("server", "front", "worker"):
            self.assertTrue(c["services"][name]["read_only"])
        for file in self.FILES[:]:
            self.assertLessEqual(set(load_all(file)[0]["services"]), set(c["services"]))

    def test_the_example_says_every_variable(self):
        named = set()
        for file in self.FILES:
            named |= set(re.findall(r"\$\{(\w+)[:}?]", file.read_text(encoding="utf-8")))
        # Tags, sizes and ports of the other programs have defaults that nobody needs to know.
        quiet = {n for n in named if n.endswith("_TAG") and n != "ROCM_TAG"} | {"PROMETHEUS_RETENTION", "DOCKER_CONTAINERS", "DANQING_PORT", "DANQING_FRONT_PORT"}
        listed = set(re.findall(r"^#?(\w+)=", (DEPLOY / "example.env").read_text(encoding="utf-8"), re.M))
        self.assertEqual(listed, named - quiet)

    def test_other_yaml_can_be_read(self):
        for file in DEPLOY.rglob("*.y*ml"):
            self.assertTrue(load_all(file), file)


class Grafana(unittest.TestCase):
    FILES = {x: DEPLOY / f"grafana/dashboards/danqing-{x}.json" for x in ("en", "zh")}

    def test_made_from_the_table(self):
        folder = pathlib.Path(harness.tempfile.mkdtemp(prefix="danqing-grafana-"))
        self.addCleanup(harness.shutil.rmtree, folder)
        subprocess.run([sys.executable, "-B", str(DEPLOY / "grafana/make_dashboards.py"), str(folder)], check=True, timeout=60)
        for file in self.FILES.values():
            self.assertEqual(file.read_text(encoding="utf-8"), (folder / file.name).read_text(encoding="utf-8"), "run deploy/grafana/make_dashboards.py")

    def test_shape(self):
        source = (DEPLOY / "grafana/provisioning/datasources/prometheus.yaml").read_text(encoding="utf-8")
        boards = {x: json.loads(f.read_text(encoding="utf-8")) for x, f in self.FILES.items()}
        self.assertNotEqual(boards["en"]["uid"], boards["zh"]["uid"])
        for language, board in boards.items():
            panels = board["panels"]
            self.assertEqual(len({p["id"] for p in panels}), len(panels))
            variables = {v["name"] for v in board["templating"]["list"]}
            cells = set()
            for p in panels:
                g = p["gridPos"]
                self.assertLessEqual(g["x"] + g["w"], 24)
                mine = {(x, y) for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])}
                self.assertFalse(cells & mine, f"{p['title']} lies over another panel")
                cells |= mine
                self.assertEqual(bool(re.search("[\u4e00-\u9fff]", p["title"])), language == "zh", p["title"])
                for t in p.get("targets", []):
                    self.assertIn(f"uid: {t['datasource']['uid']}\n", source)
                    for v in re.findall(r"\$(\w+)", t["expr"]):
                        self.assertIn(v, variables | {"__rate_interval"})
                self.assertIn(p["type"], ("row", "stat", "timeseries", "table"))
        self.assertEqual([[t["expr"] for p in b["panels"] for t in p.get("targets", [])] for b in boards.values()][0],
                         [t["expr"] for p in boards["zh"]["panels"] for t in p.get("targets", [])])
        self.assertTrue(any(p["type"] == "table" for p in boards["zh"]["panels"]))


if __name__ == "__main__":
    main()
