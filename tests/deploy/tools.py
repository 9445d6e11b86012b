"""What the tests of deploy/ share: the harness of the server's tests, a machine whose card reports everything, and the tools
that tools/setup_tests.sh puts into .deps."""
import pathlib
import shutil
import struct
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = SOURCE / "deploy"
sys.path[:0] = [str(SOURCE / "tests/server"), str(SOURCE / "tests")]

import card_tree  # noqa: E402
import harness  # noqa: E402


def tool(name):
    """Debian's program from the system or from .deps, or None."""
    local = SOURCE / ".deps/prometheus/usr/bin" / name
    return str(local) if local.exists() else shutil.which(name)


def full_machine(root):
    """card_tree's MI300X with everything besides that Danqing has a metric for: as no single card reports it."""
    card_tree.instinct(root)
    device = card_tree.CARD
    for name, text in {
            "hwmon/hwmon4/temp1_label": "edge", "hwmon/hwmon4/temp1_input": "65000", "hwmon/hwmon4/temp2_crit": "100000",
            "hwmon/hwmon4/temp3_label": "mem", "hwmon/hwmon4/temp3_input": "80000",
            "hwmon/hwmon4/freq1_label": "sclk", "hwmon/hwmon4/freq1_input": "2100000000",
            "hwmon/hwmon4/freq2_label": "mclk", "hwmon/hwmon4/freq2_input": "1300000000",
            "hwmon/hwmon4/fan1_input": "1800", "hwmon/hwmon4/pwm1": "128", "hwmon/hwmon4/pwm1_max": "255",
            "mem_busy_percent": "40", "mem_info_gtt_total": "67108864000", "mem_info_gtt_used": "1048576",
            "current_link_speed": "32.0 GT/s PCIe", "current_link_width": "16"}.items():
        card_tree.put(root, f"{device}/{name}", text)
    # A gpu_metrics table v1_5: energy counted, and a throttler of the chip's own that is active.
    table = bytearray(b"\xff" * 360)
    table[:4] = struct.pack("<HBB", 360, 1, 5)
    table[88:96] = struct.pack("<Q", 1000 * 65536)
    table[104:108] = struct.pack("<I", 1)
    card_tree.put(root, f"{device}/gpu_metrics", bytes(table))
    node = "sys/devices/system/node/node0"
    card_tree.put(root, f"{node}/meminfo", "Node 0 MemTotal: 131072000 kB\nNode 0 MemFree: 65536000 kB")
    card_tree.put(root, f"{node}/cpulist", "0-15")
    card_tree.put(root, "sys/fs/cgroup/memory.max", "68719476736")
    card_tree.put(root, "sys/fs/cgroup/memory.current", "1073741824")
    card_tree.put(root, "proc/self/cgroup", "0::/")
    card_tree.put(root, "proc/self/statm", "100000 50000 0 0 0 0 0")
    tick(root, 0)


def tick(root, n):
    """The processors' time goes on: a load is a difference."""
    # In one move, as a reader of the real file would see it.
    card_tree.put(root, "proc/stat.new", f"cpu  {100 + 50 * n} 0 100 {1000 + 50 * n} 0 0 0 0 0 0")
    (pathlib.Path(root) / "proc/stat.new").rename(pathlib.Path(root) / "proc/stat")
