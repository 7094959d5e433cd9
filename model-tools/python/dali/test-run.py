"""Runs a DALI pipeline on image files with DALI's CPU operators: pixels for model-pipeline.integ.test.ts.

    python dali-run.py PIPELINE BATCH IMAGE…     writes IMAGE.dali for each file: float32, the input of the model

Files of a batch are padded with zeros to the length of the longest, as clients send them. A file that cannot be decoded ends the run:
DALI 2.4 may even crash when a pipeline that failed is released.
"""

import sys
from pathlib import Path

import numpy as np
import nvidia.dali as dali


def padded(files):
    longest = max(len(file) for file in files)
    return [np.frombuffer(file.ljust(longest, b"\0"), np.uint8) for file in files]


def main(serialized, batch, *paths):
    batch = int(batch)
    options = {"batch_size": batch, "num_threads": 2, "device_id": None}
    pipeline = dali.Pipeline.deserialize(Path(serialized).read_bytes(), **options)
    pipeline.build()
    for start in range(0, len(paths), batch):
        names = paths[start : start + batch]
        pipeline.feed_input("encoded", padded([Path(path).read_bytes() for path in names]))
        (output,) = pipeline.run()
        for index, path in enumerate(names):
            np.array(output.at(index)).astype("<f4").tofile(f"{path}.dali")


main(*sys.argv[1:])
