//! Reads the size of an inline image from the first bytes of its base64 text.
//!
//! Invariants: at most `PREFIX_MAX` bytes are decoded, whatever the client sent; the picture itself is never decoded;
//! nothing is ever downloaded. A size that cannot be read or believed is `known: false`, never a guess.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use imagesize::ImageType;

use crate::json::Str;

/// Enough for the header of every format but JPEG, whose size may stand behind large metadata.
const PREFIX: usize = 4 * 1024;
const PREFIX_MAX: usize = 256 * 1024;
/// Longest side that is believed.
pub const SIDE_MAX: u32 = 65_535;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Detail {
    /// Absent, `auto` or a word we do not know.
    #[default]
    Auto,
    Low,
    High,
    Original,
}

impl Detail {
    pub(crate) fn read(word: &str) -> Self {
        match word {
            "low" => Self::Low,
            "high" => Self::High,
            "original" => Self::Original,
            _ => Self::Auto,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Image {
    pub width: u32,
    pub height: u32,
    /// `width` and `height` were read from the image.
    pub known: bool,
    pub detail: Detail,
    /// The image is named by a URL or a file id; its size is not in the body.
    pub remote: bool,
}

impl Image {
    pub(crate) fn remote() -> Self {
        Self { remote: true, ..Self::default() }
    }

    /// An image whose bytes stand in the body as base64.
    pub(crate) fn inline(data: &Str<'_>) -> Self {
        let mut head = decode_prefix(data, PREFIX);
        let Ok(kind) = imagesize::image_type(&head) else { return Self::default() };
        if !matches!(kind, ImageType::Png | ImageType::Jpeg | ImageType::Gif | ImageType::Webp) {
            return Self::default();
        }
        let mut size = imagesize::blob_size(&head);
        if size.is_err() && kind == ImageType::Jpeg {
            head = decode_prefix(data, PREFIX_MAX);
            size = imagesize::blob_size(&head);
        }
        let side = |n: usize| u32::try_from(n).ok().filter(|n| (1..=SIDE_MAX).contains(n));
        match size.ok().and_then(|s| Some((side(s.width)?, side(s.height)?))) {
            Some((width, height)) => Self { width, height, known: true, ..Self::default() },
            None => Self::default(),
        }
    }

    /// `image_url`: a data URL or the address of a remote image.
    pub(crate) fn from_url(url: &Str<'_>) -> Self {
        match url.raw().split_once(',') {
            Some((head, _)) if is_data_url(head) => Self::inline(&url.after(head.len() + 1)),
            _ => Self::remote(),
        }
    }
}

/// `data:image/png;base64`, in any spelling of the scheme; the slash may be escaped.
fn is_data_url(head: &str) -> bool {
    head.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"))
}

/// Up to `max` decoded bytes from the front of base64 text, tolerant of escapes, line breaks and the URL alphabet.
fn decode_prefix(data: &Str<'_>, max: usize) -> Vec<u8> {
    let want = max / 3 * 4;
    let mut text = Vec::with_capacity(want.min(data.raw().len()));
    let mut bytes = data.raw().bytes().peekable();
    while let Some(b) = bytes.next() {
        if text.len() >= want {
            break;
        }
        match b {
            b'-' => text.push(b'+'),
            b'_' => text.push(b'/'),
            // Escapes that base64 can hold: `\/` stands for itself, `\n` and its like are line breaks.
            b'\\' if bytes.next() == Some(b'/') => text.push(b'/'),
            b'=' => break,
            b if b.is_ascii_alphanumeric() || b == b'+' || b == b'/' => text.push(b),
            _ => {}
        }
    }
    if text.len() % 4 == 1 {
        text.pop();
    }
    BASE64.decode(&text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Json;
    use proptest::prelude::*;

    fn png(width: u32, height: u32, padding: usize) -> Vec<u8> {
        let mut out = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        out.extend(width.to_be_bytes());
        out.extend(height.to_be_bytes());
        out.extend([8, 6, 0, 0, 0]);
        out.resize(out.len() + padding, 0x5a);
        out
    }

    /// A JPEG whose size stands behind `metadata` bytes.
    fn jpeg(width: u16, height: u16, metadata: usize) -> Vec<u8> {
        let mut out = vec![0xff, 0xd8];
        let mut left = metadata;
        while left > 0 {
            let n = left.min(60_000);
            out.extend([0xff, 0xe1]);
            out.extend(u16::try_from(n + 2).unwrap().to_be_bytes());
            out.resize(out.len() + n, 0);
            left -= n;
        }
        out.extend([0xff, 0xc0, 0, 17, 8]);
        out.extend(height.to_be_bytes());
        out.extend(width.to_be_bytes());
        out.resize(out.len() + 64, 1);
        out
    }

    fn look(literal: &str) -> Image {
        let body = format!("\"{literal}\"");
        Image::from_url(&Json::strict(body.as_bytes()).unwrap().string().unwrap())
    }

    fn url(bytes: &[u8]) -> String {
        format!("data:image/png;base64,{}", BASE64.encode(bytes))
    }

    #[test]
    fn sizes_are_read_from_headers() {
        let image = look(&url(&png(1024, 768, 2_500_000)));
        assert_eq!((image.width, image.height, image.known), (1024, 768, true));
        let image = look(&url(&jpeg(640, 480, 0)));
        assert_eq!((image.width, image.height), (640, 480));
        let gif = b"GIF89a\x20\x03\x58\x02\0\0\0\0\0\0\0\0\0\0";
        assert_eq!(look(&url(gif)).width, 800);
    }

    #[test]
    fn jpeg_size_behind_metadata_is_found_up_to_the_bound() {
        assert!(look(&url(&jpeg(640, 480, 200_000))).known);
        assert!(!look(&url(&jpeg(640, 480, 300_000))).known);
    }

    #[test]
    fn escapes_line_breaks_and_the_url_alphabet_are_read() {
        let plain = url(&png(1000, 255, 64));
        let escaped = plain.replace('/', "\\/");
        let (head, data) = plain.split_once(',').unwrap();
        let lines: Vec<String> =
            data.as_bytes().chunks(20).map(|c| String::from_utf8_lossy(c).into()).collect();
        let wrapped = format!("{head},{}", lines.join("\\r\\n"));
        let safe = format!("{head},{}", data.replace('+', "-").replace('/', "_"));
        for text in [plain, escaped, wrapped, safe] {
            assert_eq!(look(&text).width, 1000, "{text}");
        }
    }

    #[test]
    fn absurd_sides_and_strange_bytes_are_unknown() {
        assert!(!look(&url(&png(0, 10, 10))).known);
        assert!(!look(&url(&png(65_536, 10, 10))).known);
        assert!(look(&url(&png(65_535, 1, 10))).known);
        assert!(!look(&url(b"not an image at all")).known);
        assert!(!look("data:image/png;base64,").known);
        let remote = look("https://example.com/a,b.png");
        assert!(remote.remote && !remote.known);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(mut bytes in prop::collection::vec(any::<u8>(), 0..600), kind in 0..5_usize) {
            let heads: [&[u8]; 5] = [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"GIF89a", b"RIFF\0\0\0\0WEBPVP8X", b""];
            bytes.splice(0..0, heads[kind].iter().copied());
            let image = look(&url(&bytes));
            prop_assert_eq!(image.known, image.width > 0);
        }
    }
}
