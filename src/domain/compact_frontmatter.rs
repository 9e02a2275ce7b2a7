//! What an author says of a skill, in one piece of memory that all who hold it share. Most of its
//! texts are there twice, alone and among all fields: they are held once.

use super::frontmatter::SkillMdFrontmatter;
use super::value::compact::{self, CompactEntries, CompactItems, ValueRef};
use std::fmt;
use std::sync::Arc;

/// A skill as its author describes it, packed: see [`Authored`]. Untrusted. Cheap to clone; all clones
/// are one.
///
/// Two bytes say what there is, a bit each; then comes where that is, from and to, as numbers of two
/// bytes, or of four where there is much; then all of it.
#[derive(Clone, PartialEq, Eq)]
pub struct CompactFrontmatter(Arc<[u8]>);

/// What there may be.
#[derive(Clone, Copy)]
enum FrontmatterField {
    Name,
    Description,
    ShortDescription,
    License,
    Compatibility,
    Metadata,
    AllowedTools,
    AllFields,
}

const FIELD_COUNT: usize = FrontmatterField::AllFields as usize + 1;
/// The bit for numbers of four bytes.
const WIDE_OFFSETS_BIT: u16 = 1 << 15;
const _: () = assert!(FIELD_COUNT < 15);

impl CompactFrontmatter {
    /// 1 to 64 characters, white space collapsed, no control characters; not yet qualified.
    #[must_use]
    pub fn name(&self) -> &str {
        self.field_text(FrontmatterField::Name).unwrap_or_default()
    }

    /// 1 to 1,024 characters, white space collapsed.
    #[must_use]
    pub fn description(&self) -> &str {
        self.field_text(FrontmatterField::Description).unwrap_or_default()
    }

    /// `metadata.short-description`, 1 to 1,024 characters, white space collapsed.
    #[must_use]
    pub fn short_description(&self) -> Option<&str> {
        self.field_text(FrontmatterField::ShortDescription)
    }

    /// Never empty.
    #[must_use]
    pub fn license(&self) -> Option<&str> {
        self.field_text(FrontmatterField::License)
    }

    /// Never empty.
    #[must_use]
    pub fn compatibility(&self) -> Option<&str> {
        self.field_text(FrontmatterField::Compatibility)
    }

    /// In the author's order, values printed.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &str)> {
        let entries = CompactEntries::from_encoded(
            self.field_bytes(FrontmatterField::Metadata).unwrap_or_default(),
        );
        entries.filter_map(|(key, value)| match value {
            ValueRef::Text(text) => Some((key, text)),
            _ => None,
        })
    }

    /// One tool each.
    pub fn allowed_tools(&self) -> impl Iterator<Item = &str> {
        let items = CompactItems::from_encoded(
            self.field_bytes(FrontmatterField::AllowedTools).unwrap_or_default(),
        );
        items.filter_map(|item| if let ValueRef::Text(text) = item { Some(text) } else { None })
    }

    /// Every field, a mapping; `None` where it would be too large or too deep on the wire.
    #[must_use]
    pub fn all_fields(&self) -> Option<ValueRef<'_>> {
        self.field_bytes(FrontmatterField::AllFields).map(ValueRef::decode)
    }

    fn field_text(&self, at: FrontmatterField) -> Option<&str> {
        std::str::from_utf8(self.field_bytes(at)?).ok()
    }

    fn field_bytes(&self, at: FrontmatterField) -> Option<&[u8]> {
        let (there, rest) = self.0.split_first_chunk()?;
        let there = u16::from_le_bytes(*there);
        let bit = 1 << at as u16;
        if there & bit == 0 {
            return None;
        }
        let width = if there & WIDE_OFFSETS_BIT == 0 { 2 } else { 4 };
        let ones = |bits: u16| bits.count_ones() as usize;
        let (places, all) = rest.split_at_checked(ones(there & !WIDE_OFFSETS_BIT) * 2 * width)?;
        let mut numbers = places.chunks(width).skip(ones(there & (bit - 1)) * 2);
        let mut next = || {
            let bytes = numbers.next()?.iter().rev();
            Some(bytes.fold(0, |number, byte| number << 8 | usize::from(*byte)))
        };
        let (from, to) = (next()?, next()?);
        all.get(from..to)
    }
}

impl From<SkillMdFrontmatter> for CompactFrontmatter {
    fn from(authored: SkillMdFrontmatter) -> Self {
        let SkillMdFrontmatter { metadata, allowed_tools, all_fields: frontmatter, .. } = &authored;
        let mut pack = CompactFrontmatterBuilder {
            field_ranges: [None; FIELD_COUNT],
            all: Vec::with_capacity(1 << 10),
        };
        if let Some(value) = frontmatter {
            pack.append_field(FrontmatterField::AllFields, |out| compact::encode_into(value, out));
        }
        let texts = [
            (FrontmatterField::Name, Some(&authored.name), "name"),
            (FrontmatterField::Description, Some(&authored.description), "description"),
            (FrontmatterField::License, authored.license.as_ref(), "license"),
            (FrontmatterField::Compatibility, authored.compatibility.as_ref(), "compatibility"),
        ];
        for (at, text, key) in texts {
            if let Some(text) = text {
                pack.add_text(at, text, |all| all.find(key));
            }
        }
        if let Some(text) = &authored.short_description {
            pack.add_text(FrontmatterField::ShortDescription, text, |all| {
                all.find_in_metadata("short-description")
            });
        }
        if !metadata.is_empty() {
            pack.add_metadata(metadata);
        }
        if !allowed_tools.is_empty() {
            pack.append_field(FrontmatterField::AllowedTools, |out| {
                for tool in allowed_tools {
                    compact::encode_item(tool, out);
                }
            });
        }
        pack.finish()
    }
}

/// One that is being made.
struct CompactFrontmatterBuilder {
    /// Where each is in all of it.
    field_ranges: [Option<(usize, usize)>; FIELD_COUNT],
    all: Vec<u8>,
}

/// The fields as the author wrote them, where they are packed already.
struct FieldEntries<'a>(CompactEntries<'a>);

impl<'a> FieldEntries<'a> {
    fn find(mut self, key: &str) -> Option<ValueRef<'a>> {
        self.0.find(|(k, _)| *k == key).map(|(_, value)| value)
    }

    fn metadata(self) -> Option<CompactEntries<'a>> {
        match self.find("metadata")? {
            ValueRef::Map(entries) => Some(entries),
            _ => None,
        }
    }

    fn find_in_metadata(self, key: &str) -> Option<ValueRef<'a>> {
        FieldEntries(self.metadata()?).find(key)
    }
}

impl CompactFrontmatterBuilder {
    /// All fields, where they were put.
    fn all(&self) -> Option<FieldEntries<'_>> {
        let (from, to) = self.field_ranges[FrontmatterField::AllFields as usize]?;
        match ValueRef::decode(&self.all[from..to]) {
            ValueRef::Map(entries) => Some(FieldEntries(entries)),
            _ => None,
        }
    }

    /// Puts something behind all that is there.
    fn append_field(&mut self, at: FrontmatterField, fill: impl FnOnce(&mut Vec<u8>)) {
        let from = self.all.len();
        fill(&mut self.all);
        self.record_range(at, from, self.all.len());
    }

    /// Puts a text, unless it is there, as it is, where `find` finds it.
    fn add_text(
        &mut self,
        at: FrontmatterField,
        text: &str,
        find: impl for<'a> FnOnce(FieldEntries<'a>) -> Option<ValueRef<'a>>,
    ) {
        let found = self.all().and_then(|all| match find(all)? {
            ValueRef::Text(found) if found == text => Some(self.range_of(found.as_bytes())),
            _ => None,
        });
        match found {
            Some((from, to)) => self.record_range(at, from, to),
            None => self.append_field(at, |out| out.extend_from_slice(text.as_bytes())),
        }
    }

    /// Puts the metadata, unless all of it is text, and so is there as it is.
    fn add_metadata(&mut self, metadata: &[(Box<str>, Box<str>)]) {
        let found = self.all().and_then(|all| {
            let entries = all.metadata()?;
            let mut left = metadata.iter();
            let is_there = entries.clone().all(|(key, value)| {
                let next = left.next().filter(|(k, _)| **k == *key);
                next.is_some_and(|(_, v)| matches!(value, ValueRef::Text(text) if *text == **v))
            });
            (is_there && left.next().is_none()).then(|| self.range_of(entries.bytes()))
        });
        match found {
            Some((from, to)) => self.record_range(FrontmatterField::Metadata, from, to),
            None => self.append_field(FrontmatterField::Metadata, |out| {
                for (key, value) in metadata {
                    compact::encode_entry(key, value, out);
                }
            }),
        }
    }

    /// Where a part of what was put is.
    fn range_of(&self, part: &[u8]) -> (usize, usize) {
        let from = part.as_ptr().addr() - self.all.as_ptr().addr();
        (from, from + part.len())
    }

    fn record_range(&mut self, at: FrontmatterField, from: usize, to: usize) {
        self.field_ranges[at as usize] = Some((from, to));
    }

    fn finish(self) -> CompactFrontmatter {
        let is_large = u16::try_from(self.all.len()).is_err();
        let (width, large) = if is_large { (4, WIDE_OFFSETS_BIT) } else { (2, 0) };
        let there = (0..FIELD_COUNT).filter(|at| self.field_ranges[*at].is_some());
        let there = there.fold(large, |there, at| there | 1 << at);
        let mut bytes = Vec::with_capacity(2 + FIELD_COUNT * 2 * width + self.all.len());
        bytes.extend(there.to_le_bytes());
        for number in self.field_ranges.iter().flatten().flat_map(|(from, to)| [from, to]) {
            bytes.extend(&number.to_le_bytes()[..width]);
        }
        bytes.extend(self.all);
        CompactFrontmatter(bytes.into())
    }
}

impl fmt::Debug for CompactFrontmatter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packed")
            .field("name", &self.name())
            .field("description", &self.description())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::CompactFrontmatter;
    use crate::domain::{SkillMdFrontmatter, frontmatter};
    use proptest::prelude::*;

    fn unpacked(packed: &CompactFrontmatter) -> SkillMdFrontmatter {
        let text = |text: Option<&str>| text.map(Into::into);
        SkillMdFrontmatter {
            name: packed.name().into(),
            description: packed.description().into(),
            short_description: text(packed.short_description()),
            license: text(packed.license()),
            compatibility: text(packed.compatibility()),
            metadata: packed.metadata().map(|(k, v)| (k.into(), v.into())).collect(),
            allowed_tools: packed.allowed_tools().map(Into::into).collect(),
            all_fields: packed.all_fields().map(super::ValueRef::to_value),
        }
    }

    proptest! {
        #[test]
        fn what_is_unpacked_is_what_was_packed(
            name in "[a-z]{1,8}", description in "[a-z ]{1,20}[a-z]", key in "[a-z-]{1,20}",
            value in prop_oneof!["[a-z ]{1,9}", "[0-9]{1,3}", Just("~".to_owned())],
            more in prop_oneof![
                Just(""), Just("license: MIT\n"), Just("license: ' MIT'\n"), Just("compatibility: 1\n"),
                Just("allowed-tools: [a, b]\n"), Just("other: [1, {a: b}]\n"),
            ],
        ) {
            let text = format!(
                "---\nname: {name}\ndescription: {description}\n{more}metadata:\n  \
                 short-description: Brief\n  \"{key}\": {value}\n---\n"
            );
            if let Some(skill) = frontmatter::read(text.as_bytes(), true, Some(b"x")).frontmatter {
                prop_assert_eq!(unpacked(&skill.clone().into()), skill);
            }
        }

        #[test]
        fn nothing_need_be_there_and_much_may(
            text: Option<String>, list: Vec<String>, pairs: Vec<(String, String)>,
            much in prop_oneof![Just(1_usize), 65_400..65_600_usize],
        ) {
            let text = text.filter(|text| !text.is_empty()).map(String::into_boxed_str);
            let skill = SkillMdFrontmatter {
                name: "n".into(),
                description: "d".repeat(much).into(),
                short_description: text.clone(),
                license: None,
                compatibility: text,
                metadata: pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
                allowed_tools: list.into_iter().map(Into::into).collect(),
                all_fields: None,
            };
            prop_assert_eq!(unpacked(&skill.clone().into()), skill);
        }
    }
}
