//! Content encodings, undone where something must be read: requests of clients, answers of upstreams.
//!
//! We ask upstreams for `identity`; one that encodes all the same is decoded and relayed plain. Bounded: decoders write
//! into a sink that takes no byte more than it was given room for, so a bomb is an error and never memory; the history a
//! decoder keeps is bounded by `WINDOW_LOG_MAX`.

use std::io::{self, Write};

use bytes::Bytes;
use http::header::{self, HeaderMap};

use crate::budget::{Counted, Share};

/// Input fed to a decoder at once.
const PIECE: usize = 1024;
/// Largest window of zstd, as a power of two: 8 MiB, which every decoder has to support (RFC 8878).
const WINDOW_LOG_MAX: u32 = 23;

/// Where decoded bytes go.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    bytes: Counted,
    room: usize,
    full: Option<EncodingError>,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(room) = self.room.checked_sub(bytes.len()) else {
            self.full = Some(EncodingError::TooLarge);
            return Err(io::Error::other("no room"));
        };
        if self.bytes.extend(bytes, 0).is_err() {
            self.full = Some(EncodingError::Full);
            return Err(io::Error::other("no room among all"));
        }
        self.room = room;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Decodes one body's bytes as they come.
pub(crate) enum Decoder {
    Identity,
    Gzip(flate2::write::MultiGzDecoder<Sink>),
    Deflate(flate2::write::ZlibDecoder<Sink>),
    Brotli(Box<brotli::DecompressorWriter<Sink>>),
    Zstd(Box<zstd::stream::write::Decoder<'static, Sink>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EncodingError {
    #[error("the encoding is not understood")]
    Unknown,
    #[error("what is encoded is damaged")]
    Damaged,
    #[error("what is encoded grows beyond its bound")]
    TooLarge,
    #[error("what all calls hold together grows beyond its bound")]
    Full,
}

impl Decoder {
    /// The decoder for a `Content-Encoding`; at most one coding.
    pub(crate) fn new(encoding: Option<&str>) -> Result<Self, EncodingError> {
        match encoding.map(|e| e.trim().to_ascii_lowercase()).as_deref() {
            None | Some("" | "identity") => Ok(Self::Identity),
            Some("gzip" | "x-gzip") => Ok(Self::Gzip(flate2::write::MultiGzDecoder::new(Sink::default()))),
            Some("deflate") => Ok(Self::Deflate(flate2::write::ZlibDecoder::new(Sink::default()))),
            Some("br") => Ok(Self::Brotli(Box::new(brotli::DecompressorWriter::new(Sink::default(), 4096)))),
            Some("zstd") => {
                let mut decoder =
                    zstd::stream::write::Decoder::new(Sink::default()).map_err(|_| EncodingError::Unknown)?;
                decoder.window_log_max(WINDOW_LOG_MAX).map_err(|_| EncodingError::Unknown)?;
                Ok(Self::Zstd(Box::new(decoder)))
            }
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
        if let Some(sink) = self.sink() {
            sink.room = expand_max;
        }
        for piece in chunk.chunks(PIECE) {
            let fed = self.feed(piece);
            self.take(out);
            fed?;
        }
        Ok(())
    }

    /// The bytes have ended: false ends are errors, and what the decoder still held is given.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        let ended = self.close();
        self.take(out);
        ended
    }

    /// What is decoded stays here, at most `room` bytes of it, counted before it is there.
    pub(crate) fn keep(&mut self, buffer: Counted, room: usize) {
        if let Some(sink) = self.sink() {
            (sink.bytes, sink.room) = (buffer, room);
        }
    }

    /// Decodes one chunk into what is kept.
    pub(crate) fn push_kept(&mut self, chunk: &[u8]) -> Result<(), EncodingError> {
        chunk.chunks(PIECE).try_for_each(|piece| self.feed(piece))
    }

    /// The bytes have ended: what was kept, and its share.
    pub(crate) fn finish_kept(&mut self) -> Result<(Bytes, Option<Share>), EncodingError> {
        self.close()?;
        Ok(self.sink().map(|sink| std::mem::take(&mut sink.bytes)).unwrap_or_default().finish())
    }

    fn close(&mut self) -> Result<(), EncodingError> {
        let ended = match self {
            Self::Identity => return Ok(()),
            Self::Gzip(d) => d.try_finish(),
            Self::Deflate(d) => d.try_finish(),
            Self::Brotli(d) => d.close(),
            Self::Zstd(d) => d.flush(),
        };
        ended.map_err(|_| self.failure())
    }

    fn feed(&mut self, piece: &[u8]) -> Result<(), EncodingError> {
        let fed = match self {
            Self::Identity => return Err(EncodingError::Unknown),
            Self::Gzip(d) => d.write_all(piece).and_then(|()| d.flush()),
            Self::Deflate(d) => d.write_all(piece).and_then(|()| d.flush()),
            Self::Brotli(d) => d.write_all(piece).and_then(|()| d.flush()),
            Self::Zstd(d) => d.write_all(piece).and_then(|()| d.flush()),
        };
        fed.map_err(|_| self.failure())
    }

    /// Why a write failed: for want of room, or because of what was written.
    fn failure(&mut self) -> EncodingError {
        self.sink().and_then(|sink| sink.full).unwrap_or(EncodingError::Damaged)
    }

    /// Moves what is ready into `out`.
    fn take(&mut self, out: &mut Vec<u8>) {
        if let Some(sink) = self.sink() {
            sink.bytes.drain_into(out);
        }
    }

    fn sink(&mut self) -> Option<&mut Sink> {
        match self {
            Self::Identity => None,
            Self::Gzip(d) => Some(d.get_mut()),
            Self::Deflate(d) => Some(d.get_mut()),
            Self::Brotli(d) => Some(d.get_mut()),
            Self::Zstd(d) => Some(d.get_mut()),
        }
    }
}

/// What a body says it is encoded in; several lines are several codings.
pub(crate) fn named(headers: &HeaderMap) -> Option<String> {
    let lines: Vec<&str> = headers
        .get_all(header::CONTENT_ENCODING)
        .iter()
        .map(|v| v.to_str().unwrap_or("unreadable"))
        .collect();
    (!lines.is_empty()).then(|| lines.join(", "))
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
    fn a_bomb_is_stopped_at_the_bound_and_what_fits_is_not() {
        let plain = vec![0; 16 << 20];
        let mut br = Vec::new();
        brotli::CompressorWriter::new(&mut br, 4096, 5, 22).write_all(&plain).unwrap();
        let coded = [("gzip", gzip(&plain)), ("br", br), ("zstd", zstd::encode_all(&plain[..], 3).unwrap())];
        for (name, bomb) in coded {
            let mut decoder = Decoder::new(Some(name)).unwrap();
            let mut out = Vec::new();
            assert!(matches!(decoder.push(&bomb, &mut out, 1 << 20), Err(EncodingError::TooLarge)), "{name}");
            assert!(out.len() <= 1 << 20, "{name}: {}", out.len());
            for (room, fits) in [(plain.len(), true), (plain.len() - 1, false)] {
                let mut decoder = Decoder::new(Some(name)).unwrap();
                let mut out = Vec::new();
                let pushed = decoder.push(&bomb, &mut out, room).and_then(|()| decoder.finish(&mut out));
                assert_eq!(pushed.is_ok() && out.len() == plain.len(), fits, "{name} into {room}");
            }
        }
    }

    #[test]
    fn what_is_kept_is_counted_before_it_is_decoded() {
        let plain = vec![7; 3 << 20];
        let mut br = Vec::new();
        brotli::CompressorWriter::new(&mut br, 4096, 5, 22).write_all(&plain).unwrap();
        let coded = [("gzip", gzip(&plain)), ("br", br), ("zstd", zstd::encode_all(&plain[..], 3).unwrap())];
        for (name, bomb) in coded {
            for (bound, fits) in [(plain.len(), true), (plain.len() - 1, false), (1 << 20, false)] {
                let budget = crate::budget::Budget::new(bound);
                let mut decoder = Decoder::new(Some(name)).unwrap();
                decoder.keep(Counted::new(budget.share()), 1 << 30);
                let kept = decoder.push_kept(&bomb).and_then(|()| decoder.finish_kept());
                match kept {
                    Ok((bytes, _share)) => assert!(fits && bytes == plain, "{name} within {bound}"),
                    Err(error) => assert_eq!((error, fits), (EncodingError::Full, false), "{name}"),
                }
            }
            let mut decoder = Decoder::new(Some(name)).unwrap();
            decoder.keep(Counted::default(), plain.len() - 1);
            let kept = decoder.push_kept(&bomb).and_then(|()| decoder.finish_kept());
            assert_eq!(kept.map(drop), Err(EncodingError::TooLarge), "{name}");
        }
    }

    #[test]
    fn a_window_beyond_the_bound_is_refused() {
        for (log, taken) in [(WINDOW_LOG_MAX, true), (WINDOW_LOG_MAX + 1, false)] {
            let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
            encoder.window_log(log).unwrap();
            encoder.include_contentsize(false).unwrap();
            encoder.write_all(&[7; 1000]).unwrap();
            let coded = encoder.finish().unwrap();
            let mut decoder = Decoder::new(Some("zstd")).unwrap();
            assert_eq!(decoder.push(&coded, &mut Vec::new(), 1 << 20).is_ok(), taken, "2^{log}");
        }
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
