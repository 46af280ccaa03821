// Writes out characters that cannot be seen, where a person decides on what stands there. The
// same characters, and the same spelling, as `views/escape.py`. Pure.

const UNSEEN = "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5"
  + "\\u180b-\\u180f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufe00-\\ufe0f\\ufeff"
  + "\\uffa0\\ufff0-\\ufffb\\u{d800}-\\u{dfff}\\u{13430}-\\u{1343f}\\u{1bca0}-\\u{1bca3}"
  + "\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}\\u{fffff}\\u{10ffff}";
// Characters that look like a blank but are none, for example to a shell.
const BLANKS = "\\xa0\\u1680\\u2000-\\u200a\\u202f\\u205f\\u2800\\u3000";
const HIDDEN = new RegExp(`[${UNSEEN}${BLANKS}]`, "gu");
const SHORT = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** Return the text with every invisible character and unusual blank written out. */
export function exact(text) {
  return text.replace(HIDDEN, written);
}

/** Return the text as `exact` does, on one line: for names. */
export function onOneLine(text) {
  return exact(text).replace(/[\n\t]/g, (c) => SHORT[c]);
}

/** Return how many characters of the text are invisible. */
export function hiddenIn(text) {
  return text.match(HIDDEN)?.length ?? 0;
}

function written(letter) {
  const code = letter.codePointAt(0);
  const hex = code.toString(16);
  if (code < 0x100) return SHORT[letter] ?? `\\x${hex.padStart(2, "0")}`;
  return code < 0x10000 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
}
