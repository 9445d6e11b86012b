"""sysfs and proc of a machine with one MI300X, as a recorded one looks, for tests that start the program."""
import pathlib
import struct

CARD = "sys/class/drm/card1/device"


def put(root, path, text):
    file = pathlib.Path(root) / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else (text + "\n").encode())


def metrics(joules):
    """A gpu_metrics table v1_6 with energy and nothing else."""
    table = bytearray(b"\xff" * 1664)
    table[:4] = struct.pack("<HBB", 1664, 1, 6)
    table[16:24] = struct.pack("<Q", int(joules * 65536))
    return bytes(table)


def instinct(root, joules=1000):
    put(root, "proc/meminfo", "MemTotal: 131072000 kB\nMemAvailable: 98304000 kB")
    put(root, "proc/loadavg", "1.50 1.25 0.75 2/800 12345")
    for name, text in {"vendor": "0x1002", "device": "0x74a1", "revision": "0x00", "product_name": "AMD Instinct MI300X",
                       "uevent": "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:0c:00.0", "gpu_busy_percent": "93",
                       "mem_info_vram_total": "205822885888", "mem_info_vram_used": "48318382080", "numa_node": "0",
                       "hwmon/hwmon4/temp2_label": "junction", "hwmon/hwmon4/temp2_input": "71000",
                       "hwmon/hwmon4/power1_input": "612000000", "hwmon/hwmon4/power1_cap": "750000000"}.items():
        put(root, f"{CARD}/{name}", text)
    put(root, "sys/class/kfd/kfd/topology/nodes/2/properties", "simd_count 304\ngfx_target_version 90402\nlocation_id 3072\ndomain 0")
    put(root, f"{CARD}/gpu_metrics", metrics(joules))
