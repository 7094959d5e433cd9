"""Writes images of every kind into a folder, and beside each what OpenCLIP's transform makes of it.

`NAME.EXT` is the image, `NAME.EXT.rgb` the 224 x 224 x 3 bytes after resizing, cropping and `convert("RGB")`, as
open_clip does it with Pillow and torchvision (bicubic, shortest side, centre crop), before the normalisation.
Run by preprocess.integ.test.ts: python3 preprocess-reference.py FOLDER
"""

import os
import sys

import numpy as np
from PIL import Image, ImageCms, ImageOps

SIDE = 224
random = np.random.default_rng(7)


def photo(width, height, channels=3):
    """Smooth shapes, edges and a little grain."""
    coarse = random.integers(0, 256, (max(2, height // 40 + 2), max(2, width // 40 + 2), channels), dtype=np.uint8)
    planes = [
        np.asarray(Image.fromarray(coarse[:, :, c]).resize((width, height), Image.Resampling.BICUBIC), dtype=np.float32)
        for c in range(channels)
    ]
    picture = np.stack(planes, axis=2)
    y, x = np.mgrid[0:height, 0:width]
    picture[(x // max(1, width // 7) + y // max(1, height // 5)) % 3 == 0] *= 0.6
    picture += random.normal(0, 6, picture.shape)
    return np.clip(picture, 0, 255).astype(np.uint8)


def translucent(width, height, channels):
    """A photo that fades out to one side and is cut out along a circle."""
    picture = photo(width, height, channels)
    y, x = np.mgrid[0:height, 0:width]
    inside = (x - width / 2) ** 2 + (y - height / 2) ** 2 < (min(width, height) * 0.45) ** 2
    picture[:, :, -1] = np.where(inside, 64 + 191 * x // width, 0)
    return picture


def transform(image):
    width, height = image.size
    short, long = min(width, height), max(width, height)
    scaled = int(SIDE * long / short)
    size = (SIDE, scaled) if width <= height else (scaled, SIDE)
    image = image.resize(size, Image.Resampling.BICUBIC)
    left = int(round((image.width - SIDE) / 2.0))
    top = int(round((image.height - SIDE) / 2.0))
    return image.crop((left, top, left + SIDE, top + SIDE)).convert("RGB")


def main(folder):
    def save(name, image, **options):
        path = os.path.join(folder, name)
        image.save(path, **options)
        read = ImageOps.exif_transpose(Image.open(path))
        if read.mode == "P":
            read = read.convert("RGBA" if "transparency" in read.info else "RGB")
        if read.mode.startswith("I"):  # Pillow clips 16-bit grey to 255 instead of scaling it
            read = Image.fromarray((np.asarray(read) >> 8).astype(np.uint8))
        with open(path + ".rgb", "wb") as out:
            out.write(transform(read).tobytes())

    rgb = lambda width, height: Image.fromarray(photo(width, height))
    save("photo.jpg", rgb(640, 480), quality=90)
    save("portrait.jpg", rgb(480, 641), quality=85)
    save("large.jpg", rgb(2400, 1600), quality=88)
    save("progressive.jpg", rgb(801, 599), quality=85, progressive=True)
    save("no-subsampling.jpg", rgb(500, 375), quality=95, subsampling=0)
    save("square.png", rgb(224, 224))
    save("odd-crop.png", rgb(225, 224))
    save("one-more.png", rgb(227, 224))
    save("small.png", rgb(31, 47))
    save("dot.png", rgb(1, 1))
    save("wide.png", rgb(2000, 60))
    save("tall.jpg", rgb(90, 1500), quality=90)
    save("line.png", rgb(3000, 1))
    save("grey.jpg", Image.fromarray(photo(600, 400, 1)[:, :, 0]), quality=90)
    save("grey.png", Image.fromarray(photo(333, 444, 1)[:, :, 0]))
    grey16 = photo(300, 260, 1)[:, :, 0].astype(np.uint16) * 257
    save("grey16.png", Image.fromarray(grey16))
    save("bilevel.png", Image.fromarray(photo(300, 300, 1)[:, :, 0]).convert("1").convert("L"))
    save("cmyk.jpg", Image.fromarray(photo(500, 400, 4), "CMYK"), quality=92)
    save("alpha.png", Image.fromarray(translucent(400, 300, 4), "RGBA"))
    save("grey-alpha.png", Image.fromarray(translucent(400, 300, 2), "LA"))
    save("small-alpha.png", Image.fromarray(translucent(120, 90, 4), "RGBA"))
    save("palette.png", rgb(350, 280).quantize(64))
    save("lossy.webp", rgb(640, 427), quality=85)
    save("lossless.webp", rgb(320, 427), lossless=True)
    save("alpha.webp", Image.fromarray(translucent(400, 300, 4), "RGBA"), lossless=True)
    frames = [rgb(300, 200) for _ in range(3)]
    save("animated.webp", frames[0], save_all=True, append_images=frames[1:], duration=100, lossless=True)
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    save("lab-profile.jpg", rgb(400, 300), quality=90, icc_profile=profile)
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        save(f"orientation-{orientation}.jpg", rgb(640, 427), quality=90, exif=exif)


main(sys.argv[1])
