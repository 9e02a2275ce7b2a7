//! What an author says of a skill, in one piece of memory that all who hold it share. Most of its
//! texts are there twice, alone and among all fields: they are held once.

use super::frontmatter::Authored;
use super::value::packed::{self, Entries, Items, Part};
use std::fmt;
use std::sync::Arc;

/// A skill as its author describes it, packed: see [`Authored`]. Untrusted. Cheap to clone; all clones
/// are one.
///
/// Two bytes say what there is, a bit each; then comes where that is, from and to, as numbers of two
/// bytes, or of four where there is much; then all of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Packed(Arc<[u8]>);

/// What there may be.
#[derive(Clone, Copy)]
enum At {
    Name,
    Description,
    ShortDescription,
    License,
    Compatibility,
    Metadata,
    AllowedTools,
    Frontmatter,
}

const PLACES: usize = At::Frontmatter as usize + 1;
/// The bit for numbers of four bytes.
const IS_LARGE: u16 = 1 << 15;
const _: () = assert!(PLACES < 15);

impl Packed {
    /// 1 to 64 characters, white space collapsed, no control characters; not yet qualified.
    #[must_use]
    pub fn name(&self) -> &str {
        self.text(At::Name).unwrap_or_default()
    }

    /// 1 to 1,024 characters, white space collapsed.
    #[must_use]
    pub fn description(&self) -> &str {
        self.text(At::Description).unwrap_or_default()
    }

    /// `metadata.short-description`, 1 to 1,024 characters, white space collapsed.
    #[must_use]
    pub fn short_description(&self) -> Option<&str> {
        self.text(At::ShortDescription)
    }

    /// Never empty.
    #[must_use]
    pub fn license(&self) -> Option<&str> {
        self.text(At::License)
    }

    /// Never empty.
    #[must_use]
    pub fn compatibility(&self) -> Option<&str> {
        self.text(At::Compatibility)
    }

    /// In the author's order, values printed.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &str)> {
        let entries = Entries::of(self.bytes(At::Metadata).unwrap_or_default());
        entries.filter_map(|(key, value)| match value {
            Part::Text(text) => Some((key, text)),
            _ => None,
        })
    }

    /// One tool each.
    pub fn allowed_tools(&self) -> impl Iterator<Item = &str> {
        let items = Items::of(self.bytes(At::AllowedTools).unwrap_or_default());
        items.filter_map(|item| if let Part::Text(text) = item { Some(text) } else { None })
    }

    /// Every field, a mapping; `None` where it would be too large or too deep on the wire.
    #[must_use]
    pub fn frontmatter(&self) -> Option<Part<'_>> {
        self.bytes(At::Frontmatter).map(Part::of)
    }

    fn text(&self, at: At) -> Option<&str> {
        std::str::from_utf8(self.bytes(at)?).ok()
    }

    fn bytes(&self, at: At) -> Option<&[u8]> {
        let (there, rest) = self.0.split_first_chunk()?;
        let there = u16::from_le_bytes(*there);
        let bit = 1 << at as u16;
        if there & bit == 0 {
            return None;
        }
        let width = if there & IS_LARGE == 0 { 2 } else { 4 };
        let ones = |bits: u16| bits.count_ones() as usize;
        let (places, all) = rest.split_at_checked(ones(there & !IS_LARGE) * 2 * width)?;
        let mut numbers = places.chunks(width).skip(ones(there & (bit - 1)) * 2);
        let mut next = || {
            let bytes = numbers.next()?.iter().rev();
            Some(bytes.fold(0, |number, byte| number << 8 | usize::from(*byte)))
        };
        let (from, to) = (next()?, next()?);
        all.get(from..to)
    }
}

impl From<Authored> for Packed {
    fn from(authored: Authored) -> Self {
        let Authored { metadata, allowed_tools, frontmatter, .. } = &authored;
        let mut pack = Pack { places: [None; PLACES], all: Vec::with_capacity(1 << 10) };
        if let Some(value) = frontmatter {
            pack.put(At::Frontmatter, |out| packed::append(value, out));
        }
        let texts = [
            (At::Name, Some(&authored.name), "name"),
            (At::Description, Some(&authored.description), "description"),
            (At::License, authored.license.as_ref(), "license"),
            (At::Compatibility, authored.compatibility.as_ref(), "compatibility"),
        ];
        for (at, text, key) in texts {
            if let Some(text) = text {
                pack.put_text(at, text, |all| all.find(key));
            }
        }
        if let Some(text) = &authored.short_description {
            pack.put_text(At::ShortDescription, text, |all| all.in_metadata("short-description"));
        }
        if !metadata.is_empty() {
            pack.put_metadata(metadata);
        }
        if !allowed_tools.is_empty() {
            pack.put(At::AllowedTools, |out| {
                for tool in allowed_tools {
                    packed::append_item(tool, out);
                }
            });
        }
        pack.finish()
    }
}

/// One that is being made.
struct Pack {
    /// Where each is in all of it.
    places: [Option<(usize, usize)>; PLACES],
    all: Vec<u8>,
}

/// The fields as the author wrote them, where they are packed already.
struct All<'a>(Entries<'a>);

impl<'a> All<'a> {
    fn find(mut self, key: &str) -> Option<Part<'a>> {
        self.0.find(|(k, _)| *k == key).map(|(_, value)| value)
    }

    fn metadata(self) -> Option<Entries<'a>> {
        match self.find("metadata")? {
            Part::Map(entries) => Some(entries),
            _ => None,
        }
    }

    fn in_metadata(self, key: &str) -> Option<Part<'a>> {
        All(self.metadata()?).find(key)
    }
}

impl Pack {
    /// All fields, where they were put.
    fn all(&self) -> Option<All<'_>> {
        let (from, to) = self.places[At::Frontmatter as usize]?;
        match Part::of(&self.all[from..to]) {
            Part::Map(entries) => Some(All(entries)),
            _ => None,
        }
    }

    /// Puts something behind all that is there.
    fn put(&mut self, at: At, fill: impl FnOnce(&mut Vec<u8>)) {
        let from = self.all.len();
        fill(&mut self.all);
        self.note(at, from, self.all.len());
    }

    /// Puts a text, unless it is there, as it is, where `find` finds it.
    fn put_text(
        &mut self,
        at: At,
        text: &str,
        find: impl for<'a> FnOnce(All<'a>) -> Option<Part<'a>>,
    ) {
        let found = self.all().and_then(|all| match find(all)? {
            Part::Text(found) if found == text => Some(self.place_of(found.as_bytes())),
            _ => None,
        });
        match found {
            Some((from, to)) => self.note(at, from, to),
            None => self.put(at, |out| out.extend_from_slice(text.as_bytes())),
        }
    }

    /// Puts the metadata, unless all of it is text, and so is there as it is.
    fn put_metadata(&mut self, metadata: &[(Box<str>, Box<str>)]) {
        let found = self.all().and_then(|all| {
            let entries = all.metadata()?;
            let mut left = metadata.iter();
            let is_there = entries.clone().all(|(key, value)| {
                let next = left.next().filter(|(k, _)| **k == *key);
                next.is_some_and(|(_, v)| matches!(value, Part::Text(text) if *text == **v))
            });
            (is_there && left.next().is_none()).then(|| self.place_of(entries.bytes()))
        });
        match found {
            Some((from, to)) => self.note(At::Metadata, from, to),
            None => self.put(At::Metadata, |out| {
                for (key, value) in metadata {
                    packed::append_entry(key, value, out);
                }
            }),
        }
    }

    /// Where a part of what was put is.
    fn place_of(&self, part: &[u8]) -> (usize, usize) {
        let from = part.as_ptr().addr() - self.all.as_ptr().addr();
        (from, from + part.len())
    }

    fn note(&mut self, at: At, from: usize, to: usize) {
        self.places[at as usize] = Some((from, to));
    }

    fn finish(self) -> Packed {
        let is_large = u16::try_from(self.all.len()).is_err();
        let (width, large) = if is_large { (4, IS_LARGE) } else { (2, 0) };
        let there = (0..PLACES).filter(|at| self.places[*at].is_some());
        let there = there.fold(large, |there, at| there | 1 << at);
        let mut packed = Vec::with_capacity(2 + PLACES * 2 * width + self.all.len());
        packed.extend(there.to_le_bytes());
        for number in self.places.iter().flatten().flat_map(|(from, to)| [from, to]) {
            packed.extend(&number.to_le_bytes()[..width]);
        }
        packed.extend(self.all);
        Packed(packed.into())
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packed")
            .field("name", &self.name())
            .field("description", &self.description())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::Packed;
    use crate::domain::{Authored, frontmatter};
    use proptest::prelude::*;

    fn unpacked(packed: &Packed) -> Authored {
        let text = |text: Option<&str>| text.map(Into::into);
        Authored {
            name: packed.name().into(),
            description: packed.description().into(),
            short_description: text(packed.short_description()),
            license: text(packed.license()),
            compatibility: text(packed.compatibility()),
            metadata: packed.metadata().map(|(k, v)| (k.into(), v.into())).collect(),
            allowed_tools: packed.allowed_tools().map(Into::into).collect(),
            frontmatter: packed.frontmatter().map(super::Part::to_value),
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
            if let Some(skill) = frontmatter::read(text.as_bytes(), true, Some(b"x")).skill {
                prop_assert_eq!(unpacked(&skill.clone().into()), skill);
            }
        }

        #[test]
        fn nothing_need_be_there_and_much_may(
            text: Option<String>, list: Vec<String>, pairs: Vec<(String, String)>,
            much in prop_oneof![Just(1_usize), 65_400..65_600_usize],
        ) {
            let text = text.filter(|text| !text.is_empty()).map(String::into_boxed_str);
            let skill = Authored {
                name: "n".into(),
                description: "d".repeat(much).into(),
                short_description: text.clone(),
                license: None,
                compatibility: text,
                metadata: pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
                allowed_tools: list.into_iter().map(Into::into).collect(),
                frontmatter: None,
            };
            prop_assert_eq!(unpacked(&skill.clone().into()), skill);
        }
    }
}
