//! Counts characters by class, so that llm_tokens can be estimated without a vocabulary.
//!
//! Invariants: every character is counted in exactly one class; the result does not depend on how the text
//! is cut into parts; time is linear and the common case (ASCII prose) is vector code.
//! Nothing can fail: any text has a count.

/// A run of letters, digits and `+/=_-` of at least this length with `DENSE_DIGITS` digits is an id, base64 or hex.
const DENSE_RUN: u64 = 16;
const DENSE_DIGITS: u64 = 3;
/// Bytes that are looked at as one by vector code; at most 255, so that a count fits a byte.
const BLOCK: usize = 128;
/// Parts up to this length are counted byte by byte.
const SMALL: usize = 16;

/// Characters by class; `bytes` is the UTF-8 length of all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Classes {
    /// ASCII letters, and the signs that ids are made of.
    pub ascii: u64,
    /// All other ASCII signs, and line ends.
    pub signs: u64,
    /// ASCII blanks and control characters but line ends.
    pub spaces: u64,
    /// ASCII digits.
    pub digits: u64,
    /// Characters in long runs of ids, base64 or hex.
    pub dense: u64,
    /// Latin with diacritics.
    pub latin: u64,
    pub vietnamese: u64,
    pub cyrillic: u64,
    pub greek: u64,
    pub hebrew: u64,
    pub arabic: u64,
    /// The scripts of South Asia.
    pub indic: u64,
    /// Thai, Lao, Khmer and Burmese.
    pub thai: u64,
    pub han: u64,
    pub kana: u64,
    pub hangul: u64,
    /// CJK and general punctuation, full-width forms.
    pub punctuation: u64,
    /// Everything else, emoji among it.
    pub other: u64,
    pub bytes: u64,
}

impl Classes {
    pub fn of(text: &str) -> Self {
        let mut counter = Classifier::default();
        counter.part(text);
        counter.end();
        counter.classes()
    }

    /// All characters.
    pub fn chars(&self) -> u64 {
        self.fields().iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub fn add(&mut self, more: &Self) {
        let sum = |a: &mut u64, b: u64| *a = a.saturating_add(b);
        sum(&mut self.ascii, more.ascii);
        sum(&mut self.signs, more.signs);
        sum(&mut self.spaces, more.spaces);
        sum(&mut self.digits, more.digits);
        sum(&mut self.dense, more.dense);
        sum(&mut self.latin, more.latin);
        sum(&mut self.vietnamese, more.vietnamese);
        sum(&mut self.cyrillic, more.cyrillic);
        sum(&mut self.greek, more.greek);
        sum(&mut self.hebrew, more.hebrew);
        sum(&mut self.arabic, more.arabic);
        sum(&mut self.indic, more.indic);
        sum(&mut self.thai, more.thai);
        sum(&mut self.han, more.han);
        sum(&mut self.kana, more.kana);
        sum(&mut self.hangul, more.hangul);
        sum(&mut self.punctuation, more.punctuation);
        sum(&mut self.other, more.other);
        sum(&mut self.bytes, more.bytes);
    }

    fn fields(&self) -> [u64; 18] {
        [
            self.ascii,
            self.signs,
            self.spaces,
            self.digits,
            self.dense,
            self.latin,
            self.vietnamese,
            self.cyrillic,
            self.greek,
            self.hebrew,
            self.arabic,
            self.indic,
            self.thai,
            self.han,
            self.kana,
            self.hangul,
            self.punctuation,
            self.other,
        ]
    }

    fn slot(&mut self, c: char) -> &mut u64 {
        match u32::from(c) {
            0x4E00..=0x9FFF | 0x3400..=0x4DBF | 0xF900..=0xFAFF | 0x2_0000..=0x3_FFFF => &mut self.han,
            0x3040..=0x30FF | 0x31F0..=0x31FF | 0xFF66..=0xFF9F => &mut self.kana,
            0xAC00..=0xD7FF | 0x1100..=0x11FF | 0x3130..=0x318F | 0xA960..=0xA97F => &mut self.hangul,
            0x2000..=0x206F | 0x3000..=0x303F | 0xFE30..=0xFE4F | 0xFF00..=0xFF65 | 0xFFE0..=0xFFEF => {
                &mut self.punctuation
            }
            0x01A0 | 0x01A1 | 0x01AF | 0x01B0 | 0x0110 | 0x0111 | 0x1EA0..=0x1EF9 => &mut self.vietnamese,
            0x0080..=0x024F | 0x1E00..=0x1EFF => &mut self.latin,
            0x0400..=0x052F | 0x1C80..=0x1C8F | 0x2DE0..=0x2DFF | 0xA640..=0xA69F => &mut self.cyrillic,
            0x0370..=0x03FF | 0x1F00..=0x1FFF => &mut self.greek,
            0x0590..=0x05FF | 0xFB1D..=0xFB4F => &mut self.hebrew,
            0x0600..=0x06FF | 0x0750..=0x077F | 0x08A0..=0x08FF | 0xFB50..=0xFDFF | 0xFE70..=0xFEFF => {
                &mut self.arabic
            }
            0x0900..=0x0DFF => &mut self.indic,
            0x0E00..=0x0EFF | 0x1000..=0x109F | 0x1780..=0x17FF => &mut self.thai,
            _ => &mut self.other,
        }
    }
}

/// Counts text that comes in parts. May be read at any time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Classifier {
    classes: Classes,
    /// Length and digits of the run that is still open at the end of the last part. They are already counted
    /// as ordinary characters; closing the run may move them.
    run: u64,
    run_digits: u64,
}

impl Classifier {
    pub(crate) fn classes(&self) -> Classes {
        self.classes
    }

    pub(crate) fn part(&mut self, text: &str) {
        self.classes.bytes = self.classes.bytes.saturating_add(count(text.len()));
        if text.len() <= SMALL && text.is_ascii() {
            text.bytes().for_each(|b| self.byte(b));
            return;
        }
        let mut rest = text;
        loop {
            let (ascii, tail) = rest.split_at(ascii_prefix(rest.as_bytes()));
            self.ascii(ascii.as_bytes());
            if tail.is_empty() {
                return;
            }
            self.end();
            let mut chars = tail.chars();
            let mut han = 0;
            loop {
                let here = chars.as_str();
                match chars.next() {
                    Some('\u{4e00}'..='\u{9fff}') => han += 1,
                    Some(c) if !c.is_ascii() => *self.classes.slot(c) += 1,
                    _ => {
                        rest = here;
                        break;
                    }
                }
            }
            self.classes.han += han;
            if rest.is_empty() {
                return;
            }
        }
    }

    /// Ends a piece: a run does not go on in the next one.
    pub(crate) fn end(&mut self) {
        let (len, digits) = (self.run, self.run_digits);
        self.run = 0;
        self.run_digits = 0;
        self.close(len, digits);
    }

    fn close(&mut self, len: u64, digits: u64) {
        if is_dense(len, digits) {
            self.move_to_dense(len, digits);
        }
    }

    fn move_to_dense(&mut self, len: u64, digits: u64) {
        self.classes.ascii = self.classes.ascii.saturating_sub(len - digits);
        self.classes.digits = self.classes.digits.saturating_sub(digits);
        self.classes.dense += len;
    }

    fn ascii(&mut self, bytes: &[u8]) {
        if bytes.len() <= SMALL {
            for b in bytes {
                self.byte(*b);
            }
            return;
        }
        let (words, spaces) = words_and_spaces(bytes);
        self.classes.ascii += words;
        self.classes.spaces += spaces;
        self.classes.signs += count(bytes.len()).saturating_sub(words + spaces);
        // Whatever is open goes on at the front and is closed where it stops.
        if self.run > 0 {
            let front = run_from(bytes);
            let (head, body) = bytes.split_at(front);
            self.run += count(front);
            self.run_digits += self.take_digits(head);
            if body.is_empty() {
                return;
            }
            self.end();
            self.runs(body);
        } else {
            self.runs(bytes);
        }
    }

    fn byte(&mut self, b: u8) {
        if word(b) == 0 {
            if self.run > 0 {
                self.end();
            }
            self.classes.spaces += u64::from(space(b));
            self.classes.signs += 1 - u64::from(space(b));
        } else if b.is_ascii_digit() {
            self.run += 1;
            self.run_digits += 1;
            self.classes.digits += 1;
        } else {
            self.run += 1;
            self.classes.ascii += 1;
        }
    }

    /// Moves the digits of `bytes`, so far counted as plain ASCII, to their own class.
    fn take_digits(&mut self, bytes: &[u8]) -> u64 {
        let digits = digits_in(bytes);
        self.classes.digits += digits;
        self.classes.ascii = self.classes.ascii.saturating_sub(digits);
        digits
    }

    /// Finds every dense run in `bytes`; the run that touches the end stays open.
    fn runs(&mut self, bytes: &[u8]) {
        let back = bytes.iter().rev().take_while(|b| word(**b) != 0).count();
        let (closed, open) = bytes.split_at(bytes.len() - back);
        self.run = count(back);
        self.run_digits = self.take_digits(open);
        // A dense run holds digits, and most blocks of prose hold none: only runs around a digit are looked at.
        let (mut done, mut dense_len, mut dense_digits) = (0, 0, 0);
        for (n, block) in closed.chunks(BLOCK).enumerate() {
            if self.take_digits(block) == 0 {
                continue;
            }
            for at in digit_places(block).map(|at| n * BLOCK + at) {
                if at < done {
                    continue;
                }
                let (before, after) = closed.split_at(at);
                let left = before.iter().rev().take_while(|b| word(**b) != 0).count();
                done = at + run_from(after);
                let run = closed.get(at - left..done).unwrap_or_default();
                let (len, digits) = (count(run.len()), digits_in(run));
                if is_dense(len, digits) {
                    dense_len += len;
                    dense_digits += digits;
                }
            }
        }
        self.move_to_dense(dense_len, dense_digits);
    }
}

/// A run of digits alone is a number, not an id.
fn is_dense(len: u64, digits: u64) -> bool {
    len >= DENSE_RUN && digits >= DENSE_DIGITS && digits < len
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// 1 for a character that ids, base64 and hex are made of. Without branches, for the vector unit.
#[inline]
fn word(b: u8) -> u8 {
    let letter = u8::from((b | 0x20).wrapping_sub(b'a') < 26);
    let digit = u8::from(b.wrapping_sub(b'0') < 10);
    let sign = |s: u8| u8::from(b == s);
    letter | digit | sign(b'+') | sign(b'/') | sign(b'=') | sign(b'_') | sign(b'-')
}

/// 1 for a blank or a control character that ends no line.
#[inline]
fn space(b: u8) -> u8 {
    u8::from(b <= b' ') & u8::from(b != b'\n')
}

/// How many characters are of [`word`], and how many of [`space`].
#[inline]
fn words_and_spaces(bytes: &[u8]) -> (u64, u64) {
    let (mut words, mut spaces) = (0, 0);
    for block in bytes.chunks(BLOCK) {
        words += u64::from(block.iter().map(|b| word(*b)).sum::<u8>());
        spaces += u64::from(block.iter().map(|b| space(*b)).sum::<u8>());
    }
    (words, spaces)
}

fn run_from(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|b| word(**b) != 0).count()
}

#[inline]
fn digits_in(bytes: &[u8]) -> u64 {
    bytes
        .chunks(BLOCK)
        .map(|block| u64::from(block.iter().map(|b| u8::from(b.wrapping_sub(b'0') < 10)).sum::<u8>()))
        .sum()
}

/// Where the digits of a block are; parts without one are passed over as a whole.
fn digit_places(block: &[u8]) -> impl Iterator<Item = usize> {
    let parts = block.chunks(SMALL).enumerate().filter(|(_, part)| digits_in(part) > 0);
    parts.flat_map(|(n, part)| {
        let digits = part.iter().enumerate().filter(|(_, b)| b.is_ascii_digit());
        digits.map(move |(k, _)| n * SMALL + k)
    })
}

/// Length of the ASCII at the front: long stretches first, then the stretch that ends it in ever smaller steps.
fn ascii_prefix(bytes: &[u8]) -> usize {
    let mut at = 0;
    for step in [4096, 128, 1] {
        let rest = bytes.get(at..).unwrap_or_default();
        at += rest.chunks(step).take_while(|part| part.is_ascii()).map(<[u8]>::len).sum::<usize>();
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, character by character.
    fn plain(text: &str) -> Classes {
        let mut out = Classes { bytes: count(text.len()), ..Classes::default() };
        let chars: Vec<char> = text.chars().collect();
        let is_word = |c: char| c.is_ascii() && word(u8::try_from(c).unwrap()) == 1;
        let mut at = 0;
        while at < chars.len() {
            let len = chars[at..].iter().take_while(|c| is_word(**c)).count();
            let run = &chars[at..at + len.max(1)];
            let digits = run.iter().filter(|c| c.is_ascii_digit()).count();
            for c in run {
                if len >= 16 && digits >= 3 && digits < len {
                    out.dense += 1;
                } else if c.is_ascii_digit() {
                    out.digits += 1;
                } else if is_word(*c) {
                    out.ascii += 1;
                } else if c.is_ascii() && *c <= ' ' && *c != '\n' {
                    out.spaces += 1;
                } else if c.is_ascii() {
                    out.signs += 1;
                } else {
                    *out.slot(*c) += 1;
                }
            }
            at += run.len();
        }
        out
    }

    #[test]
    fn classes_of_known_texts() {
        let got = Classes::of("Hello, 42! żółw Привет 中文字 ひらカナ 한국 สวัสดี đường 😀。");
        assert_eq!(got.digits, 2);
        assert_eq!((got.cyrillic, got.han, got.kana, got.hangul), (6, 3, 4, 2));
        assert_eq!((got.thai, got.other, got.punctuation), (6, 1, 1));
        assert_eq!((got.latin, got.vietnamese), (3, 3));
        assert_eq!(
            got.chars(),
            count("Hello, 42! żółw Привет 中文字 ひらカナ 한국 สวัสดี đường 😀。".chars().count())
        );
    }

    #[test]
    fn ids_are_dense_and_long_words_and_numbers_are_not() {
        assert_eq!(Classes::of("550e8400-e29b-41d4-a716-446655440000").dense, 36);
        assert_eq!(Classes::of("0123456789012345678901234567890123456789").digits, 40);
        assert_eq!(Classes::of("internationalisation-and-localisation").dense, 0);
        assert_eq!(Classes::of("abcdefghijklm123").dense, 16);
        assert_eq!(Classes::of("abcdefghijkl123").dense, 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]
        #[test]
        fn equals_the_definition_however_the_text_is_cut(
            text in "([a-z0-9/+=_-]{0,40}|[ -~]{0,20}|[a-z \t\r\n{}();]{0,40}|[ é中ひ한😀]{0,5}){0,8}",
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let want = plain(&text);
            prop_assert_eq!(Classes::of(&text), want);
            let mut at: Vec<usize> = cuts.iter().map(|c| c.index(text.len() + 1)).collect();
            at.retain(|n| text.is_char_boundary(*n));
            at.sort_unstable();
            let mut counter = Classifier::default();
            at.push(text.len());
            let mut from = 0;
            for n in at {
                counter.part(text.get(from..n).unwrap());
                from = n;
            }
            counter.end();
            prop_assert_eq!(counter.classes(), want);
        }
    }
}
