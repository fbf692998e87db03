// What of a foreign text a page shows. Names and values come from clients: control characters, line ends and those that
// change the direction of text are shown as �, as the command line does, so that nothing looks like another text.

const NOT_PRINTABLE = /(?! )[\p{C}\p{Z}]/gu;
const NOT_PRINTABLE_IN_LINES = /(?![ \n\t])[\p{C}\p{Z}]/gu;
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

/** The text with � for each character that is not printable. */
export const visible = (text) => text.replace(NOT_PRINTABLE, "\ufffd");

/** The same of a text of many lines: these and tabs stay. */
export const visibleLines = (text) => text.replace(NOT_PRINTABLE_IN_LINES, "\ufffd");

/** Whether it would turn its neighbours around, unless it is isolated from them. */
export const turnsAround = (text) => RIGHT_TO_LEFT.test(text);
