//! Compact, shared frontmatter of a skill. Texts that also occur in the mapping of all fields are
//! stored once.

use super::DynamicValue;
use super::value::compact::{self, CompactEntries, CompactItems, ValueRef};
use std::fmt;
use std::sync::Arc;

/// Frontmatter of a SKILL.md. Untrusted.
#[derive(Debug, Clone, PartialEq)]
pub struct SkillMdFrontmatter {
    /// Name without the plugin's name: 1 to 64 characters, white space collapsed, no control
    /// characters.
    pub name: Box<str>,
    /// Description of 1 to 1,024 characters, white space collapsed.
    pub description: Box<str>,
    /// `metadata.short-description`, 1 to 1,024 characters, white space collapsed.
    pub short_description: Option<Box<str>>,
    /// License. Not empty.
    pub license: Option<Box<str>>,
    /// Compatibility. Not empty.
    pub compatibility: Option<Box<str>>,
    /// Entries of `metadata` in the author's order, with values as text. At most 64 KiB.
    pub metadata: Box<[(Box<str>, Box<str>)]>,
    /// Tools of `allowed-tools`. At most 64 KiB.
    pub allowed_tools: Box<[Box<str>]>,
    /// `disable-model-invocation`, or true for a value that cannot be read.
    pub forbids_model: bool,
    /// Whether `user-invocable` is false or cannot be read.
    pub forbids_user: bool,
    /// Whether `default-enabled` is false or cannot be read.
    pub is_switched_off: bool,
    /// Mapping of all fields; `None` if over 256 KiB or more than 30 levels deep on the wire.
    pub all_fields: Option<DynamicValue>,
}

/// Compact form of a [`SkillMdFrontmatter`]. Untrusted. Clones share one allocation. The keys of
/// mappings are in byte order, as in the messages of a catalog digest.
///
/// Layout: a `u16` with one bit per present field and `WIDE_OFFSETS_BIT`; start and end offsets of the
/// present fields, two bytes each, or four if the data is over 64 KiB; then the data. All numbers are
/// little-endian.
#[derive(Clone, PartialEq, Eq)]
pub struct CompactFrontmatter(Arc<[u8]>);

/// Optional fields in the order of their bits. A flag is an empty field.
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
    ForbidsModel,
    ForbidsUser,
    SwitchedOff,
}

const FIELD_COUNT: usize = FrontmatterField::SwitchedOff as usize + 1;
/// Bit for offsets of four bytes.
const WIDE_OFFSETS_BIT: u16 = 1 << 15;
const _: () = assert!(WIDE_OFFSETS_BIT.trailing_zeros() as usize >= FIELD_COUNT);

impl CompactFrontmatter {
    /// Returns the name without the plugin's name: 1 to 64 characters, white space collapsed, no
    /// control characters.
    #[must_use]
    pub fn name(&self) -> &str {
        self.field_text(FrontmatterField::Name).unwrap_or_default()
    }

    /// Returns the description: 1 to 1,024 characters, white space collapsed.
    #[must_use]
    pub fn description(&self) -> &str {
        self.field_text(FrontmatterField::Description)
            .unwrap_or_default()
    }

    /// Returns `metadata.short-description`: 1 to 1,024 characters, white space collapsed.
    #[must_use]
    pub fn short_description(&self) -> Option<&str> {
        self.field_text(FrontmatterField::ShortDescription)
    }

    /// Returns the license, which is not empty.
    #[must_use]
    pub fn license(&self) -> Option<&str> {
        self.field_text(FrontmatterField::License)
    }

    /// Returns the compatibility, which is not empty.
    #[must_use]
    pub fn compatibility(&self) -> Option<&str> {
        self.field_text(FrontmatterField::Compatibility)
    }

    /// Returns the entries of `metadata` by key, with values as text.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &str)> {
        let bytes = self.field_bytes(FrontmatterField::Metadata);
        let entries = CompactEntries(bytes.unwrap_or_default());
        entries.filter_map(|(key, value)| Some((key, value.into_text()?)))
    }

    /// Returns the tools of `allowed-tools`.
    pub fn allowed_tools(&self) -> impl Iterator<Item = &str> {
        let bytes = self.field_bytes(FrontmatterField::AllowedTools);
        CompactItems(bytes.unwrap_or_default()).filter_map(ValueRef::into_text)
    }

    /// Returns the mapping of all fields, or `None` if it is too large or too deep for the wire.
    #[must_use]
    pub fn all_fields(&self) -> Option<ValueRef<'_>> {
        self.field_bytes(FrontmatterField::AllFields)
            .map(ValueRef::decode)
    }

    /// Whether the frontmatter forbids models to choose the skill by themselves.
    #[must_use]
    pub fn forbids_model(&self) -> bool {
        self.field_bytes(FrontmatterField::ForbidsModel).is_some()
    }

    /// Whether the frontmatter forbids persons to choose the skill.
    #[must_use]
    pub fn forbids_user(&self) -> bool {
        self.field_bytes(FrontmatterField::ForbidsUser).is_some()
    }

    /// Whether the skill is switched off by default.
    #[must_use]
    pub fn is_switched_off(&self) -> bool {
        self.field_bytes(FrontmatterField::SwitchedOff).is_some()
    }

    fn field_text(&self, field: FrontmatterField) -> Option<&str> {
        std::str::from_utf8(self.field_bytes(field)?).ok()
    }

    fn field_bytes(&self, field: FrontmatterField) -> Option<&[u8]> {
        let (present, rest) = self.0.split_first_chunk()?;
        let present = u16::from_le_bytes(*present);
        let bit = 1 << field as u16;
        if present & bit == 0 {
            return None;
        }

        let width = if present & WIDE_OFFSETS_BIT == 0 {
            2
        } else {
            4
        };

        let field_count = (present & !WIDE_OFFSETS_BIT).count_ones() as usize;
        let fields_before = (present & (bit - 1)).count_ones() as usize;
        let (offsets, data) = rest.split_at_checked(field_count * 2 * width)?;
        let mut numbers = offsets.chunks(width).skip(fields_before * 2);

        let mut next = || {
            let bytes = numbers.next()?.iter().rev();
            Some(bytes.fold(0, |number, byte| number << 8 | usize::from(*byte)))
        };
        let from = next()?;
        let to = next()?;
        data.get(from..to)
    }
}

impl From<SkillMdFrontmatter> for CompactFrontmatter {
    fn from(mut frontmatter: SkillMdFrontmatter) -> Self {
        // Catalog digests need the keys in order, and `add_metadata` compares entry by entry.
        if let Some(fields) = &mut frontmatter.all_fields {
            fields.sort_keys();
        }
        frontmatter.metadata.sort_by(|(a, _), (b, _)| a.cmp(b));

        let mut builder = CompactFrontmatterBuilder {
            field_ranges: [None; FIELD_COUNT],
            data: Vec::with_capacity(1 << 10),
        };
        let flags = [
            (FrontmatterField::ForbidsModel, frontmatter.forbids_model),
            (FrontmatterField::ForbidsUser, frontmatter.forbids_user),
            (FrontmatterField::SwitchedOff, frontmatter.is_switched_off),
        ];
        for (flag, is_set) in flags {
            if is_set {
                builder.append_field(flag, |_| {});
            }
        }

        // All fields come first, because the other fields refer to the texts in them.
        if let Some(value) = &frontmatter.all_fields {
            builder.append_field(FrontmatterField::AllFields, |out| {
                compact::encode_into(value, out);
            });
        }

        let texts: [(_, _, &[&str]); 5] = [
            (FrontmatterField::Name, Some(frontmatter.name), &["name"]),
            (
                FrontmatterField::Description,
                Some(frontmatter.description),
                &["description"],
            ),
            (
                FrontmatterField::ShortDescription,
                frontmatter.short_description,
                &["metadata", "short-description"],
            ),
            (FrontmatterField::License, frontmatter.license, &["license"]),
            (
                FrontmatterField::Compatibility,
                frontmatter.compatibility,
                &["compatibility"],
            ),
        ];
        for (field, text, path) in texts {
            if let Some(text) = text {
                builder.add_text(field, &text, path);
            }
        }

        if !frontmatter.metadata.is_empty() {
            builder.add_metadata(&frontmatter.metadata);
        }
        if !frontmatter.allowed_tools.is_empty() {
            builder.append_field(FrontmatterField::AllowedTools, |out| {
                for tool in &frontmatter.allowed_tools {
                    compact::encode_text_value(tool, out);
                }
            });
        }

        builder.finish()
    }
}

/// Builder for a [`CompactFrontmatter`].
struct CompactFrontmatterBuilder {
    /// Ranges of the fields in `data`.
    field_ranges: [Option<(usize, usize)>; FIELD_COUNT],
    data: Vec<u8>,
}

impl CompactFrontmatterBuilder {
    /// Returns the value at a path of keys in the mapping of all fields, if the mapping was appended.
    fn find_value(&self, path: &[&str]) -> Option<ValueRef<'_>> {
        let (from, to) = self.field_ranges[FrontmatterField::AllFields as usize]?;
        let all_fields = ValueRef::decode(&self.data[from..to]);
        path.iter().try_fold(all_fields, |value, key| {
            let mut entries = value.entries();
            entries.find(|(k, _)| k == key).map(|(_, value)| value)
        })
    }

    /// Appends the data of a field.
    fn append_field(&mut self, field: FrontmatterField, fill: impl FnOnce(&mut Vec<u8>)) {
        let from = self.data.len();
        fill(&mut self.data);
        self.field_ranges[field as usize] = Some((from, self.data.len()));
    }

    /// Adds a text field. Reuses the text at this path of all fields if it is equal.
    fn add_text(&mut self, field: FrontmatterField, text: &str, path: &[&str]) {
        let found = self.find_value(path).and_then(ValueRef::into_text);
        let equal = found.filter(|found| *found == text);
        match equal.map(|found| self.range_of(found.as_bytes())) {
            None => self.append_field(field, |out| out.extend_from_slice(text.as_bytes())),
            range => self.field_ranges[field as usize] = range,
        }
    }

    /// Adds the metadata. Reuses the encoded metadata if all of its values are text.
    fn add_metadata(&mut self, metadata: &[(Box<str>, Box<str>)]) {
        let found = self.find_value(&["metadata"]).and_then(|found| {
            let entries = found.entries();
            let texts = entries.clone().map(|(key, value)| (key, value.into_text()));
            let is_equal = texts.eq(metadata.iter().map(|(key, value)| (&**key, Some(&**value))));
            is_equal.then(|| self.range_of(entries.0))
        });
        match found {
            None => self.append_field(FrontmatterField::Metadata, |out| {
                for (key, value) in metadata {
                    compact::encode_text(key, out);
                    compact::encode_text_value(value, out);
                }
            }),
            range => self.field_ranges[FrontmatterField::Metadata as usize] = range,
        }
    }

    /// Returns the range of `part`, which is a slice of `data`.
    fn range_of(&self, part: &[u8]) -> (usize, usize) {
        let from = part.as_ptr().addr() - self.data.as_ptr().addr();
        (from, from + part.len())
    }

    fn finish(self) -> CompactFrontmatter {
        let is_large = u16::try_from(self.data.len()).is_err();
        let (width, width_bit) = if is_large {
            (4, WIDE_OFFSETS_BIT)
        } else {
            (2, 0)
        };

        let present = (0..FIELD_COUNT).filter(|field| self.field_ranges[*field].is_some());
        let present = present.fold(width_bit, |present, field| present | 1 << field);
        let mut bytes = Vec::with_capacity(2 + FIELD_COUNT * 2 * width + self.data.len());

        bytes.extend(present.to_le_bytes());
        for (from, to) in self.field_ranges.into_iter().flatten() {
            bytes.extend(&from.to_le_bytes()[..width]);
            bytes.extend(&to.to_le_bytes()[..width]);
        }
        bytes.extend(self.data);

        CompactFrontmatter(bytes.into())
    }
}

impl fmt::Debug for CompactFrontmatter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompactFrontmatter")
            .field("name", &self.name())
            .field("description", &self.description())
            .finish_non_exhaustive()
    }
}
