//! Our credential at a provider, looked for in what comes back.
//!
//! Invariants: no client gets a byte of an answer from the credential's first on, wherever the answer is cut into pieces;
//! of other bytes only those wait that may be the credential's beginning, so at most one less than it has, and only until
//! the next piece. A provider that writes it in another spelling (escaped, encoded) is not seen through.

use bytes::Bytes;
use memchr::memchr;
use memchr::memmem::Finder;

/// What is looked for.
#[derive(Debug)]
pub(crate) struct Hidden(Option<Finder<'static>>);

impl Hidden {
    pub(crate) fn new(credential: Option<&[u8]>) -> Self {
        let credential = credential.filter(|credential| !credential.is_empty());
        Self(credential.map(|credential| Finder::new(credential).into_owned()))
    }

    /// Whether a text holds it.
    pub(crate) fn is_in(&self, text: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|finder| finder.find(text).is_some())
    }

    /// How many bytes at the end of a text may be its beginning.
    fn begun_in(&self, text: &[u8]) -> usize {
        let Some(needle) = self.0.as_ref().map(Finder::needle) else { return 0 };
        let Some((first, _)) = needle.split_first() else { return 0 };
        let mut tail = text.get(text.len().saturating_sub(needle.len() - 1)..).unwrap_or_default();
        while let Some(at) = memchr(*first, tail) {
            tail = tail.get(at..).unwrap_or_default();
            if needle.starts_with(tail) {
                return tail.len();
            }
            tail = tail.get(1..).unwrap_or_default();
        }
        0
    }
}

/// Bytes of one answer that wait for the next piece.
#[derive(Debug, Default)]
pub(crate) struct Joint(Bytes);

/// The credential was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Named;

impl Joint {
    /// Takes the next piece; answers what may go on.
    pub(crate) fn pass(&mut self, hidden: &Hidden, piece: Bytes) -> Result<Bytes, Named> {
        let mut piece = if self.0.is_empty() {
            piece
        } else {
            Bytes::from([&std::mem::take(&mut self.0)[..], &piece[..]].concat())
        };
        if hidden.is_in(&piece) {
            return Err(Named);
        }
        self.0 = piece.split_off(piece.len() - hidden.begun_in(&piece));
        Ok(piece)
    }

    /// The answer is over: what waited is no credential.
    pub(crate) fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"sk-sk-abc";

    /// What comes through, by pieces; nothing more once it was found.
    fn through(text: &[u8], cuts: &[usize]) -> (Vec<u8>, bool) {
        let hidden = Hidden::new(Some(KEY));
        let (mut joint, mut out, mut from) = (Joint::default(), Vec::new(), 0);
        for to in cuts.iter().copied().chain([text.len()]) {
            match joint.pass(&hidden, Bytes::copy_from_slice(&text[from..to])) {
                Ok(bytes) => out.extend_from_slice(&bytes),
                Err(Named) => return (out, true),
            }
            assert!(to - out.len() < KEY.len(), "more waits than may be the beginning");
            from = to;
        }
        out.extend_from_slice(&joint.rest());
        (out, false)
    }

    #[test]
    fn it_is_found_at_every_cut_and_nothing_of_it_passes() {
        let text = [b"say sk-", KEY, b" twice"].concat();
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let (out, named) = through(&text, &[first, second]);
                assert!(named, "{first} {second}");
                assert!(b"say sk-".starts_with(&out[..]), "{first} {second}: {out:?}");
            }
        }
        let single: Vec<usize> = (1..text.len()).collect();
        assert_eq!(through(&text, &single), (b"say sk-".to_vec(), true));
    }

    #[test]
    fn what_only_resembles_it_passes_whole() {
        for text in [&b"sk-sk-abd"[..], b"sk-sk-ab", b"s", b"sk-sk-sk-sk-ab", b"nothing", b""] {
            for first in 0..=text.len() {
                for second in first..=text.len() {
                    assert_eq!(through(text, &[first, second]), (text.to_vec(), false), "{first} {second}");
                }
            }
        }
    }

    #[test]
    fn a_piece_that_cannot_begin_it_is_handed_on_as_it_is() {
        let hidden = Hidden::new(Some(KEY));
        let piece = Bytes::from_static(b"data: {\"choices\":[]}\n\n");
        let mut joint = Joint::default();
        let out = joint.pass(&hidden, piece.clone()).unwrap();
        assert_eq!((out.as_ptr(), out.len()), (piece.as_ptr(), piece.len()), "not copied");
        for none in [None, Some(&b""[..])] {
            let hidden = Hidden::new(none);
            assert_eq!(joint.pass(&hidden, Bytes::from_static(KEY)), Ok(Bytes::from_static(KEY)));
        }
    }
}
