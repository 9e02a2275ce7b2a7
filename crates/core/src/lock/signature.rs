//! SSH signature of a lock: the format that `ssh-keygen -Y sign` writes, with Ed25519 keys.
//! Source: PROTOCOL.sshsig and PROTOCOL.u2f of OpenSSH.

use super::allowed_signers::AllowedSigners;
use super::{Lock, LockError};
use crate::text::quote_value;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use ring::signature::{ED25519, UnparsedPublicKey};
use sha2::{Digest as _, Sha256, Sha512};
use std::fmt;
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

/// Lock with a good signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedLock {
    /// The lock.
    pub lock: Lock,
    /// Principals of the key that signed the lock, as the file of the allowed signers has them.
    pub signer: Box<str>,
}

/// Reason why a signature is not accepted. Displays as the predicate of a sentence, after the name of
/// the signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignatureError {
    /// The text is no SSH signature.
    Malformed(&'static str),
    /// The key has a type without support.
    KeyType(String),
    /// The signature is for another purpose.
    Namespace(String),
    /// The signature has a hash function without support.
    HashAlgorithm(String),
    /// The signature is not of the text.
    WrongText,
    /// Nobody touched the hardware key.
    NotTouched,
    /// No line of the allowed signers has the key in the namespace.
    UnknownKey {
        /// Fingerprint of the key, as `ssh-keygen -l` prints it.
        fingerprint: String,
    },
    /// The key is not valid at this time.
    NotValidNow {
        /// Line of the key in the file of the allowed signers.
        line: u32,
    },
}

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
    ) -> Result<SignedLock, LockError> {
        // The signature comes first: the parser reads only signed text.
        let signer = verify_text(text, signature, signers, SystemTime::now())
            .map_err(|error| LockError::whole(format!("the signature {error}")))?;
        Ok(SignedLock {
            lock: Self::parse(text)?,
            signer: signer.into(),
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

/// Verifies a signature. Returns the principals of the signer.
pub fn verify_text<'a>(
    text: &[u8],
    armored: &[u8],
    signers: &'a AllowedSigners,
    now: SystemTime,
) -> Result<&'a str, SignatureError> {
    let blob = decode_armor(armored)?;
    let parsed = ParsedSignature::parse(&blob)?;
    parsed.verify(text)?;
    signers.find_signer(&parsed.key, now)
}

fn decode_armor(armored: &[u8]) -> Result<Vec<u8>, SignatureError> {
    let text = std::str::from_utf8(armored).or_malformed("is not text")?;
    let body = text
        .trim()
        .strip_prefix(ARMOR_START)
        .and_then(|rest| rest.strip_suffix(ARMOR_END))
        .ok_or(SignatureError::Malformed(
            "does not begin or end as an SSH signature does",
        ))?;
    let compact: String = body.split_ascii_whitespace().collect();
    STANDARD.decode(compact).or_malformed("is not Base64")
}

/// Result of decoding a part of a signature.
trait DecodeResult<T> {
    /// Replaces the error by the problem of the signature.
    fn or_malformed(self, problem: &'static str) -> Result<T, SignatureError>;
}

impl<T, E> DecodeResult<T> for Result<T, E> {
    fn or_malformed(self, problem: &'static str) -> Result<T, SignatureError> {
        self.map_err(|_| SignatureError::Malformed(problem))
    }
}

impl<'a> ParsedSignature<'a> {
    fn parse(blob: &'a [u8]) -> Result<Self, SignatureError> {
        let mut fields = WireFields(blob);
        if fields.take(MAGIC.len())? != MAGIC || fields.number()? != FORMAT_VERSION {
            return Err(SignatureError::Malformed("has an unknown version"));
        }

        let key = SignerKey::parse(fields.string()?)?;
        let namespace = fields.text()?;
        // PROTOCOL.sshsig: a verifier ignores the value, which is signed.
        let reserved = fields.string()?;
        let hash_algorithm = fields.text()?;
        let mut inner = WireFields(fields.string()?);
        fields.end()?;
        if namespace != SIGNATURE_NAMESPACE {
            return Err(SignatureError::Namespace(namespace.to_owned()));
        }
        if !reserved.is_empty() {
            return Err(SignatureError::Malformed("has an unknown extension"));
        }

        if inner.text()? != key.type_name() {
            return Err(SignatureError::Malformed("has a key of another type"));
        }
        let signature = inner.string()?;
        let touch = match key.application {
            None => None,
            Some(_) => Some(TouchRecord {
                flags: inner.take(1)?[0],
                counter: inner.number()?,
            }),
        };
        inner.end()?;
        Ok(Self {
            key,
            hash_algorithm,
            signature,
            touch,
        })
    }

    /// Verifies that the key signed the text.
    fn verify(&self, text: &[u8]) -> Result<(), SignatureError> {
        let hash = match self.hash_algorithm {
            "sha256" => Sha256::digest(text).to_vec(),
            "sha512" => Sha512::digest(text).to_vec(),
            other => return Err(SignatureError::HashAlgorithm(other.to_owned())),
        };
        let mut signed = MAGIC.to_vec();
        let parts: [&[u8]; 4] = [
            SIGNATURE_NAMESPACE.as_bytes(),
            b"",
            self.hash_algorithm.as_bytes(),
            &hash,
        ];
        for part in parts {
            push_string(&mut signed, part);
        }

        if let (Some(application), Some(touch)) = (&self.key.application, &self.touch) {
            if touch.flags & USER_PRESENCE == 0 {
                return Err(SignatureError::NotTouched);
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
            .map_err(|_| SignatureError::WrongText)
    }
}

impl SignerKey {
    /// Parses an encoded key.
    pub fn parse(blob: &[u8]) -> Result<Self, SignatureError> {
        let mut fields = WireFields(blob);
        let key_type = fields.text()?;
        if !matches!(key_type, KEY_TYPE | HARDWARE_KEY_TYPE) {
            return Err(SignatureError::KeyType(key_type.to_owned()));
        }

        let point = fields.string()?.try_into();
        let point = point.or_malformed("has a key of another size")?;
        let application = match key_type {
            HARDWARE_KEY_TYPE => Some(fields.string()?.into()),
            _ => None,
        };
        fields.end()?;
        Ok(Self {
            blob: blob.into(),
            point,
            application,
        })
    }

    /// Parses a key as its type and Base64.
    pub fn parse_text(key_type: &str, base64: &str) -> Result<Self, SignatureError> {
        if !matches!(key_type, KEY_TYPE | HARDWARE_KEY_TYPE) {
            return Err(SignatureError::KeyType(key_type.to_owned()));
        }
        let blob = STANDARD
            .decode(base64)
            .or_malformed("has a key that is not Base64")?;
        let key = Self::parse(&blob)?;
        if key.type_name() == key_type {
            Ok(key)
        } else {
            Err(SignatureError::Malformed("has a key of another type"))
        }
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

/// Fields of the wire format of SSH: RFC 4251, section 5.
struct WireFields<'a>(&'a [u8]);

impl<'a> WireFields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], SignatureError> {
        let split = self.0.split_at_checked(count);
        let (field, rest) = split.ok_or(SignatureError::Malformed("ends early"))?;
        self.0 = rest;
        Ok(field)
    }

    fn number(&mut self) -> Result<u32, SignatureError> {
        let bytes = self.take(4)?.try_into().or_malformed("ends early")?;
        Ok(u32::from_be_bytes(bytes))
    }

    fn string(&mut self) -> Result<&'a [u8], SignatureError> {
        let length = self.number()?;
        self.take(usize::try_from(length).unwrap_or(usize::MAX))
    }

    fn text(&mut self) -> Result<&'a str, SignatureError> {
        std::str::from_utf8(self.string()?).or_malformed("is not UTF-8")
    }

    fn end(&self) -> Result<(), SignatureError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(SignatureError::Malformed("has more text after its end"))
        }
    }
}

fn push_string(out: &mut Vec<u8>, part: &[u8]) {
    let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
    out.extend(length.to_be_bytes());
    out.extend(part);
}

impl fmt::Display for SignatureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(reason) => write!(f, "{reason}"),
            Self::KeyType(found) => write!(
                f,
                "has a key of the type {}; sign with a key of the type {KEY_TYPE} or \
                 {HARDWARE_KEY_TYPE}",
                quote_value(found)
            ),
            Self::Namespace(found) => write!(
                f,
                "has the namespace {}; sign with ssh-keygen -Y sign -n {SIGNATURE_NAMESPACE}",
                quote_value(found)
            ),
            Self::HashAlgorithm(found) => write!(
                f,
                "has the hash function {}; sign with sha256 or sha512",
                quote_value(found)
            ),
            Self::WrongText => f.write_str("is not of this text; sign the lock again"),
            Self::NotTouched => {
                f.write_str("was made without a touch of the hardware key; sign the lock again")
            }
            Self::UnknownKey { fingerprint } => write!(
                f,
                "is of the key {fingerprint}, which the allowed signers do not have in the namespace \
                 {SIGNATURE_NAMESPACE}"
            ),
            Self::NotValidNow { line } => write!(
                f,
                "is of a key that is not valid now; see valid-after and valid-before in line {line} of \
                 the allowed signers"
            ),
        }
    }
}

impl std::error::Error for SignatureError {}

#[cfg(test)]
mod tests;
