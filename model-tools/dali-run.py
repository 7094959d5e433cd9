"""Runs the DALI pipelines of models on image files with DALI's CPU operators: pixels for dali.integ.test.ts.

    python dali-run.py PIPELINE BATCH IMAGE…     writes IMAGE.dali for each file: float32, the input of the model

Files of a batch are padded with zeros to the length of the longest, as clients send them. Prints the error of each file that fails,
as JSON; such a file is run again alone, because one file fails its whole batch.
"""

import json
import sys
from pathlib import Path

import numpy as np
import nvidia.dali as dali


def padded(files):
    longest = max(len(file) for file in files)
    return [np.frombuffer(file.ljust(longest, b"\0"), np.uint8) for file in files]


class Runner:
    def __init__(self, serialized, batch):
        self.serialized, self.batch = serialized, batch
        self.pipeline = None

    def run(self, files):
        if self.pipeline is None:
            options = {"batch_size": self.batch, "num_threads": 2, "device_id": None}
            self.pipeline = dali.Pipeline.deserialize(self.serialized, **options)
            self.pipeline.build()
        try:
            self.pipeline.feed_input("encoded", padded(files))
            (output,) = self.pipeline.run()
            return [np.array(output.at(index)) for index in range(len(files))]
        except Exception:
            # a pipeline that failed is no longer valid
            self.pipeline = None
            raise


def main(pipeline, batch, *paths):
    runner = Runner(Path(pipeline).read_bytes(), int(batch))
    failures = {}
    for start in range(0, len(paths), int(batch)):
        names = paths[start : start + int(batch)]
        for path, result in results(runner, names, failures):
            result.astype("<f4").tofile(f"{path}.dali")
    print(json.dumps(failures))


def results(runner, paths, failures):
    files = [Path(path).read_bytes() for path in paths]
    try:
        return list(zip(paths, runner.run(files)))
    except Exception:
        pass
    found = []
    for path, file in zip(paths, files):
        try:
            found.append((path, runner.run([file])[0]))
        except Exception as error:
            failures[Path(path).name] = str(error)
    return found


main(*sys.argv[1:])
