import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { group } from "./group.ts";
import { openPhotoDatabase, type PhotoDatabase } from "./photo-database.ts";
import { scan } from "./scan.ts";
import { picture, silent, temporaryFolder } from "./test-photos.ts";

export interface ReviewSet {
  readonly folder: string;
  readonly database: PhotoDatabase;
  /** Id of a photo by its path in the folder. */
  id(path: string): number;
}

/** Index for tests with two groups by perceptual hash, `a` with three photos and `b` with two, and a single photo. */
export async function reviewSet(): Promise<ReviewSet> {
  const folder = join(temporaryFolder(), "photos");
  for (const name of ["a", "b", "more"]) mkdirSync(join(folder, name), { recursive: true });
  const exif = { IFD2: { DateTimeOriginal: "2024:05:01 12:30:00" } };
  await picture(1, 480, 320).withExif(exif).jpeg().toFile(join(folder, "a/one.jpg"));
  await picture(1, 240, 160).jpeg().toFile(join(folder, "a/two.jpg"));
  await picture(1, 480, 320).webp().toFile(join(folder, "a/three.webp"));
  await picture(4, 300, 300).jpeg().toFile(join(folder, "b/<b>one.jpg"));
  await picture(4, 300, 300).jpeg({ quality: 40 }).toFile(join(folder, "b/two.jpg"));
  await picture(9, 200, 300).jpeg().toFile(join(folder, "more/alone.jpg"));
  const database = openPhotoDatabase(join(folder, "../index"), "create");
  await scan(database, { folder, progress: silent });
  const { groups } = await group(database, {
    by: "hash",
    threshold: 1,
    confirm: 64,
    distance: 8,
    linkage: "complete",
    progress: silent,
  });
  if (groups.map(({ length }) => length).join() !== "3,2") {
    throw new Error(`the test's groups are ${JSON.stringify(groups)}`);
  }
  return {
    folder,
    database,
    id: (path) =>
      database.get<{ readonly id: number }>(
        "SELECT id FROM photos WHERE path = ?",
        join(folder, path),
      )!.id,
  };
}
