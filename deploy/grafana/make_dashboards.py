#!/usr/bin/env python3
"""Writes dashboards/danqing-en.json and danqing-zh.json: one table of panels, the words of two languages.

    deploy/grafana/make_dashboards.py [DIRECTORY]
"""
import json
import pathlib
import sys

I = '{instance=~"$instance"}'
G = '{instance=~"$instance",gpu=~"$gpu"}'
RATE = "[$__rate_interval]"


def q(quantile, histogram):
    return f'histogram_quantile({quantile}, sum by (le) (rate({histogram}_bucket{I}{RATE})))'


# Rows of panels: (title en, title zh, kind, unit, [(query, legend)], width of 24)
ROWS = [
    ("Jobs", "作业", [
        ("Waiting", "排队", "stat", "short", [(f"sum(danqing_jobs_queued{I})", "")], 4),
        ("Running", "运行中", "stat", "short", [(f"sum(danqing_jobs_running{I})", "")], 4),
        ("Pictures, last hour", "最近一小时图片", "stat", "short", [(f"sum(increase(danqing_pictures_total{I}[1h]))", "")], 4),
        ("Failed, last hour", "最近一小时失败", "stat", "short", [(f'sum(increase(danqing_jobs_total{{instance=~"$instance",status="failed"}}[1h])) or vector(0)', "")], 4),
        ("Models loaded", "已加载模型", "stat", "short", [(f"sum(danqing_models_loaded{I})", "")], 4),
        ("Pictures on disk", "磁盘上的图片", "stat", "bytes", [(f"sum(danqing_store_picture_bytes{I})", "")], 4),
        ("Wait before the start", "开始前的等待", "timeseries", "s", [(q(0.5, "danqing_queue_wait_seconds"), "50 %"), (q(0.9, "danqing_queue_wait_seconds"), "90 %")], 8),
        ("Time of a step", "每步时间", "timeseries", "s", [(q(0.5, "danqing_step_seconds"), "50 %"), (q(0.9, "danqing_step_seconds"), "90 %")], 8),
        ("Time of a picture", "每张图片时间", "timeseries", "s", [(q(0.5, "danqing_picture_seconds"), "50 %"), (q(0.9, "danqing_picture_seconds"), "90 %")], 8),
        ("Queue", "队列", "timeseries", "short", [(f"danqing_jobs_queued{I}", "{{instance}}")], 8),
        ("Pictures drawn together", "同批图片数", "timeseries", "short", [(f"sum(rate(danqing_batch_pictures_sum{I}{RATE})) / sum(rate(danqing_batch_pictures_count{I}{RATE}))", "")], 8),
        ("How jobs ended", "作业结果", "table", "short", [(f"sum by (status, reason) (danqing_jobs_total{I})", "")], 8),
    ]),
    ("Cards", "显卡", [
        ("Temperature", "温度", "timeseries", "celsius", [(f"danqing_gpu_temperature_celsius{G}", "{{instance}} {{gpu}} {{sensor}}"), (f"danqing_gpu_critical_temperature_celsius{G}", "{{instance}} {{gpu}} limit")], 8),
        ("Load", "负载", "timeseries", "percentunit", [(f"danqing_gpu_load_ratio{G}", "{{instance}} {{gpu}}"), (f"danqing_gpu_memory_load_ratio{G}", "{{instance}} {{gpu}} memory")], 8),
        ("Power", "功率", "timeseries", "watt", [(f"danqing_gpu_power_watts{G}", "{{instance}} {{gpu}}"), (f"danqing_gpu_power_cap_watts{G}", "{{instance}} {{gpu}} cap")], 8),
        ("Card memory", "显存", "timeseries", "bytes", [(f"danqing_gpu_vram_used_bytes{G}", "{{instance}} {{gpu}}"), (f"danqing_gpu_vram_total_bytes{G}", "{{instance}} {{gpu}} total")], 8),
        ("Host memory used by cards (GTT)", "显卡使用的主机内存（GTT）", "timeseries", "bytes", [(f"danqing_gpu_gtt_used_bytes{G}", "{{instance}} {{gpu}}"), (f"danqing_gpu_gtt_total_bytes{G}", "{{instance}} {{gpu}} total")], 8),
        ("Energy per picture", "每张图片能耗", "timeseries", "joule", [(f"sum(rate(danqing_gpu_energy_joules_total{G}{RATE})) / sum(rate(danqing_pictures_total{I}{RATE}))", "")], 8),
        ("Clocks", "时钟频率", "timeseries", "hertz", [(f"danqing_gpu_clock_hertz{G}", "{{instance}} {{gpu}} {{clock}}")], 8),
        ("Fan", "风扇", "timeseries", "percentunit", [(f"danqing_gpu_fan_ratio{G}", "{{instance}} {{gpu}}")], 8),
        ("Held back", "受限", "timeseries", "short", [(f"danqing_gpu_throttled{G}", "{{instance}} {{gpu}} {{reason}}")], 8),
        ("Fan, turns a minute", "风扇转速", "timeseries", "rotrpm", [(f"danqing_gpu_fan_rpm{G}", "{{instance}} {{gpu}}")], 8),
        ("PCIe link (transfers a second, all lanes)", "PCIe 链路（每秒传输，全部通道）", "timeseries", "short", [(f"danqing_gpu_pcie_transfers_per_second{G} * danqing_gpu_pcie_lanes{G}", "{{instance}} {{gpu}}")], 8),
        ("Cards now", "显卡现状", "table", "short", [(f"max by (instance, gpu, name, gfx) (danqing_gpu_temperature_celsius{G})", "")], 8),
    ]),
    ("Memory and disk", "内存和磁盘", [
        ("Device memory of the engine", "引擎的设备内存", "timeseries", "bytes", [(f"danqing_device_memory_used_bytes{I}", "{{instance}}"), (f"danqing_device_memory_peak_bytes{I}", "{{instance}} peak"), (f"danqing_device_memory_predicted_bytes{I}", "{{instance}} weights"), (f"danqing_device_memory_total_bytes{I}", "{{instance}} total")], 8),
        ("Host memory", "主机内存", "timeseries", "bytes", [(f"danqing_process_resident_bytes{I}", "{{instance}}"), (f"danqing_host_memory_available_bytes{I}", "{{instance}} available"), (f"danqing_host_memory_total_bytes{I}", "{{instance}} total")], 8),
        ("Disk of jobs and pictures", "作业和图片的磁盘", "timeseries", "bytes", [(f"danqing_store_disk_free_bytes{I}", "{{instance}} free"), (f"danqing_store_disk_total_bytes{I}", "{{instance}} total")], 8),
        ("Processors", "处理器", "timeseries", "percentunit", [(f"danqing_host_cpu_load_ratio{I}", "{{instance}}")], 8),
        ("Processes that run or wait", "运行或等待的进程", "timeseries", "short", [(f"danqing_host_load1{I}", "{{instance}}")], 8),
        ("Free memory of the nodes", "各节点空闲内存", "timeseries", "percentunit", [(f"danqing_host_numa_memory_free_bytes{I} / danqing_host_numa_memory_total_bytes{I}", "{{instance}} node {{node}}")], 8),
    ]),
    ("Requests", "请求", [
        ("Requests by status", "按状态的请求", "timeseries", "reqps", [(f"sum by (status) (rate(danqing_http_requests_total{I}{RATE}))", "{{status}}")], 8),
        ("Time to answer", "响应时间", "timeseries", "s", [(q(0.5, "danqing_http_request_seconds"), "50 %"), (q(0.99, "danqing_http_request_seconds"), "99 %")], 8),
        ("Open connections", "打开的连接", "timeseries", "short", [(f"danqing_http_connections{I}", "{{instance}}")], 8),
        ("Requests by route", "按路径的请求", "table", "short", [(f"sum by (route, status) (increase(danqing_http_requests_total{I}[1h]))", "")], 24),
    ]),
]
# Words of legends and of the tables' columns.
WORDS = {"limit": "上限", "cap": "上限", "memory": "显存", "total": "总量", "peak": "峰值", "weights": "权重", "available": "可用", "free": "空闲", "node": "节点"}
COLUMNS = {"status": ("Status", "状态"), "reason": ("Reason", "原因"), "Value": ("Value", "数值"), "route": ("Route", "路径"),
           "instance": ("Server", "服务器"), "gpu": ("Card", "显卡"), "name": ("Name", "名称"), "gfx": ("Target", "目标")}
CARD_VALUE = ("Temperature, °C", "温度，°C")
SOURCE = {"type": "prometheus", "uid": "danqing-prometheus"}


def legend(text, zh):
    for en, word in WORDS.items() if zh else ():
        text = " ".join(word if w == en else w for w in text.split(" "))
    return text


def panel(number, at, entry, zh):
    en, chinese, kind, unit, queries, width = entry
    table, stat = kind == "table", kind == "stat"
    p = {"id": number, "type": kind, "title": chinese if zh else en, "datasource": SOURCE, "gridPos": at,
         "targets": [{"refId": chr(65 + i), "datasource": SOURCE, "expr": expr, "legendFormat": legend(name, zh) or "__auto",
                      "instant": table, "range": not table, "format": "table" if table else "time_series"} for i, (expr, name) in enumerate(queries)],
         "fieldConfig": {"defaults": {"unit": unit, **({} if table or unit == "celsius" else {"min": 0})}, "overrides": []}}
    if stat:
        p["options"] = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "none", "graphMode": "area"}
    elif table:
        names = {k: v[zh] for k, v in COLUMNS.items()} | ({"Value": CARD_VALUE[zh]} if "celsius" in queries[0][0] else {})
        p["transformations"] = [{"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": names}}]
    else:
        p["options"] = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    return p


def variable(name, label, query):
    return {"name": name, "label": label, "type": "query", "datasource": SOURCE, "query": query, "definition": query, "refresh": 2,
            "includeAll": True, "multi": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}, "sort": 1}


def dashboard(zh):
    panels, number, y = [], 1, 0
    for en, chinese, entries in ROWS:
        panels.append({"id": number, "type": "row", "title": chinese if zh else en, "collapsed": False, "panels": [], "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
        number, y, x, height = number + 1, y + 1, 0, 0
        for entry in entries:
            width, tall = entry[5], 4 if entry[2] == "stat" else 8
            if x + width > 24:
                x, y = 0, y + height
            panels.append(panel(number, {"x": x, "y": y, "w": width, "h": tall}, entry, zh))
            number, x, height = number + 1, x + width, tall
        y += height
    return {"uid": "danqing-zh" if zh else "danqing-en", "title": "丹青" if zh else "Danqing", "tags": ["danqing"], "schemaVersion": 39, "version": 1,
            "editable": True, "refresh": "15s", "time": {"from": "now-3h", "to": "now"}, "timezone": "browser", "panels": panels,
            "templating": {"list": [variable("instance", "服务器" if zh else "Server", "label_values(danqing_jobs_running, instance)"),
                                    variable("gpu", "显卡" if zh else "Card", 'label_values(danqing_gpu_power_watts{instance=~"$instance"}, gpu)')]},
            "annotations": {"list": []}, "links": []}


def main():
    directory = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "dashboards"
    for zh, language in ((0, "en"), (1, "zh")):
        text = json.dumps(dashboard(zh), indent=1, ensure_ascii=False) + "\n"
        (directory / f"danqing-{language}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
