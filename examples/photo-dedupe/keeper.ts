/** Properties by which the photos of a group are compared. */
export interface ComparedPhoto {
  readonly id: number;
  readonly path: string;
  readonly bytes: number;
  readonly width: number;
  readonly height: number;
  readonly takenAt: string | null;
  readonly format: string;
  readonly sha256: string;
}

export interface Keeper {
  readonly id: number;
  /** Reason shown to the user. */
  readonly reason: string;
}

/** Criteria by which the photo to keep is chosen, in order of priority. The next criterion decides a tie. */
const reasons: readonly {
  readonly text: (photo: ComparedPhoto) => string;
  readonly rank: (photo: ComparedPhoto) => number;
}[] = [
  {
    text: ({ width, height }) => `most pixels (${width} × ${height})`,
    rank: ({ width, height }) => width * height,
  },
  {
    text: () => "has the time it was taken",
    rank: ({ takenAt }) => (takenAt === null ? 0 : 1),
  },
  { text: () => "largest file: least compressed", rank: ({ bytes }) => bytes },
];

/** Suggests the photo of a group to keep, based on file properties only. */
export function suggestKeeper(photos: readonly ComparedPhoto[]): Keeper | undefined {
  let left = [...photos].sort((a, b) => (a.path < b.path ? -1 : 1));
  const [first] = left;
  if (first === undefined) return undefined;
  const decisive: string[] = [];
  for (const { text, rank } of reasons) {
    const highest = left.reduce((most, photo) => Math.max(most, rank(photo)), 0);
    const better = left.filter((photo) => rank(photo) === highest);
    if (better.length < left.length) decisive.push(text(better[0]!));
    left = better;
  }
  return { id: left[0]!.id, reason: decisive.join(", ") || "first by name: the files are alike" };
}
