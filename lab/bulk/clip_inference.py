"""Runs clip-retrieval's `clip inference` and prints its rate after the first batch as JSON.

Arguments: folder of images, output folder, number of threads. The model is ViT-B-32 of open_clip with random weights, because the
time does not depend on them.
"""

import json
import os
import sys
import tempfile
import time

import open_clip
import torch
from clip_retrieval.clip_inference import mapper
from clip_retrieval.clip_inference.main import main

batches = []
embed = mapper.ClipMapper.__call__


def timed(self, item):
    result = embed(self, item)
    batches.append((time.perf_counter(), len(item["image_tensor"])))
    return result


# processes that it starts import this file
if __name__ == "__main__":
    images, output, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(threads)
    checkpoint = os.path.join(tempfile.mkdtemp(), "weights.pt")
    torch.save(open_clip.create_model("ViT-B-32").state_dict(), checkpoint)
    mapper.ClipMapper.__call__ = timed
    main(
        images,
        output,
        clip_model=f"open_clip:ViT-B-32/{checkpoint}",
        enable_text=False,
        batch_size=32,
        num_prepro_workers=threads,
    )
    seconds = batches[-1][0] - batches[0][0]
    rate = sum(count for _, count in batches[1:]) / seconds
    # its progress ends without a line break
    print("\n" + json.dumps({"imagesPerSecond": rate}), flush=True)
