//! SSH signature of a lock: the format that `ssh-keygen -Y sign` writes, with Ed25519 keys.
//! Source: PROTOCOL.sshsig and PROTOCOL.u2f of OpenSSH.

use super::allowed_signers::AllowedSigners;
use super::{Lock, LockFile};
use crate::document::ConfigError;
use crate::text::quote_value;
use crate::wire::ContentDigest;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use ring::signature::{ED25519, UnparsedPublicKey};
use sha2::{Digest as _, Sha256, Sha512};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Namespace of the signatures of locks.
pub const SIGNATURE_NAMESPACE: &str = "caproot-lock";
/// Maximum size of a signature file in bytes.
pub const MAX_SIGNATURE_BYTES: u64 = 16 << 10;

const ARMOR_START: &str = "-----BEGIN SSH SIGNATURE-----";
const ARMOR_END: &str = "-----END SSH SIGNATURE-----";
/// Start of a signature, and of the text that is signed.
const MAGIC: &[u8] = b"SSHSIG";
const FORMAT_VERSION: u32 = 1;
/// Type of a key in a file, and of a key in hardware.
const KEY_TYPE: &str = "ssh-ed25519";
const HARDWARE_KEY_TYPE: &str = "sk-ssh-ed25519@openssh.com";
/// Flag of a signature of a hardware key: a person touched the key.
const USER_PRESENCE: u8 = 1;

/// Public key of a signer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignerKey {
    /// Key as encoded in signatures and in the file of the allowed signers.
    blob: Box<[u8]>,
    point: [u8; 32],
    /// Application of a hardware key.
    application: Option<Box<[u8]>>,
}

/// Signature without its armor.
struct ParsedSignature<'a> {
    key: SignerKey,
    hash_algorithm: &'a str,
    signature: &'a [u8],
    /// Flags and counter of a hardware key.
    touch: Option<TouchRecord>,
}

/// Flags and counter that a hardware key signs, too.
struct TouchRecord {
    flags: u8,
    counter: u32,
}

impl Lock {
    /// Verifies the signature of the text of a lock, and parses the lock.
    pub fn parse_signed(
        text: &[u8],
        signature: &[u8],
        signers: &AllowedSigners,
    ) -> Result<LockFile, ConfigError> {
        // The signature comes first: the parser reads only signed text.
        let signer = verify_text(text, signature, signers, SystemTime::now())
            .map_err(|error| format!("the signature {error}"))?;
        Ok(LockFile {
            lock: Self::parse(text)?,
            digest: ContentDigest::of(text),
            signer: Some(signer.into()),
        })
    }
}

/// Returns the path of the signature of a lock, which `ssh-keygen -Y sign` chooses.
#[must_use]
pub fn signature_path(lock: &Path) -> PathBuf {
    let mut path = lock.as_os_str().to_owned();
    path.push(".sig");
    path.into()
}

/// Verifies a signature. Returns the principals of the signer. The error is the predicate of a sentence,
/// after the name of the signature.
pub fn verify_text<'a>(
    text: &[u8],
    armored: &[u8],
    signers: &'a AllowedSigners,
    now: SystemTime,
) -> Result<&'a str, String> {
    let blob = decode_armor(armored)?;
    let parsed = ParsedSignature::parse(&blob)?;
    parsed.verify(text)?;
    signers.find_signer(&parsed.key, now)
}

fn decode_armor(armored: &[u8]) -> Result<Vec<u8>, String> {
    let text = std::str::from_utf8(armored).map_err(|_| "is not text")?;
    let body = text
        .trim()
        .strip_prefix(ARMOR_START)
        .and_then(|rest| rest.strip_suffix(ARMOR_END))
        .ok_or("does not begin or end as an SSH signature does")?;
    let compact: String = body.split_ascii_whitespace().collect();
    Ok(STANDARD.decode(compact).map_err(|_| "is not Base64")?)
}

impl<'a> ParsedSignature<'a> {
    fn parse(blob: &'a [u8]) -> Result<Self, String> {
        let mut fields = WireFields(blob);
        if fields.take(MAGIC.len())? != MAGIC || fields.number()? != FORMAT_VERSION {
            return Err("has an unknown version".into());
        }

        let key = SignerKey::parse(fields.string()?)?;
        let namespace = fields.text()?;
        // PROTOCOL.sshsig: a verifier ignores the value, which is signed.
        let reserved = fields.string()?;
        let hash_algorithm = fields.text()?;
        let mut inner = WireFields(fields.string()?);
        fields.end()?;
        if namespace != SIGNATURE_NAMESPACE {
            return Err(format!(
                "has the namespace {}; sign with ssh-keygen -Y sign -n {SIGNATURE_NAMESPACE}",
                quote_value(namespace)
            ));
        }
        if !reserved.is_empty() {
            return Err("has an unknown extension".into());
        }

        if inner.text()? != key.type_name() {
            return Err("has a key of another type".into());
        }
        let signature = inner.string()?;
        let mut touch = None;
        if key.application.is_some() {
            touch = Some(TouchRecord {
                flags: inner.take(1)?[0],
                counter: inner.number()?,
            });
        }
        inner.end()?;
        Ok(Self {
            key,
            hash_algorithm,
            signature,
            touch,
        })
    }

    /// Verifies that the key signed the text.
    fn verify(&self, text: &[u8]) -> Result<(), String> {
        let hash = match self.hash_algorithm {
            "sha256" => Sha256::digest(text).to_vec(),
            "sha512" => Sha512::digest(text).to_vec(),
            other => {
                return Err(format!(
                    "has the hash function {}; sign with sha256 or sha512",
                    quote_value(other)
                ));
            }
        };
        let mut signed = MAGIC.to_vec();
        for part in [
            SIGNATURE_NAMESPACE.as_bytes(),
            b"",
            self.hash_algorithm.as_bytes(),
            &hash[..],
        ] {
            let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
            signed.extend(length.to_be_bytes());
            signed.extend(part);
        }

        if let (Some(application), Some(touch)) = (&self.key.application, &self.touch) {
            if touch.flags & USER_PRESENCE == 0 {
                let reason = "was made without a touch of the hardware key; sign the lock again";
                return Err(reason.to_owned());
            }

            // PROTOCOL.u2f: a hardware key signs the hashes of its application and of the message.
            let mut outer = Sha256::digest(application).to_vec();
            outer.push(touch.flags);
            outer.extend(touch.counter.to_be_bytes());
            outer.extend(Sha256::digest(&signed));
            signed = outer;
        }
        UnparsedPublicKey::new(&ED25519, self.key.point)
            .verify(&signed, self.signature)
            .map_err(|_| "is not of this text; sign the lock again".to_owned())
    }
}

impl SignerKey {
    /// Parses an encoded key.
    pub fn parse(blob: &[u8]) -> Result<Self, String> {
        let mut fields = WireFields(blob);
        let key_type = fields.text()?;
        check_key_type(key_type)?;

        let point = fields.string()?.try_into();
        let point = point.map_err(|_| "has a key of another size")?;
        let mut application = None;
        if key_type == HARDWARE_KEY_TYPE {
            application = Some(fields.string()?.into());
        }
        fields.end()?;
        Ok(Self {
            blob: blob.into(),
            point,
            application,
        })
    }

    /// Parses a key as its type and Base64.
    pub fn parse_text(key_type: &str, base64: &str) -> Result<Self, String> {
        check_key_type(key_type)?;
        let blob = STANDARD
            .decode(base64)
            .map_err(|_| "has a key that is not Base64")?;
        let key = Self::parse(&blob)?;
        if key.type_name() != key_type {
            return Err("has a key of another type".into());
        }
        Ok(key)
    }

    fn type_name(&self) -> &'static str {
        match self.application {
            None => KEY_TYPE,
            Some(_) => HARDWARE_KEY_TYPE,
        }
    }

    /// Returns the fingerprint as `ssh-keygen -l` prints it.
    pub fn fingerprint(&self) -> String {
        let hash = Sha256::digest(&self.blob);
        format!("SHA256:{}", STANDARD_NO_PAD.encode(hash))
    }
}

fn check_key_type(key_type: &str) -> Result<(), String> {
    if matches!(key_type, KEY_TYPE | HARDWARE_KEY_TYPE) {
        return Ok(());
    }
    Err(format!(
        "has a key of the type {}; sign with a key of the type {KEY_TYPE} or {HARDWARE_KEY_TYPE}",
        quote_value(key_type)
    ))
}

/// Fields of the wire format of SSH: RFC 4251, section 5.
struct WireFields<'a>(&'a [u8]);

impl<'a> WireFields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let split = self.0.split_at_checked(count);
        let (field, rest) = split.ok_or("ends early")?;
        self.0 = rest;
        Ok(field)
    }

    fn number(&mut self) -> Result<u32, String> {
        let bytes = self.take(4)?.try_into().map_err(|_| "ends early")?;
        Ok(u32::from_be_bytes(bytes))
    }

    fn string(&mut self) -> Result<&'a [u8], String> {
        let length = self.number()?;
        self.take(usize::try_from(length).unwrap_or(usize::MAX))
    }

    fn text(&mut self) -> Result<&'a str, String> {
        Ok(std::str::from_utf8(self.string()?).map_err(|_| "is not UTF-8")?)
    }

    fn end(&self) -> Result<(), String> {
        if !self.0.is_empty() {
            return Err("has more text after its end".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
