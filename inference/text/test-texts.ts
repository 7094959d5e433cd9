/** Number of the first texts whose ids are in `tokenizer-golden.jsonl`. */
export const goldenTextCount = 400;

/** Scripts of the test texts: a phrase, and ranges of code points for random words. */
const scripts = {
  latin: { phrase: "a photo of a cat", ranges: [[0x20, 0x7e]] },
  latinExtended: { phrase: "Łódź, Curaçao, İstanbul, Großstraße", ranges: [[0xa0, 0x24f]] },
  vietnamese: { phrase: "một con mèo đang ngủ", ranges: [[0x1ea0, 0x1ef9]] },
  greek: {
    phrase: "ΜΙΑ ΦΩΤΟΓΡΑΦΙΑ ΓΑΤΑΣ",
    ranges: [
      [0x370, 0x3ff],
      [0x1f00, 0x1fff],
    ],
  },
  cyrillic: { phrase: "Фотография кошки", ranges: [[0x400, 0x52f]] },
  armenian: { phrase: "կատվի լուսանկար", ranges: [[0x531, 0x58a]] },
  hebrew: { phrase: "תמונה של חתול", ranges: [[0x591, 0x5f4]] },
  arabic: { phrase: "صورة قطة", ranges: [[0x600, 0x6ff]] },
  devanagari: { phrase: "बिल्ली की एक तस्वीर", ranges: [[0x900, 0x97f]] },
  bengali: { phrase: "একটি বিড়ালের ছবি", ranges: [[0x980, 0x9fe]] },
  gurmukhi: { phrase: "ਬਿੱਲੀ ਦੀ ਤਸਵੀਰ", ranges: [[0xa01, 0xa76]] },
  tamil: { phrase: "பூனையின் புகைப்படம்", ranges: [[0xb82, 0xbfa]] },
  telugu: { phrase: "పిల్లి ఫోటో", ranges: [[0xc00, 0xc7f]] },
  kannada: { phrase: "ಬೆಕ್ಕಿನ ಚಿತ್ರ", ranges: [[0xc80, 0xcf2]] },
  sinhala: { phrase: "බළලෙකුගේ ඡායාරූපයක්", ranges: [[0xd81, 0xdf4]] },
  lao: { phrase: "ຮູບແມວ", ranges: [[0xe81, 0xedf]] },
  burmese: { phrase: "ကြောင်ဓာတ်ပုံ", ranges: [[0x1000, 0x109f]] },
  thai: { phrase: "ภาพถ่ายของแมว", ranges: [[0xe01, 0xe5b]] },
  tibetan: { phrase: "ཞི་མིའི་པར", ranges: [[0xf00, 0xfda]] },
  georgian: { phrase: "კატის ფოტო", ranges: [[0x10a0, 0x10ff]] },
  amharic: { phrase: "የድመት ፎቶ", ranges: [[0x1200, 0x137c]] },
  khmer: { phrase: "រូបថតឆ្មា", ranges: [[0x1780, 0x17f9]] },
  japanese: { phrase: "猫の写真、ネコのフォト", ranges: [[0x3000, 0x30ff]] },
  chinese: { phrase: "一只猫的照片", ranges: [[0x4e00, 0x9fff]] },
  korean: {
    phrase: "고양이 사진",
    ranges: [
      [0xac00, 0xd7a3],
      [0x1100, 0x11ff],
    ],
  },
  emoji: { phrase: "🐈‍⬛ 👩🏽‍🚀 🇺🇳", ranges: [[0x1f300, 0x1f6d7]] },
  symbols: { phrase: "2 × 10⁻³ ≤ ½ № ™", ranges: [[0x2000, 0x22ff]] },
  widths: {
    phrase: "ＣＡＴ　ﾈｺ",
    ranges: [
      [0xff01, 0xffee],
      [0xfb00, 0xfb06],
    ],
  },
} as const satisfies Record<string, Script>;

interface Script {
  readonly phrase: string;
  readonly ranges: readonly (readonly [first: number, last: number])[];
}

/** Difficult parts: contractions, HTML, quotes, ligatures, mojibake, special tokens, spaces and control characters. */
const parts = [
  "You should've done this, it's K'S 'ſ don'T they'll",
  "it's &amp;lt; 10 &eacute; &EACUTE; &Jscr; &notit; &#8364; &#x80; &#xD800; &#59; &copy &ampx <b>",
  "ﬁne “quotes” ‘single’ … ŉ Ǆ",
  "schÃ¶n â€“ dash â€œ like this â€�",
  "sÃ³ voilÃ  le travail Ã la carte",
  "Ð¼Ð¾Ñ€Ðµ ÑˆÑƒÐ¼",
  "РєРѕС‚ вЂ“ СЃРѕР±Р°РєР°",
  "‚Äúquoted‚Äù caf√©",
  "Î³Î¬Ï„Î± β€“",
  "Ã¢â‚¬Å“doubleÃ¢â‚¬\u009d",
  "í\u00a0½í¸\u0080 À\u0080",
  "<start_of_text> hi <end_of_text> !<end_of_text>",
  "12345 67 ٣٤ Ⅷ ²",
  "\u00a0\u2003x\ty\r\nz\u0085\u2028w",
  "\u001b[36;44mblue\u001b[0m \u0007\ufeff\ufffc",
  "\ud83d \udc08 lone surrogates",
  "e\u0301 \u0345 \u1e9b\u0323 K Å Ω",
  "hello world! magnificently !!! :-) #tag @user https://example.org/?a=1&b=2",
  "",
  " ",
];

/** Encodings in which the bytes of UTF-8 are read as characters, to make mojibake. Versions of Node differ in windows-1252. */
const wrongEncodings: readonly ((bytes: Buffer) => string)[] = [
  (bytes) => bytes.toString("latin1"),
  ...["windows-1251", "windows-1250", "windows-1253", "windows-1254", "windows-1257"]
    .concat(["iso-8859-2", "macintosh"])
    .map((label) => {
      const decoder = new TextDecoder(label);
      return (bytes: Buffer) => decoder.decode(bytes);
    }),
];

/** Returns pseudorandom integers from 0 to `end - 1`; the same seed gives the same numbers (mulberry32). */
function randomIntegers(seed: number): (end: number) => number {
  let state = seed;
  return (end) => {
    state = (state + 0x6d2b_79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) % end;
  };
}

/**
 * Returns texts for comparisons of tokenizers: the phrase of each script, difficult parts, then random ones. One in eight random texts is
 * mojibake, one in sixteen is longer than CLIP's context. Only code points that Unicode assigns.
 */
export function testTexts(count: number, seed = 1): readonly string[] {
  const random = randomIntegers(seed);
  const choose = <Item>(items: readonly Item[]): Item => items[random(items.length)]!;
  const all: readonly Script[] = Object.values(scripts);
  const word = (): string => {
    const [first, last] = choose(choose(all).ranges);
    const letters = Array.from({ length: 1 + random(6) }, () =>
      String.fromCodePoint(first + random(last - first + 1)),
    );
    return letters.filter((letter) => !/\p{Cn}/u.test(letter)).join("");
  };
  const words = (most: number): string =>
    Array.from({ length: 1 + random(most) }, () => {
      const part = random(8) === 0 ? choose(parts) : random(4) === 0 ? choose(all).phrase : word();
      return part + choose([" ", "", "  ", "'s ", ", "]);
    }).join("");
  const mojibake = (): string => {
    const text = words(3);
    return choose(wrongEncodings)(Buffer.from(text)) + choose(["", ` ${word()}`]);
  };
  const fixed = [...all.map(({ phrase }) => phrase), ...parts];
  return Array.from({ length: count }, (_, index) => {
    if (index < fixed.length) return fixed[index]!;
    const kind = random(16);
    return kind < 2 ? mojibake() : words(kind === 2 ? 60 : 8);
  });
}

/** Texts from which the SentencePiece model of the tests is trained: phrases and difficult parts on one line each. */
export const trainingTexts: readonly string[] = testTexts(
  Object.keys(scripts).length + parts.length,
).map((text) => text.replace(/\p{Surrogate}|[\r\n]/gu, " "));
/** Pieces of that model. */
export const trainedPieces = 1_200;
