"""The lines of tests/support/emulated_cuda/README.md by which users train on the emulated GPU, as they stand there."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from clean_environment import clean_environment

PAGE = pathlib.Path(__file__).resolve().parents[2] / "support/emulated_cuda/README.md"
SECTION = PAGE.read_text(encoding="utf-8").split("## A trainer on it\n")[1].split("\n## ")[0]
# Where things are here; the page says it for users.
PLACES = {"tree": os.environ["SPILLWAY_TEST_TREE"], "libtorch": os.environ["SPILLWAY_TEST_LIBTORCH"],
          "python": os.environ["SPILLWAY_TEST_EMULATED_PYTHON"]}
SUM = """#include <ATen/ATen.h>
#include <cstdio>
int main() {
  at::Tensor sum = at::zeros({1 << 20}, at::kCUDA);
  std::vector<at::Tensor> kept;
  for (int i = 0; i < 8; ++i) kept.push_back(at::ones_like(sum) * i);
  for (const at::Tensor& each : kept) sum += each;
  std::printf("sum %g\\n", sum[7].item<double>());
}
"""
TRAINER = """import os, torch
rank = int(os.environ.get("RANK", "0"))
if "RANK" in os.environ:
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl")
torch.manual_seed(1)
net = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(8))).cuda()
if "RANK" in os.environ:
    net = torch.nn.parallel.DistributedDataParallel(net, device_ids=[rank])
optimizer = torch.optim.Adam(net.parameters())
for step in range(3):
    loss = net(torch.randn(64, 512).cuda()).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
print("trained", rank, loss.item() < 1.0)
if "RANK" in os.environ:
    torch.distributed.destroy_process_group()
"""


def lines_of(language):
    return re.findall(rf"^```{language}\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)


class DocumentedTrainers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.first, self.own, self.python, self.ranks = lines_of("sh")

    def run_lines(self, *blocks):
        """Both outputs; each line has to succeed."""
        text = re.sub(r"^(tree|libtorch|python)=.*\n", "", "".join(blocks), flags=re.MULTILINE)
        done = subprocess.run(["bash", "-euc", text], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False, cwd=self.folder, env=clean_environment(**PLACES), timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def settings(self):
        """Those of the first block that the others go on with."""
        return "".join(line + "\n" for line in self.first.splitlines() if line.startswith(("export", "run=")))

    def assert_paged(self, output, device="cuda:0"):
        self.assertRegex(output, rf"\] {device}   needed (.|\n)*?swapped  [0-9.]+ MiB out, [1-9][0-9.]* MiB in")

    def test_an_example(self):
        output = self.run_lines(self.first)
        self.assertEqual(set(re.findall(r"cuda:0 +(Emulated GPU \d)", output)), {"Emulated GPU 0"}, output)
        self.assert_paged(output)

    def test_a_trainer_in_cpp(self):
        (self.folder / "CMakeLists.txt").write_text(lines_of("cmake")[0], encoding="utf-8")
        (self.folder / "mine.cpp").write_text(SUM, encoding="utf-8")
        output = self.run_lines(self.settings(), self.own)
        self.assertEqual(re.findall(r"(?m)^sum (.*)$", output), ["28"], output)
        self.assert_paged(output)

    def test_trainers_in_python(self):
        if not pathlib.Path(PLACES["python"]).exists():
            self.skipTest("fetch_python.sh has put no Python beside LibTorch")
        for name in ("mine.py", "ranks.py"):
            (self.folder / name).write_text(TRAINER, encoding="utf-8")
        output = self.run_lines(self.settings(), self.python)
        self.assertEqual(sorted(re.findall(r"trained (\d) True\n", output)), ["0", "0", "1"], output)
        self.assert_paged(output)

    def test_two_ranks_and_a_link(self):
        output = self.run_lines(self.settings(), self.ranks)
        self.assertEqual(set(re.findall(r"(\d) ranks on (\d) host, (\d) stages", output)), {("2", "1", "2")}, output)
        self.assert_paged(output)
        self.assertIn("rates.json", output)
        self.assertTrue((self.folder / "rates.json").is_file())


if __name__ == "__main__":
    unittest.main()
