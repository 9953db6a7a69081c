"""With --update host optimizers give the bits of the CPU's kernels on copies there, and moments do not move."""
import unittest

import golden
from python_cases_test import COMMAND, HERE, SLOW, GpuRuns

PAGES_OF_STATE = 6 * 4  # Weights of a model, and pages in each of its tensors.


class HostUpdates(GpuRuns):
    def train(self, cases, ram, *options, budget="2MiB", **settings):
        """What the program prints, what the run says, and statistics of the GPU."""
        before = [COMMAND, "run", "--budget", f"cuda={budget},cpu=4GiB", "--min-storage", "32KiB",
                  "--nvme", f"ram:{ram},{self.folder}", "--stats", str(self.file)]
        run = self.start([*before, *options], [str(HERE / "python_cases.py"), *cases.split()], settings)
        self.assertEqual(run.returncode, 0, run.stderr)
        device, = self.devices(self.file)
        return run.stdout, run.stderr, device

    def test_lists_of_tensors_are_updated_in_host_memory(self):
        """Parameters, gradients and Adam's moments are about four times the budget."""
        on_gpu, text, device = self.train("mirrored_adam", "64MiB")
        self.assertEqual(device["host_update_bytes"], 0)
        self.assertNotIn("updated", text)
        on_host, text, host = self.train("mirrored_adam", "64MiB", "--update", "host")
        self.assertEqual(on_host, on_gpu)
        beside_slow_streams, _, _ = self.train("mirrored_adam", "64MiB", "--update", "host", **SLOW)
        self.assertEqual(beside_slow_streams, on_gpu)
        self.assertGreater(host["host_update_bytes"], 0)
        updated, = (line for line in text.splitlines() if line.startswith("[spillway] updated "))
        golden.check_part(self, golden.without(updated, golden.SIZES, golden.TIMES))
        # Eight bytes of each parameter in each of the steps, both ways: its moments.
        moments = 4 * 2 * PAGES_OF_STATE * (64 << 10)
        self.assertLess(host["fetched_bytes"], device["fetched_bytes"] - moments)
        self.assertLess(host["spilled_bytes"], device["spilled_bytes"] - moments)
        print({key: [device[key], host[key]] for key in ("fetched_bytes", "spilled_bytes")})

    def test_gradients_leave_as_soon_as_they_are_final(self):
        """In the last two of four steps, as two have shown: gradients, and parameters that backward uses no more."""
        gradients = PAGES_OF_STATE * (64 << 10)
        for settings in ({}, SLOW):
            _, _, host = self.train("mirrored_adam", "64MiB", "--update", "host", **settings)
            self.assertEqual(host["host_update_sent_bytes"], 2 * 2 * gradients)
            print({key: host[key] for key in ("host_update_sent_bytes", "host_update_bytes", "spilled_bytes")})

    def test_masters_in_fp32_of_a_model_in_half_precision(self):
        _, _, device = self.train("mirrored_masters", "64MiB", "--update", "host", **SLOW)
        masters = PAGES_OF_STATE * (64 << 10)
        # 61 of what optimizers touch, 36 of what the casts of gradients and the copies to parameters do.
        self.assertEqual(device["host_update_bytes"], (61 + 36) * masters)
        print({key: device[key] for key in ("host_update_bytes", "spilled_bytes", "fetched_bytes")})

    def test_a_validation_in_mixed_precision_stays_on_the_gpu(self):
        trained, _, device = self.train("autocast_steps", "64MiB", "--update", "host")
        self.assertGreater(device["host_update_bytes"], 0)
        also_validated, _, validated = self.train("autocast_validation", "64MiB", "--update", "host")
        self.assertEqual(also_validated.splitlines()[1:], trained.splitlines()[1:])
        self.assertEqual(validated["host_update_bytes"], device["host_update_bytes"])

    def test_results_too_small_for_pages(self):
        on_gpu, _, _ = self.train("small_results", "64MiB")
        on_host, _, host = self.train("small_results", "64MiB", "--update", "host")
        self.assertEqual(on_host, on_gpu)
        self.assertGreater(host["host_update_bytes"], 0)

    def test_all_forms_with_disks_behind_host_memory(self):
        for cases, settings in (("mirrored", {}), ("mirrored_tensors", SLOW)):
            _, _, host = self.train(cases, "3MiB", "--update", "host", **settings)
            self.assertGreater(host["demoted_bytes"], 0)
            self.assertGreater(host["host_update_bytes"], 8 * PAGES_OF_STATE * (64 << 10))

    def test_what_it_cannot_do_is_said(self):
        _, text, host = self.train("wide", "2MiB", "--update", "host", budget="16MiB")
        self.assertEqual(host["host_update_bytes"], 0)
        told = [line for line in text.splitlines() if "--update host" in line]
        _, text, host = self.train("convolutions", "64MiB", "--update", "host")
        self.assertEqual(host["host_update_bytes"], 0)  # Its tensors are too small to leave the GPU.
        told += [line for line in text.splitlines() if "--update host" in line]
        refused = self.start([*self.served(), "--update", "host", "--split"], ["-c", "pass"], {})
        self.assertNotEqual(refused.returncode, 0)
        told += [line for line in refused.stderr.splitlines() if "--update host" in line]
        # LibTorch chooses the operators of an optimizer, and which comes first.
        golden.check_part(self, *(golden.without(line, (r"aten::\w+", "OPERATOR")) for line in told))


if __name__ == "__main__":
    unittest.main()
