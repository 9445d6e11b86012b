"""The cards in /metrics and /v1/system, and the energy of a job, from the files of a recorded machine."""
import sys

from harness import *

sys.path.insert(0, str(SOURCE / "tests"))
import card_tree  # noqa: E402


class Cards(OwnServerTest):
    def machine(self, *flags):
        self.tree = self.dir / "tree"
        card_tree.instinct(self.tree)
        return self.serve("--sysfs-root", self.tree, *flags)

    def test_metrics(self):
        text = self.machine().get("/metrics").body.decode()
        labels = 'gfx="gfx942",gpu="card1",name="AMD Instinct MI300X"'
        for line in (f'danqing_gpu_temperature_celsius{{{labels},sensor="junction"}} 71', f"danqing_gpu_load_ratio{{{labels}}} 0.93",
                     f"danqing_gpu_vram_used_bytes{{{labels}}} 48318382080", f"danqing_gpu_power_watts{{{labels}}} 612",
                     f"danqing_gpu_energy_joules_total{{{labels}}} 1000", "danqing_host_memory_total_bytes 134217728000"):
            self.assertIn(line + "\n", text)
        self.assertIn("# TYPE danqing_gpu_energy_joules_total counter", text)
        self.assertNotIn('sensor="edge"', text)
        names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
        self.assertEqual(len(names), len(set(names)))

    def test_system(self):
        sample = self.machine().get("/v1/system").json()["samples"][-1]
        self.assertEqual((sample["temperature"], sample["load"], sample["power"]), (71, 0.93, 612))
        card, = sample["cards"]
        self.assertEqual((card["id"], card["memory_total"]), ("card1", 205822885888))

    def test_energy_of_a_job(self):
        s = self.machine("--energy-card", "card1")
        job = s.submit(**LONG)
        until(lambda: (s.job(job)["progress"] or {}).get("step", 0) >= 1)
        new = self.dir / "new"
        new.write_bytes(card_tree.metrics(1500))
        new.rename(self.tree / card_tree.CARD / "gpu_metrics")
        self.assertEqual(s.finished(job)["energy"], {"joules": 500, "joules_per_picture": 500, "source": "counter"})

    def test_energy_by_power(self):
        s = self.machine("--energy-card", "0000:0c:00.0")
        (self.tree / card_tree.CARD / "gpu_metrics").unlink()
        job = s.finished(s.submit(**SMALL))
        self.assertEqual(job["energy"]["source"], "power")
        self.assertAlmostEqual(job["energy"]["joules"] / (612 * (job["finished"] - job["started"])), 1, delta=0.5)

    def test_no_energy_is_said_where_none_is_known(self):
        s = self.machine("--energy-card", "none")
        self.assertNotIn("energy", s.finished(s.submit()))
        s.stop()
        s = self.serve()  # the CPU
        job = s.finished(s.submit())
        self.assertNotIn("energy", job)
        self.assertIn("total", job["seconds"])


if __name__ == "__main__":
    main()
