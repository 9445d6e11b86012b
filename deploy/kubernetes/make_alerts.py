#!/usr/bin/env python3
"""Writes components/prometheus-operator/alerts.yaml from deploy/prometheus/rules.yml: the same text, indented, as a
PrometheusRule (kustomize reads nothing outside of its own folder)."""
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
HEAD = """# Made by deploy/kubernetes/make_alerts.py from deploy/prometheus/rules.yml; change that one.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: danqing
  namespace: danqing
spec:
"""


def text():
    lines = (HERE.parent / "prometheus/rules.yml").read_text(encoding="utf-8").splitlines()
    return HEAD + "".join("  " + x + "\n" if x else "\n" for x in lines[lines.index("groups:"):])


if __name__ == "__main__":
    (HERE / "components/prometheus-operator/alerts.yaml").write_text(text(), encoding="utf-8")
