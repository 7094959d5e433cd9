"""Reference results of OpenCLIP's validation transform, computed with Pillow.

A result is the 224 x 224 x 3 bytes after resizing, cropping and `convert("RGB")`, as in open_clip with Pillow and
torchvision (bicubic, shortest side, centre crop), before the normalisation.

    python3 preprocess-reference.py write FOLDER   writes test images, each with its result as NAME.EXT.rgb
    python3 preprocess-reference.py hash FOLDER    prints the SHA-256 of the result of every image in the folder, as JSON

preprocess.integ.test.ts runs `write`, and compares `hash model-tools/samples` with preprocess-golden.json, the
output of an earlier run.
"""

import hashlib
import io
import json
import os
import struct
import sys
import zlib

import numpy as np
from PIL import Image, ImageCms, ImageOps

SIDE = 224
random = np.random.default_rng(7)


def photo(width, height, channels=3):
    """Photo-like image with smooth shapes, edges and a little grain."""
    coarse = random.integers(0, 256, (max(2, height // 40 + 2), max(2, width // 40 + 2), channels), dtype=np.uint8)
    planes = [
        np.asarray(Image.fromarray(coarse[:, :, c]).resize((width, height), Image.Resampling.BICUBIC), dtype=np.float32)
        for c in range(channels)
    ]
    pixels = np.stack(planes, axis=2)
    y, x = np.mgrid[0:height, 0:width]
    pixels[(x // max(1, width // 7) + y // max(1, height // 5)) % 3 == 0] *= 0.6
    pixels += random.normal(0, 6, pixels.shape)
    return np.clip(pixels, 0, 255).astype(np.uint8)


def translucent(width, height, channels):
    """Photo with an alpha gradient, transparent outside a circle."""
    pixels = photo(width, height, channels)
    y, x = np.mgrid[0:height, 0:width]
    inside = (x - width / 2) ** 2 + (y - height / 2) ** 2 < (min(width, height) * 0.45) ** 2
    pixels[:, :, -1] = np.where(inside, 64 + 191 * x // width, 0)
    return pixels


def transform(image):
    width, height = image.size
    short, long = min(width, height), max(width, height)
    scaled = int(SIDE * long / short)
    size = (SIDE, scaled) if width <= height else (scaled, SIDE)
    image = image.resize(size, Image.Resampling.BICUBIC)
    left = int(round((image.width - SIDE) / 2.0))
    top = int(round((image.height - SIDE) / 2.0))
    return image.crop((left, top, left + SIDE, top + SIDE)).convert("RGB")


def reference(path):
    """Returns the result for the image in its EXIF orientation, which open_clip leaves to the caller."""
    read = ImageOps.exif_transpose(Image.open(path))
    if read.mode == "P":  # Pillow resizes palette images with nearest neighbour
        read = read.convert("RGBA" if "transparency" in read.info else "RGB")
    if read.mode == "1":  # also resized with nearest neighbour
        read = read.convert("L")
    if read.mode.startswith("I"):  # Pillow clips 16-bit grey to 255 instead of scaling it
        read = Image.fromarray((np.asarray(read) >> 8).astype(np.uint8))
    return transform(read).tobytes()


def png(width, height, depth, colour_type, rows, *chunks):
    """PNG with a bit depth and colour type that Pillow reads but does not write."""
    chunk = lambda name, data: struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    header = struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    parts = [chunk(b"IHDR", header), *(chunk(*entry) for entry in chunks), chunk(b"IDAT", data), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def without_segment(jpeg, marker):
    """JPEG without the segments of a marker."""
    out, at = jpeg[:2], 2
    while jpeg[at + 1] != 0xDA:
        end = at + 2 + struct.unpack(">H", jpeg[at + 2 : at + 4])[0]
        if jpeg[at + 1] != marker:
            out += jpeg[at:end]
        at = end
    return out + jpeg[at:]


def packed(grey, depth):
    """Packs rows of 8-bit grey into fewer bits per sample."""
    values = grey >> (8 - depth)
    bits = np.unpackbits(values[:, :, None], axis=2)[:, :, 8 - depth :]
    return [np.packbits(row.reshape(-1)).tobytes() for row in bits]


def write(folder):
    def store(name, data):
        path = os.path.join(folder, name)
        with open(path, "wb") as out:
            out.write(data)
        with open(path + ".rgb", "wb") as out:
            out.write(reference(path))

    def encoded(image, kind, **options):
        out = io.BytesIO()
        image.save(out, kind, **options)
        return out.getvalue()

    def save(name, image, **options):
        kind = {"jpg": "JPEG", "png": "PNG", "webp": "WEBP"}[name.rsplit(".", 1)[1]]
        store(name, encoded(image, kind, **options))

    rgb = lambda width, height: Image.fromarray(photo(width, height))
    cmyk = lambda width, height: Image.merge("CMYK", Image.fromarray(photo(width, height, 4)).split())
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
    save("cmyk.jpg", cmyk(500, 400), quality=92)
    save("alpha.png", Image.fromarray(translucent(400, 300, 4)))
    save("grey-alpha.png", Image.fromarray(translucent(400, 300, 2)))
    save("small-alpha.png", Image.fromarray(translucent(120, 90, 4)))
    save("palette.png", rgb(350, 280).quantize(64))
    save("lossy.webp", rgb(640, 427), quality=85)
    save("lossless.webp", rgb(320, 427), lossless=True)
    save("alpha.webp", Image.fromarray(translucent(400, 300, 4)), lossless=True)
    frames = [rgb(300, 200) for _ in range(3)]
    save("animated.webp", frames[0], save_all=True, append_images=frames[1:], duration=100, lossless=True)
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    save("lab-profile.jpg", rgb(400, 300), quality=90, icc_profile=profile)

    def exif_with(orientation):
        exif = Image.Exif()
        exif[0x0112] = orientation
        return exif

    for orientation in range(1, 9):
        save(f"orientation-{orientation}.jpg", rgb(640, 427), quality=90, exif=exif_with(orientation))
        # both sides of the crop are cut at half a pixel
        save(f"orientation-{orientation}-odd.jpg", rgb(225, 301), quality=90, exif=exif_with(orientation))
    save("orientation-6.png", rgb(300, 200), exif=exif_with(6))
    save("orientation-7.webp", rgb(300, 200), quality=90, exif=exif_with(7))
    save("orientation-8-large.jpg", rgb(3000, 2000), quality=85, exif=exif_with(8))
    save("orientation-5-grey.jpg", Image.fromarray(photo(500, 300, 1)[:, :, 0]), quality=90, exif=exif_with(5))
    save("orientation-3-alpha.webp", Image.fromarray(translucent(400, 300, 4)), lossless=True, exif=exif_with(3))
    save("huge.jpg", rgb(2000, 1500).resize((8000, 6000)), quality=80)
    save("12-megapixels.jpg", rgb(4000, 3000), quality=88)
    save("wide-line.png", rgb(20000, 1))
    save("tall-line.png", rgb(1, 20000))
    save("wide-line.jpg", rgb(20000, 1), quality=90)
    save("dot.jpg", rgb(1, 1))
    save("dot.webp", rgb(1, 1))
    save("quarter-chroma.jpg", rgb(501, 333), quality=90, subsampling="4:1:1")
    save("half-chroma.jpg", rgb(501, 333), quality=90, subsampling="4:2:2")
    save("odd-sides.jpg", rgb(511, 333), quality=75, subsampling="4:2:0")
    save("low-quality.jpg", rgb(700, 500), quality=5)
    save("restarts.jpg", rgb(600, 401), quality=85, restart_marker_rows=1)
    save("rgb-components.jpg", rgb(400, 300), quality=92, keep_rgb=True)
    save("progressive-grey.jpg", Image.fromarray(photo(700, 301, 1)[:, :, 0]), quality=85, progressive=True)
    unmarked = encoded(cmyk(500, 400), "JPEG", quality=92)
    store("cmyk-unmarked.jpg", without_segment(unmarked, 0xEE))
    save("lossy-alpha.webp", Image.fromarray(translucent(400, 300, 4)), quality=80)
    save("lossy-large.webp", rgb(2400, 1600), quality=80)
    save("palette-alpha.png", Image.fromarray(translucent(400, 300, 4)).quantize(64))
    save("opaque-alpha.png", Image.fromarray(np.dstack([photo(400, 300), np.full((300, 400), 255, np.uint8)])))
    store("16-bit.png", png(300, 260, 16, 2, [row.tobytes() for row in (photo(300, 260).astype(">u2") * 257 + 128)]))
    deep = translucent(300, 260, 4).astype(">u2") * 257
    store("16-bit-alpha.png", png(300, 260, 16, 6, [row.tobytes() for row in deep]))
    for depth in (1, 2, 4):
        grey = photo(333, 270, 1)[:, :, 0]
        store(f"{depth}-bit-grey.png", png(333, 270, depth, 0, packed(grey, depth)))
    key = photo(300, 280)
    key[80:200, 80:200] = (10, 20, 30)
    store("colour-key.png", png(300, 280, 8, 2, [row.tobytes() for row in key], (b"tRNS", struct.pack(">HHH", 10, 20, 30))))
    grey = key[:, :, 1]
    store("grey-key.png", png(300, 280, 8, 0, [row.tobytes() for row in grey], (b"tRNS", struct.pack(">H", 20))))

    # sides that are not divisible by 8; finest possible content
    fine = rgb(4000, 3000)
    for width, height in ((1203, 901), (2003, 1501), (1207, 904), (1200, 904), (2400, 1800)):
        save(f"fine-{width}x{height}.jpg", fine.resize((width, height)), quality=90)
    save("fine.webp", fine.resize((1203, 901)), quality=85)


def main(command, folder):
    if command == "write":
        write(folder)
        return
    names = sorted(name for name in os.listdir(folder) if name.endswith((".jpg", ".png", ".webp")))
    hashes = {name: hashlib.sha256(reference(os.path.join(folder, name))).hexdigest() for name in names}
    print(json.dumps(hashes, indent=2))


main(*sys.argv[1:])
