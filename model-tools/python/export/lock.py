"""Locks requirements.in: python lock.py (requires uv)"""

import re
import subprocess
from pathlib import Path

folder = Path(__file__).parent
# PyTorch's own packages: from PyPI, or CPU-only from PyTorch's index
with_torch = re.compile(r"(torch|torchvision|triton|nvidia-[a-z0-9-]+)==")

compiled = subprocess.run(
    ["uv", "pip", "compile", "--universal", "--python-version", "3.11", "--generate-hashes"]
    + ["--no-annotate", "--no-header", "--quiet", "requirements.in"],
    cwd=folder,
    check=True,
    stdout=subprocess.PIPE,
    text=True,
).stdout
entries = re.split(r"^(?=\S)", compiled, flags=re.MULTILINE)
header = "# Written by lock.py from requirements.in.\n"
for file, belongs in [("torch-pypi.txt", True), ("requirements.txt", False)]:
    chosen = [entry for entry in entries if bool(with_torch.match(entry)) == belongs]
    (folder / file).write_text(header + "".join(chosen))

pins = re.findall(r"^(?:torch|torchvision)==[\d.]+", (folder / "requirements.in").read_text(), re.MULTILINE)
(folder / "torch-cpu.txt").write_text(header + "".join(f"{pin}+cpu\n" for pin in pins))
