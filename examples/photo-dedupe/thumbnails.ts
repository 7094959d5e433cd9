import { decodePhoto } from "./decode-photo.ts";

/** Small copies of photos, made when they are asked for. */
export interface Thumbnails {
  /**
   * @param key - Of the file's content.
   * @param side - Longest side, in pixels.
   * @returns A JPEG file.
   */
  get(key: string, path: string, side: number): Promise<Buffer>;
}

/** Bytes that are kept; what was not asked for longest goes first. */
const maxKeptBytes = 64 * 1024 * 1024;
/** Photos that are decoded at once. */
const maxRunning = 2;

export function openThumbnails(): Thumbnails {
  const kept = new Map<string, Buffer>();
  const making = new Map<string, Promise<Buffer>>();
  const waiting: (() => void)[] = [];
  let keptBytes = 0;
  let running = 0;

  async function make(path: string, side: number): Promise<Buffer> {
    if (running >= maxRunning) await new Promise<void>((resolve) => waiting.push(resolve));
    running++;
    try {
      return await decodePhoto(path, {}, (image) =>
        image
          .autoOrient()
          .flatten({ background: "white" })
          .resize(side, side, { fit: "inside", withoutEnlargement: true })
          .toColourspace("srgb")
          .jpeg({ quality: 85 })
          .toBuffer(),
      );
    } finally {
      running--;
      waiting.shift()?.();
    }
  }

  function keep(name: string, data: Buffer): void {
    kept.set(name, data);
    keptBytes += data.length;
    for (const [oldest, { length }] of kept) {
      if (keptBytes <= maxKeptBytes) break;
      kept.delete(oldest);
      keptBytes -= length;
    }
  }

  return {
    async get(key, path, side) {
      const name = `${key} ${side}`;
      const known = kept.get(name);
      if (known !== undefined) {
        // the order of a Map is the order of insertion: now it is the youngest
        kept.delete(name);
        kept.set(name, known);
        return known;
      }
      let work = making.get(name);
      if (work === undefined) {
        work = make(path, side).finally(() => making.delete(name));
        making.set(name, work);
        work.then(
          (data) => keep(name, data),
          () => {},
        );
      }
      return work;
    },
  };
}
