//! What an author says of a skill, in one piece of memory that all who hold it share. Most of its
//! texts are there twice, alone and among all fields: they are held once.

use super::frontmatter::Authored;
use super::value::packed::{self, Entries, Items, Part};
use std::fmt;
use std::sync::Arc;

/// A skill as its author describes it, packed: see [`Authored`]. Untrusted. Cheap to clone; all clones
/// are one.
#[derive(Clone, PartialEq, Eq)]
pub struct Packed(Arc<[u8]>);

/// Where each text is, at the beginning.
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

/// Where one is: from, to, four bytes each; nowhere if both are 0.
const PLACE_BYTES: usize = 8;
const PLACES: usize = At::Frontmatter as usize + 1;

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

    /// `metadata.short-description`, white space collapsed; never empty.
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
        noted(&self.0, at)
    }
}

/// What is noted at the beginning to be somewhere behind it.
fn noted(all: &[u8], at: At) -> Option<&[u8]> {
    let place = all.get(at as usize * PLACE_BYTES..)?.first_chunk::<PLACE_BYTES>()?;
    let (from, to) = place.split_at(PLACE_BYTES / 2);
    let number = |bytes: &[u8]| Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize);
    let (from, to) = (number(from)?, number(to)?);
    if to == 0 { None } else { all.get(from..to) }
}

impl From<Authored> for Packed {
    fn from(authored: Authored) -> Self {
        let Authored { metadata, allowed_tools, frontmatter, .. } = &authored;
        let mut pack = Pack(Vec::with_capacity(1 << 10));
        pack.0.resize(PLACES * PLACE_BYTES, 0);
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
        Self(pack.0.into())
    }
}

/// One that is being made.
struct Pack(Vec<u8>);

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
        match Part::of(noted(&self.0, At::Frontmatter)?) {
            Part::Map(entries) => Some(All(entries)),
            _ => None,
        }
    }

    /// Puts something behind all that is there.
    fn put(&mut self, at: At, fill: impl FnOnce(&mut Vec<u8>)) {
        let from = self.0.len();
        fill(&mut self.0);
        self.note(at, from, self.0.len());
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
        let from = part.as_ptr().addr() - self.0.as_ptr().addr();
        (from, from + part.len())
    }

    fn note(&mut self, at: At, from: usize, to: usize) {
        let number = |n: usize| u32::try_from(n).expect("all fields are bounded").to_le_bytes();
        let place = &mut self.0[at as usize * PLACE_BYTES..][..PLACE_BYTES];
        let (first, last) = place.split_at_mut(PLACE_BYTES / 2);
        first.copy_from_slice(&number(from));
        last.copy_from_slice(&number(to));
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
        fn nothing_need_be_there(text: Option<String>, list: Vec<String>, pairs: Vec<(String, String)>) {
            let text = text.filter(|text| !text.is_empty()).map(String::into_boxed_str);
            let skill = Authored {
                name: "n".into(),
                description: "d".into(),
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
