"""promtool's unit tests of deploy/prometheus/rules.yml as a table: for each alert a case in which it fires and one, as close
as it gets, in which it must not."""

CARD = 'instance="a",gpu="card1",name="MI300X",gfx="gfx942"'
ONE = 'instance="a"'
GIB = 1 << 30

# alert -> (evaluated at, labels it fires with, series when it fires, series when it does not)
# A series is name{labels} and promtool's notation of one value a minute.
CASES = {
    "DanqingDown": ("5m", {"job": "danqing"}, {'up{instance="a",job="danqing"}': "1 0x10"}, {'up{instance="a",job="danqing"}': "1 0x3 1x10"}),
    "DanqingQueueWaits": (
        "40m", {},
        {f'danqing_queue_wait_seconds_bucket{{{ONE},le="300"}}': "0+1x60", f'danqing_queue_wait_seconds_bucket{{{ONE},le="1000"}}': "0+10x60",
         f'danqing_queue_wait_seconds_bucket{{{ONE},le="+Inf"}}': "0+10x60"},
        {f'danqing_queue_wait_seconds_bucket{{{ONE},le="300"}}': "0+10x60", f'danqing_queue_wait_seconds_bucket{{{ONE},le="1000"}}': "0+10x60",
         f'danqing_queue_wait_seconds_bucket{{{ONE},le="+Inf"}}': "0+10x60"}),
    "DanqingQueueStands": ("30m", {}, {f"danqing_jobs_queued{{{ONE}}}": "5x60", f"danqing_jobs_running{{{ONE}}}": "0x60"},
                           {f"danqing_jobs_queued{{{ONE}}}": "5x60", f"danqing_jobs_running{{{ONE}}}": "0x20 1 0x60"}),
    "DanqingNoProgress": ("50m", {}, {f"danqing_jobs_running{{{ONE}}}": "1x60", f"danqing_step_seconds_count{{{ONE}}}": "7x60"},
                          {f"danqing_jobs_running{{{ONE}}}": "1x60", f"danqing_step_seconds_count{{{ONE}}}": "0x40 1x20"}),
    "DanqingJobsFail": (
        "20m", {},
        {f'danqing_jobs_total{{{ONE},status="failed",reason="failed"}}': "0+1x60", f'danqing_jobs_total{{{ONE},status="done",reason=""}}': "0+3x60"},
        {f'danqing_jobs_total{{{ONE},status="failed",reason="failed"}}': "0+1x60", f'danqing_jobs_total{{{ONE},status="done",reason=""}}': "0+20x60"}),
    "DanqingDeviceLost": (
        "10m", {"status": "failed", "reason": "device_lost"},
        {f'danqing_jobs_total{{{ONE},status="failed",reason="device_lost"}}': "_x5 1x60"},
        {f'danqing_jobs_total{{{ONE},status="failed",reason="deadline"}}': "_x5 1x60"}),
    "DanqingRequestsFail": (
        "30m", {},
        {f'danqing_http_requests_total{{{ONE},route="/v1/jobs",status="507"}}': "0+1x60", f'danqing_http_requests_total{{{ONE},route="/v1/jobs",status="202"}}': "0+9x60"},
        {f'danqing_http_requests_total{{{ONE},route="/v1/jobs",status="429"}}': "0+1x60", f'danqing_http_requests_total{{{ONE},route="/v1/jobs",status="202"}}': "0+9x60"}),
    "DanqingCardHot": (
        "20m", {"gpu": "card1", "name": "MI300X"},
        {f'danqing_gpu_temperature_celsius{{{CARD},sensor="junction"}}': "95x60", f"danqing_gpu_critical_temperature_celsius{{{CARD}}}": "100x60"},
        {f'danqing_gpu_temperature_celsius{{{CARD},sensor="junction"}}': "90x60", f"danqing_gpu_critical_temperature_celsius{{{CARD}}}": "100x60"}),
    "DanqingCardMemoryHot": ("20m", {"gpu": "card1", "name": "MI300X", "gfx": "gfx942", "sensor": "memory"},
                             {f'danqing_gpu_temperature_celsius{{{CARD},sensor="memory"}}': "104x60"},
                             {f'danqing_gpu_temperature_celsius{{{CARD},sensor="junction"}}': "104x60"}),
    "DanqingCardThrottled": ("20m", {"gpu": "card1", "name": "MI300X", "gfx": "gfx942", "reason": "temperature"},
                             {f'danqing_gpu_throttled{{{CARD},reason="temperature"}}': "1x60"},
                             {f'danqing_gpu_throttled{{{CARD},reason="power"}}': "1x60"}),
    "DanqingCardMemoryFull": ("20m", {"gpu": "card1", "name": "MI300X", "gfx": "gfx942"},
                              {f"danqing_gpu_vram_used_bytes{{{CARD}}}": f"{190 * GIB}x60", f"danqing_gpu_vram_total_bytes{{{CARD}}}": f"{192 * GIB}x60"},
                              {f"danqing_gpu_vram_used_bytes{{{CARD}}}": f"{180 * GIB}x60", f"danqing_gpu_vram_total_bytes{{{CARD}}}": f"{192 * GIB}x60"}),
    "DanqingHostMemoryLow": ("20m", {},
                             {f"danqing_host_memory_available_bytes{{{ONE}}}": f"{GIB}x60", f"danqing_host_memory_total_bytes{{{ONE}}}": f"{64 * GIB}x60"},
                             {f"danqing_host_memory_available_bytes{{{ONE}}}": f"{8 * GIB}x60", f"danqing_host_memory_total_bytes{{{ONE}}}": f"{64 * GIB}x60"}),
    "DanqingMemoryLimitNear": ("20m", {},
                               {f"danqing_process_resident_bytes{{{ONE}}}": f"{63 * GIB}x60", f"danqing_host_memory_limit_bytes{{{ONE}}}": f"{64 * GIB}x60"},
                               {f"danqing_process_resident_bytes{{{ONE}}}": f"{48 * GIB}x60", f"danqing_host_memory_limit_bytes{{{ONE}}}": f"{64 * GIB}x60"}),
    "DanqingDiskFull": ("20m", {},
                        {f"danqing_store_disk_free_bytes{{{ONE}}}": f"{4 * GIB}x60", f"danqing_store_disk_total_bytes{{{ONE}}}": f"{100 * GIB}x60"},
                        {f"danqing_store_disk_free_bytes{{{ONE}}}": f"{20 * GIB}x60", f"danqing_store_disk_total_bytes{{{ONE}}}": f"{100 * GIB}x60"}),
    "DanqingDiskFills": ("7h", {},
                         {f"danqing_store_disk_free_bytes{{{ONE}}}": f"{39 * GIB}-{GIB // 16}x480", f"danqing_store_disk_total_bytes{{{ONE}}}": f"{100 * GIB}x480"},
                         {f"danqing_store_disk_free_bytes{{{ONE}}}": f"{39 * GIB}-{GIB // 2048}x480", f"danqing_store_disk_total_bytes{{{ONE}}}": f"{100 * GIB}x480"}),
}


def selector(alert, labels):
    pairs = {"alertname": alert, "alertstate": "firing", "instance": "a", **labels}
    return "ALERTS{" + ",".join(f'{k}="{v}"' for k, v in pairs.items()) + "}"


def unit_tests(rules, only=None):
    """A file for `promtool test rules`, as the object that it holds. Of all alerts, or of one."""
    tests = []
    for alert, (at, labels, fires, quiet) in CASES.items():
        if only and alert != only:
            continue
        for name, series, samples in (("fires", fires, [{"labels": "{}", "value": 1}]), ("is quiet", quiet, [])):
            tests.append({"name": f"{alert} {name}", "interval": "1m",
                          "input_series": [{"series": k, "values": v} for k, v in series.items()],
                          "promql_expr_test": [{"expr": f"count({selector(alert, labels)})", "eval_time": at, "exp_samples": samples}]})
    if only:
        return {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}
    # The words, once: both languages with a number in them.
    at, _, fires, _ = CASES["DanqingDiskFull"]
    tests.append({"name": "annotations", "interval": "1m", "input_series": [{"series": k, "values": v} for k, v in fires.items()],
                  "alert_rule_test": [{"eval_time": at, "alertname": "DanqingDiskFull", "exp_alerts": [
                      {"exp_labels": {"instance": "a", "severity": "critical"},
                       "exp_annotations": {"summary": "4% of the disk of a are left; at 0 new jobs get 507",
                                           "summary_zh": "a 的磁盘只剩 4%；用尽后新作业返回 507"}}]}]})
    return {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}
