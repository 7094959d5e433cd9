"""Reference results of the preprocessing of model families, computed with Pillow 13 and NumPy as the families' own code does.

A result is the pixels after resize, crop and conversion to RGB, before the normalisation: 8-bit RGB, or float32 for TensorFlow.

    python3 test-preprocess-reference.py images FOLDER     writes test images
    python3 test-preprocess-reference.py write FOLDER      writes test images, each with its results as NAME.EXT.FAMILY
    python3 test-preprocess-reference.py hash FOLDER       prints the SHA-256 of each result of every image in the folder, as JSON
    python3 test-preprocess-reference.py levels            prints the normalised values of the 256 levels of each channel, as JSON
    python3 test-preprocess-reference.py packages FOLDER   prints the largest differences between the images' results and those of
                                                      open_clip, torchvision and Transformers, in levels, as JSON

preprocess.integ.test.ts runs them, and compares `hash model-tools/samples` with preprocess-golden.json, the output of an
earlier run.
"""

import hashlib
import io
import json
import multiprocessing
import os
import struct
import sys
import zlib

import numpy as np
from PIL import Image, ImageCms, ImageOps

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


def shortest_edge(image, edge, side, resample):
    """torchvision's Resize(edge) and CenterCrop(side) of a Pillow image (transforms/functional.py)."""
    width, height = image.size
    short, long = min(width, height), max(width, height)
    scaled = int(edge * long / short)
    size = (edge, scaled) if width <= height else (scaled, edge)
    image = image.resize(size, resample)
    left = int(round((image.width - side) / 2.0))
    top = int(round((image.height - side) / 2.0))
    return image.crop((left, top, left + side, top + side))


def openclip(image):
    """open_clip 3.3.0, transform.py: Resize, CenterCrop, then MaybeConvertMode."""
    return shortest_edge(resizable(image), 224, 224, Image.Resampling.BICUBIC).convert("RGB")


def mobileclip2(image):
    """open_clip 3.3.0 with MobileCLIP2's configuration."""
    return shortest_edge(resizable(image), 256, 256, Image.Resampling.BILINEAR).convert("RGB")


def dinov2(image):
    """make_classification_eval_transform of DINOv2, whose datasets are decoded with convert("RGB")."""
    return shortest_edge(image.convert("RGB"), 256, 224, Image.Resampling.BICUBIC)


def siglip2(image):
    """SiglipImageProcessorPil of Transformers 5.23.0 with Google's preprocessor_config.json."""
    return image.convert("RGB").resize((224, 224), Image.Resampling.BILINEAR)


def efficientnet_lite0(image):
    """preprocess_for_eval of tensorflow/tpu with resize_bilinear of TensorFlow 1 (resize_bilinear_op.cc, legacy scaler)."""
    pixels = np.asarray(image.convert("RGB"))
    height, width, _ = pixels.shape
    side = max(1, int(np.float32(0.875) * np.float32(min(height, width))))
    top, left = (height - side + 1) // 2, (width - side + 1) // 2
    pixels = pixels[top : top + side, left : left + side].astype(np.float32)
    position = np.arange(224, dtype=np.float32) * (np.float32(side) / np.float32(224))
    lower = np.floor(position).astype(np.int64)
    upper = np.minimum(np.ceil(position).astype(np.int64), side - 1)
    lower = np.minimum(lower, upper)
    share = position - np.floor(position)
    across, down = share[None, :, None], share[:, None, None]
    top, bottom = pixels[lower], pixels[upper]
    top = top[:, lower] + (top[:, upper] - top[:, lower]) * across
    bottom = bottom[:, lower] + (bottom[:, upper] - bottom[:, lower]) * across
    return top + (bottom - top) * down


def letterbox(image):
    """ImageOps.pad of Pillow; images that it shrinks to nothing are left out."""
    fitted = ImageOps.contain(resizable(image), (320, 240), Image.Resampling.BICUBIC)
    if 0 in fitted.size:
        return None
    return ImageOps.pad(fitted.convert("RGB"), (320, 240), color=(9, 130, 255))


FAMILIES = {
    "openclip": openclip,
    "siglip2": siglip2,
    "dinov2": dinov2,
    "mobileclip2": mobileclip2,
    "efficientnet-lite0": efficientnet_lite0,
    "letterbox": letterbox,
}


def displayed(path):
    """Returns an image in its EXIF orientation, which all families leave to the caller, with 8 bits per channel."""
    image = ImageOps.exif_transpose(Image.open(path))
    if image.mode.startswith("I"):  # Pillow clips 16-bit grey to 255 instead of scaling it
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image


def resizable(image):
    """Returns an image in a mode that Pillow resizes with a filter; it resizes others with nearest neighbour."""
    if image.mode == "P":
        return image.convert("RGBA" if "transparency" in image.info else "RGB")
    return image.convert("L") if image.mode == "1" else image


def results(path):
    """Returns the results of all families as arrays."""
    image = displayed(path)
    every = ((family, transform(image)) for family, transform in FAMILIES.items())
    return {family: np.asarray(result) for family, result in every if result is not None}


def scaled_like_torchvision(level, mean, std):
    """ToTensor and Normalize."""
    return (np.float32(level) / np.float32(255) - np.float32(mean)) / np.float32(std)


def scaled_like_transformers(level, mean, std):
    """rescale and normalize of image_transforms.py."""
    return (np.float32(np.float64(level) * 0.00392156862745098) - np.float32(mean)) / np.float32(std)


def scaled_like_tensorflow(level, mean, std):
    """normalize_features of EfficientNet's main.py."""
    return (np.float32(level) - np.float32(mean)) / np.float32(std)


OPENAI = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
NORMALISATIONS = {
    "openclip-vit-b32": (scaled_like_torchvision, *OPENAI),
    "openclip-vit-b16": (scaled_like_torchvision, *OPENAI),
    "openclip-vit-l14": (scaled_like_torchvision, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "siglip2-base-224": (scaled_like_transformers, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "dinov2-small": (scaled_like_torchvision, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "dinov2-base": (scaled_like_torchvision, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "mobileclip2-s0": (scaled_like_torchvision, (0, 0, 0), (1, 1, 1)),
    "mobileclip2-s2": (scaled_like_torchvision, (0, 0, 0), (1, 1, 1)),
    "efficientnet-lite0": (scaled_like_tensorflow, (127, 127, 127), (128, 128, 128)),
}


def levels():
    """Returns the normalised values of red, green and blue by level, for each model."""
    return {
        model: [[float(scaled(level, *channel)) for level in range(256)] for channel in zip(mean, std)]
        for model, (scaled, mean, std) in NORMALISATIONS.items()
    }


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


def write_results(path):
    for family, result in results(path).items():
        result.tofile(f"{path}.{family}")


def write(folder):
    """Writes the test images, and returns their paths."""
    paths = []

    def store(name, data):
        paths.append(os.path.join(folder, name))
        with open(paths[-1], "wb") as out:
            out.write(data)

    def encoded(image, kind, **options):
        out = io.BytesIO()
        image.save(out, kind, **options)
        return out.getvalue()

    def save(name, image, **options):
        kind = {"jpg": "JPEG", "png": "PNG", "webp": "WEBP"}[name.rsplit(".", 1)[1]]
        store(name, encoded(image, kind, **options))

    def exif_with(orientation):
        exif = Image.Exif()
        exif[0x0112] = orientation
        return exif

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
    save("grey16-any-low-bits.png", Image.fromarray(np.arange(300 * 260).astype(np.uint16).reshape(260, 300)))
    # sides whose height shrinks by more than twice as many pixels as their width
    save("portrait-220x300.png", rgb(220, 300))
    save("portrait.webp", rgb(300, 900), quality=90)
    save("portrait-alpha.png", Image.fromarray(translucent(220, 500, 4)))
    save("landscape-orientation-6.jpg", rgb(900, 300), quality=90, exif=exif_with(6))
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
    return paths


def packages(folder):
    """Compares the references with the packages that they follow, where those read the image.

    All images have their displayed orientation and 8 bits per channel. `transformers-torchvision` is the default of Transformers,
    whose resize differs from Pillow's.
    """
    import torch
    from open_clip.transform import PreprocessCfg, image_transform_v2
    from torchvision.transforms import v2
    from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
    from transformers.models.siglip.image_processing_siglip import SiglipImageProcessor

    plain = {"mean": (0, 0, 0), "std": (1, 1, 1)}
    open_clip = image_transform_v2(PreprocessCfg(size=224, **plain), is_train=False)
    mobile_clip = image_transform_v2(PreprocessCfg(size=256, interpolation="bilinear", **plain), is_train=False)
    evaluation = v2.Compose(
        [
            v2.Resize(256, interpolation=v2.InterpolationMode.BICUBIC),
            v2.CenterCrop(224),
            v2.PILToTensor(),
        ]
    )
    bilinear = {"do_rescale": False, "do_normalize": False, "resample": 2, "size": {"height": 224, "width": 224}}
    bit = {"do_rescale": False, "do_normalize": False, "size": {"shortest_edge": 256}}
    processed = lambda processor, image: processor(image, return_tensors="pt")["pixel_values"][0]
    siglip, siglip_torchvision = SiglipImageProcessorPil(**bilinear), SiglipImageProcessor(**bilinear)
    dino_transformers = BitImageProcessorPil(**bit)
    found = {
        "open_clip ViT-B-32": ("openclip", lambda image: open_clip(resizable(image)) * 255),
        "open_clip MobileCLIP2-S0": ("mobileclip2", lambda image: mobile_clip(resizable(image)) * 255),
        "torchvision DINOv2": ("dinov2", lambda image: evaluation(image.convert("RGB"))),
        "transformers SigLIP 2": ("siglip2", lambda image: processed(siglip, image.convert("RGB"))),
        "transformers-torchvision SigLIP 2": ("siglip2", lambda image: processed(siglip_torchvision, image.convert("RGB"))),
        "transformers DINOv2": ("dinov2", lambda image: processed(dino_transformers, image.convert("RGB"))),
    }
    largest = dict.fromkeys(found, (0.0, ""))
    for path in image_paths(folder):
        image = displayed(path)
        expected = results(path)
        for name, (family, transform) in found.items():
            actual = torch.as_tensor(np.asarray(transform(image))).permute(1, 2, 0).double().numpy()
            difference = float(np.abs(actual - expected[family].astype(np.float64)).max())
            largest[name] = max(largest[name], (difference, os.path.basename(path)))
    return largest


def image_paths(folder):
    names = sorted(name for name in os.listdir(folder) if name.endswith((".jpg", ".png", ".webp")))
    return [os.path.join(folder, name) for name in names]


def hashes(folder):
    """Returns hashes of the results with 8 bits, by family and image."""
    found = {family: {} for family in ("openclip", "siglip2", "dinov2", "mobileclip2")}
    for path in image_paths(folder):
        every = results(path)
        for family, names in found.items():
            names[os.path.basename(path)] = hashlib.sha256(every[family].tobytes()).hexdigest()
    return found


def main(command, *folder):
    if command == "images":
        write(*folder)
        return
    if command == "write":
        # two, because a line of 20,000 pixels takes 3 GB
        with multiprocessing.Pool(2) as pool:
            pool.map(write_results, write(*folder), chunksize=1)
        return
    print(json.dumps({"hash": hashes, "levels": levels, "packages": packages}[command](*folder), indent=2))


main(*sys.argv[1:])
