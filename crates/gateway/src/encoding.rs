//! Content encodings of upstream answers, undone where the meter must read.
//!
//! We ask for `identity`; a provider that encodes all the same is decoded and relayed plain. Bounded: input is fed in
//! small pieces, and no piece may blow up beyond `expand_max`; over it the answer is an error, not memory.

use std::io::Write;

/// Input fed to a decoder at once.
const PIECE: usize = 1024;

/// Decodes one answer's bytes as they come.
pub(crate) enum Decoder {
    Identity,
    Gzip(flate2::write::MultiGzDecoder<Vec<u8>>),
    Deflate(flate2::write::ZlibDecoder<Vec<u8>>),
    Brotli(Box<brotli::DecompressorWriter<Vec<u8>>>),
    Zstd(Box<zstd::stream::write::Decoder<'static, Vec<u8>>>),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum EncodingError {
    #[error("the upstream answered in an encoding that is not understood")]
    Unknown,
    #[error("the upstream's encoded answer is damaged")]
    Damaged,
    #[error("the upstream's encoded answer grows beyond its bound")]
    TooLarge,
}

impl Decoder {
    /// The decoder for a `Content-Encoding`; at most one coding.
    pub(crate) fn new(encoding: Option<&str>) -> Result<Self, EncodingError> {
        match encoding.map(|e| e.trim().to_ascii_lowercase()).as_deref() {
            None | Some("" | "identity") => Ok(Self::Identity),
            Some("gzip" | "x-gzip") => Ok(Self::Gzip(flate2::write::MultiGzDecoder::new(Vec::new()))),
            Some("deflate") => Ok(Self::Deflate(flate2::write::ZlibDecoder::new(Vec::new()))),
            Some("br") => Ok(Self::Brotli(Box::new(brotli::DecompressorWriter::new(Vec::new(), 4096)))),
            Some("zstd") => zstd::stream::write::Decoder::new(Vec::new())
                .map(|d| Self::Zstd(Box::new(d)))
                .map_err(|_| EncodingError::Unknown),
            Some(_) => Err(EncodingError::Unknown),
        }
    }

    pub(crate) fn is_identity(&self) -> bool {
        matches!(self, Self::Identity)
    }

    /// Decodes one chunk into `out`, which may grow by at most `expand_max` bytes.
    pub(crate) fn push(
        &mut self,
        chunk: &[u8],
        out: &mut Vec<u8>,
        expand_max: usize,
    ) -> Result<(), EncodingError> {
        let before = out.len();
        for piece in chunk.chunks(PIECE) {
            self.feed(piece)?;
            self.take(out);
            if out.len().saturating_sub(before) > expand_max {
                return Err(EncodingError::TooLarge);
            }
        }
        Ok(())
    }

    /// The bytes have ended: false ends are errors, and what the decoder still held is given.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        let ended = match self {
            Self::Identity => return Ok(()),
            Self::Gzip(d) => d.try_finish(),
            Self::Deflate(d) => d.try_finish(),
            Self::Brotli(d) => d.close(),
            Self::Zstd(d) => d.flush(),
        };
        self.take(out);
        ended.map_err(|_| EncodingError::Damaged)
    }

    fn feed(&mut self, piece: &[u8]) -> Result<(), EncodingError> {
        let fed = match self {
            Self::Identity => return Err(EncodingError::Unknown),
            Self::Gzip(d) => d.write_all(piece).and_then(|()| d.flush()),
            Self::Deflate(d) => d.write_all(piece).and_then(|()| d.flush()),
            Self::Brotli(d) => d.write_all(piece).and_then(|()| d.flush()),
            Self::Zstd(d) => d.write_all(piece).and_then(|()| d.flush()),
        };
        fed.map_err(|_| EncodingError::Damaged)
    }

    fn take(&mut self, out: &mut Vec<u8>) {
        let ready = match self {
            Self::Identity => return,
            Self::Gzip(d) => d.get_mut(),
            Self::Deflate(d) => d.get_mut(),
            Self::Brotli(d) => d.get_mut(),
            Self::Zstd(d) => d.get_mut(),
        };
        out.append(ready);
    }
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Identity => "identity",
            Self::Gzip(_) => "gzip",
            Self::Deflate(_) => "deflate",
            Self::Brotli(_) => "br",
            Self::Zstd(_) => "zstd",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn every_coding_gives_the_plain_bytes_at_any_split() {
        let plain: Vec<u8> = (0..20_000_u32).map(|i| u8::try_from(i * i % 251).unwrap()).collect();
        let mut br = Vec::new();
        brotli::CompressorWriter::new(&mut br, 4096, 5, 22).write_all(&plain).unwrap();
        let coded = [("gzip", gzip(&plain)), ("br", br), ("zstd", zstd::encode_all(&plain[..], 3).unwrap())];
        for (name, bytes) in coded {
            for step in [1, 7, 1000, bytes.len()] {
                let mut decoder = Decoder::new(Some(name)).unwrap();
                let mut out = Vec::new();
                for chunk in bytes.chunks(step) {
                    decoder.push(chunk, &mut out, 1 << 20).unwrap();
                }
                decoder.finish(&mut out).unwrap();
                assert_eq!(out, plain, "{name} by {step}");
            }
        }
    }

    #[test]
    fn b130_unknown_and_doubled_codings_are_errors() {
        assert!(matches!(Decoder::new(Some("x-foo")), Err(EncodingError::Unknown)));
        assert!(matches!(Decoder::new(Some("gzip, gzip")), Err(EncodingError::Unknown)));
    }

    #[test]
    fn a_bomb_is_stopped_at_the_bound() {
        let bomb = gzip(&vec![0; 16 << 20]);
        let mut decoder = Decoder::new(Some("gzip")).unwrap();
        let mut out = Vec::new();
        assert!(matches!(decoder.push(&bomb, &mut out, 1 << 20), Err(EncodingError::TooLarge)));
        assert!(out.len() < 4 << 20);
    }

    #[test]
    fn a_coded_answer_that_was_cut_is_no_answer() {
        let whole = gzip(&[7; 10_000]);
        for cut in [10, whole.len() / 2, whole.len() - 1] {
            let mut decoder = Decoder::new(Some("gzip")).unwrap();
            let mut out = Vec::new();
            decoder.push(&whole[..cut], &mut out, 1 << 20).unwrap();
            assert!(decoder.finish(&mut out).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn damaged_bytes_are_an_error() {
        let mut decoder = Decoder::new(Some("gzip")).unwrap();
        assert!(matches!(
            decoder.push(b"not gzip at all, really", &mut Vec::new(), 1024),
            Err(EncodingError::Damaged)
        ));
    }
}
