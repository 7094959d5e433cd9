/**
 * Patterns that find mojibake: text that was decoded with the wrong encoding. From ftfy 6.3.1, `badness.py` and `chardata.py`
 * (Copyright 2023 Robyn Speer, Apache License 2.0), converted from Python's regular expressions.
 */

/** Kinds of the characters that occur in mojibake, as parts of character classes. */
const common = "\u00a0\u00ad·´–—―…’";
const c1 = "\u0080-\u009f";
const bad = "¦¤¨¬¯¸ƒˆˇ˘˛˜†‡‰⌐◊\ufffdªº";
const law = "¶§";
const currency = "¢£¥₧€";
const startPunctuation = "¡«¿©΄΅‘‚“„•‹\uf8ff";
const endPunctuation = "®»˝”›™";
const numeric = "²³¹±¼½¾×µ÷⁄∂∆∏∑√∞∩∫≈≠≡≤≥№";
const kaomoji = "Ò-ÖÙ-Üò-öø-üŐŌŪŲ°";
const upperAccented = "À-ÑØÜÝĂĀĄĆČĎĐĘĚĒĖĞĢİĪĶĹĽŁĻŃŇŅŒŘŚŞŠŢŤŮŰŸŹŻŽҐ";
const lowerAccented = "ßà-ñăąāćčďđęěēėğģįīķĺľłļœŕśşšťüźżžґﬁﬂ";
const upperCommon = "ÞΑ-ΩΆΈΉΊΌΎΏΪΫЁ-Я";
const lowerCommon = "α-ωάέήίΰа-џ";
const box = "│┌┐┘├┤┬┼═-╬▀▄█▌▐░▒▓";

const space = "[\\p{White_Space}\\u001c-\\u001f]";
const wordCharacter = "[\\p{L}\\p{N}_]";

/** Sequences of characters that occur in mojibake and hardly anywhere else. */
const mojibake = new RegExp(
  [
    `[${c1}]`,
    `[${bad}${lowerAccented}${upperAccented}${box}${startPunctuation}${endPunctuation}${currency}${numeric}${law}][${bad}]`,
    `[a-zA-Z][${lowerCommon}${upperCommon}][${bad}]`,
    `[${bad}][${lowerAccented}${upperAccented}${box}${startPunctuation}${endPunctuation}${currency}${numeric}${law}]`,
    `[${lowerAccented}${lowerCommon}${box}${endPunctuation}${currency}${numeric}][${upperAccented}]`,
    `[${box}${endPunctuation}${currency}${numeric}][${lowerAccented}]`,
    `[${lowerAccented}${box}${endPunctuation}][${currency}]`,
    `${space}[${upperAccented}][${currency}]`,
    `[${upperAccented}${box}][${numeric}${law}]`,
    `[${lowerAccented}${upperAccented}${box}${currency}${endPunctuation}][${startPunctuation}][${numeric}]`,
    `[${lowerAccented}${upperAccented}${currency}${numeric}${box}${law}][${endPunctuation}][${startPunctuation}]`,
    `[${currency}${numeric}${box}][${startPunctuation}]`,
    `[a-z][${upperAccented}][${startPunctuation}${currency}]`,
    `[${box}][${kaomoji}]`,
    `[${lowerAccented}${upperAccented}${currency}${numeric}${startPunctuation}${endPunctuation}${law}][${box}]`,
    `[${box}][${endPunctuation}]`,
    `[${lowerAccented}${upperAccented}][${startPunctuation}${endPunctuation}]${wordCharacter}`,
    `[Œœ][^A-Za-z]`,
    `[${upperAccented}]°`,
    `[ÂÃÎÐ][€œŠš¢£Ÿž\u00a0\u00ad®©°·»${startPunctuation}${endPunctuation}–—´]`,
    `×[²³]`,
    `[ØÙ][${common}${currency}${bad}${numeric}${startPunctuation}ŸŠ®°µ»][ØÙ][${common}${currency}${bad}${numeric}${startPunctuation}ŸŠ®°µ»]`,
    `à[²µ¹¼½¾]`,
    `√[±∂†≠®™´≤≥¥µø]`,
    `≈[°¢]`,
    `‚Ä[ìîïòôúùû†°¢π]`,
    `‚[âó][àä°ê]`,
    `вЂ`,
    `[ВГРС][${c1}${bad}${startPunctuation}${endPunctuation}${currency}°µ][ВГРС]`,
    `ГўВЂВ[^\\n][A-Za-z ]`,
    `Ã[\u00a0¡]`,
    `[a-z]${space}?[ÃÂ] `,
    `^[ÃÂ] `,
    `[a-z.,?!${endPunctuation}]Â[ ${startPunctuation}${endPunctuation}]`,
    `β€[™\u00a0Ά\u00ad®°]`,
    `[ΒΓΞΟ][${c1}${bad}${startPunctuation}${endPunctuation}${currency}°][ΒΓΞΟ]`,
    `ā€`,
  ].join("|"),
  "u",
);

/** Returns whether a text looks like mojibake (ftfy's `is_bad`). */
export function isMojibake(text: string): boolean {
  return mojibake.test(text);
}

/** Characters to which one-byte encodings decode the first byte of a UTF-8 sequence of two, three or four bytes. */
const utf8FirstOf2 =
  "ĂÂÄĀÅÃÆĆČÇĎĐÉĚÊËĖÈĒĘÐĞĢÍÎÏİÌĪĶĹĻŁŃŇŅÑÓÔÖŐÒŌØÕŘŚŠŞŢÞÚÛÜŰÙŪŲŮÝŹŽŻß×ΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩΪΫάέήίВГДЕЖЗИЙКЛМНОПРСТУФХЦЧШЩЪЫЬЭЮЯ";
const utf8FirstOf3 = "áăâäàāąåãæćčçďéěêëėèēęęģíîïìīįķĺļŕźΰαβγδεζηθικλμνξοабвгдежзийклмноп";
const utf8FirstOf4 = "đðğóšπσру";
/** … and the other bytes, which may have become white space or punctuation. */
const utf8Continuation =
  "\u0080-¿ ĄÆĽŁØŖŚŠŞŤŸŹŽŻŒąæƒľłøŗśšşťźžżœˆˇ˘˛˜˝΄΅ΆΈΉΊΌΎΏЁЂЃЄЅІЇЈЉЊЋЌЎЏёђѓєѕіїјљњћќўџҐґ–—―‘’‚“”„†‡•…‰‹›€№™";
const utf8ContinuationStrict =
  "\u0080-¿ĄÆĽŁØŖŚŠŞŤŸŹŽŻŒąæƒľłøŗśšşťźžżœˆˇ˘˛˜˝΄΅ΆΈΉΊΌΎΏЁЂЃЄЅІЇЈЉЊЋЌЎЏёђѓєѕіїјљњћќўџҐґ†‡‰‹›€№™";

/** UTF-8 sequences of two or more bytes, each decoded with a one-byte encoding. */
export const embeddedUtf8 = new RegExp(
  `(?<![${utf8ContinuationStrict}])(?:${[
    `[${utf8FirstOf2}][${utf8Continuation}]`,
    `[${utf8FirstOf3}][${utf8Continuation}]{2}`,
    `[${utf8FirstOf4}][${utf8Continuation}]{3}`,
  ].join("|")})+`,
  "gu",
);
