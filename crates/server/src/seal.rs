//! Secrets of providers, sealed: the store has them encrypted, and no answer has them at all.
//!
//! AES-256-GCM with a random nonce; the key is derived from the file's `config.secrets_key`, the name of the object is
//! bound in, so that what is sealed for one cannot be opened as another's.
//! Without that key nothing is sealed or opened: what has a sealed secret cannot be used, and says so.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use tollbook_store::ObjectName;

use crate::config::place;

/// How a sealed secret begins: the way it was made.
const WAY: &str = "v1:";

/// Seals and opens.
pub(crate) struct Seal(RandomizedNonceKey);

impl Seal {
    /// With a key of any length; the caller sees that it cannot be guessed.
    pub(crate) fn new(key: &SecretString) -> Option<Self> {
        let derived = blake3::derive_key("tollbook sealed secrets 1", key.expose_secret().as_bytes());
        RandomizedNonceKey::new(&AES_256_GCM, &derived).ok().map(Self)
    }

    /// The secret as the store may have it.
    pub(crate) fn close(&self, name: &ObjectName, secret: &str) -> Option<String> {
        let mut text = secret.as_bytes().to_vec();
        let bound = place(name);
        let nonce = self.0.seal_in_place_append_tag(Aad::from(bound.as_bytes()), &mut text).ok()?;
        let mut sealed = nonce.as_ref().to_vec();
        sealed.extend_from_slice(&text);
        Some(format!("{WAY}{}", STANDARD.encode(sealed)))
    }

    /// What was sealed for that object with this key; nothing if it is anything else.
    pub(crate) fn open(&self, name: &ObjectName, sealed: &str) -> Option<SecretString> {
        let mut bytes = STANDARD.decode(sealed.strip_prefix(WAY)?).ok()?;
        let (nonce, text) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let bound = place(name);
        let open = self.0.open_in_place(nonce, Aad::from(bound.as_bytes()), text).ok()?;
        std::str::from_utf8(open).ok().map(SecretString::from)
    }
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal(…)")
    }
}

#[cfg(test)]
mod tests {
    use tollbook_store::ObjectKind;

    use super::*;

    fn name(id: &str) -> ObjectName {
        ObjectName {
            kind: ObjectKind::Upstream,
            tenant: String::new(),
            project: String::new(),
            id: id.to_owned(),
        }
    }

    #[test]
    fn a_secret_opens_for_its_object_and_key_alone() {
        let seal = |key: &str| Seal::new(&SecretString::from(key)).unwrap();
        let (ours, other) = (seal("one key"), seal("another key"));
        let closed = ours.close(&name("openai"), "sk-ü").unwrap();
        assert!(closed.starts_with("v1:") && !closed.contains("sk-"), "{closed}");
        assert_ne!(closed, ours.close(&name("openai"), "sk-ü").unwrap(), "a nonce is used once");
        let opened = |seal: &Seal, id: &str, text: &str| {
            seal.open(&name(id), text).map(|secret| secret.expose_secret().to_owned())
        };
        assert_eq!(opened(&ours, "openai", &closed).as_deref(), Some("sk-ü"));
        assert_eq!(opened(&other, "openai", &closed), None);
        assert_eq!(opened(&ours, "azure", &closed), None);
        for damaged in [
            "",
            "v1:",
            "v1:AAAA",
            "v2:AAAA",
            "v1:!",
            &closed.replace("v1:", "v1:A"),
            &closed.replace("v1:", ""),
        ] {
            assert_eq!(opened(&ours, "openai", damaged), None, "{damaged}");
        }
    }
}
