//! The cursor of `skills.list`: which view, and how far in it. Opaque to whoever gets it, and checked.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Where a page begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SkillListCursor {
    pub(super) view_id: u64,
    pub(super) index: u32,
}

impl SkillListCursor {
    /// How many characters any of them prints as.
    pub(super) const ENCODED_LEN: usize = 16;

    pub(super) fn encode(self) -> String {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.view_id.to_be_bytes());
        bytes[8..].copy_from_slice(&self.index.to_be_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.len() != Self::ENCODED_LEN {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (view, at) = bytes.split_first_chunk::<8>()?;
        let at = u32::from_be_bytes(at.try_into().ok()?);
        Some(Self { view_id: u64::from_be_bytes(*view), index: at })
    }
}

#[cfg(test)]
mod tests {
    use super::SkillListCursor;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn printed_and_parsed(view: u64, at: u32, garbage: String) {
            let cursor = SkillListCursor { view_id: view, index: at };
            prop_assert_eq!(cursor.encode().len(), SkillListCursor::ENCODED_LEN);
            prop_assert_eq!(SkillListCursor::parse(&cursor.encode()), Some(cursor));
            prop_assert_eq!(SkillListCursor::parse(&garbage), None);
        }
    }
}
