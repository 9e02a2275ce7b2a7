//! Terms of the skills of a listing, in one vector. Sessions with the same skills share them.

use super::stop_words::is_stop_word;
use super::words::{for_each_word, stem_word};
use crate::skills::skill::SharedSkill;
use crate::skills::skill_source::SkillListing;
use caproot_core::proto::caproot::v1::Skill;
use caproot_core::sync::Mutex;
use std::cell::LazyCell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use string_interner::{DefaultStringInterner, DefaultSymbol, Symbol as _};

/// Distinct texts in one allocation, numbered from 0.
type TextInterner = DefaultStringInterner;

/// Address of the first skill of a listing, and the number of its skills.
type ListingKey = (usize, usize);

/// Terms that a session of this process holds.
static SHARED_TERMS: LazyLock<Mutex<HashMap<ListingKey, Weak<ListingTerms>>>> =
    LazyLock::new(Mutex::default);

/// Listing with the terms of its skills.
#[derive(Debug)]
pub struct ListingTerms {
    pub listing: Arc<SkillListing>,
    /// Made by the first search.
    table: OnceLock<TermTable>,
}

/// Terms of skills, by their index.
#[derive(Debug, Default)]
pub struct TermTable {
    vocabulary: TextInterner,
    /// Terms of all skills: those of the name of a skill, and then those of its description.
    terms: Vec<u32>,
    skills: Vec<TermFields>,
}

/// Ends of the fields of a skill in the terms of a table.
#[derive(Debug)]
struct TermFields {
    name_end: u32,
    description_end: u32,
}

/// Terms of the fields of a skill.
pub struct SkillTerms<'a> {
    pub name: &'a [u32],
    pub description: &'a [u32],
}

/// Terms of the words of texts. A catalog has few distinct words, and a stem takes time.
#[derive(Default)]
struct WordTerms {
    words: TextInterner,
    /// Term of each word; `None` for a stop word.
    terms: Vec<Option<u32>>,
}

impl WordTerms {
    /// Returns the term of a word, or `None` for a stop word.
    fn find_term(&mut self, word: &str, vocabulary: &mut TextInterner) -> Option<u32> {
        let index = self.words.get_or_intern(word).to_usize();
        if let Some(term) = self.terms.get(index) {
            return *term;
        }

        let term = (!is_stop_word(word))
            .then(|| to_u32(vocabulary.get_or_intern(stem_word(word)).to_usize()));
        self.terms.push(term);
        term
    }
}

impl ListingTerms {
    /// Returns the terms of this listing that a session of this process holds, or new ones.
    pub fn share(listing: &Arc<SkillListing>) -> Arc<Self> {
        let skills = &listing.skills;
        let first = skills.first().map_or(0, |skill| Arc::as_ptr(skill).addr());
        let key = (first, skills.len());
        let mut shared = SHARED_TERMS.lock();

        // Held terms hold their skills, so no other skill has their addresses.
        let held = shared.get(&key).and_then(Weak::upgrade);
        if let Some(held) = held.filter(|held| held.has_skills(skills)) {
            return held;
        }

        let terms = Arc::new(Self {
            listing: listing.clone(),
            table: OnceLock::new(),
        });
        shared.retain(|_, terms| terms.strong_count() > 0);
        shared.insert(key, Arc::downgrade(&terms));
        terms
    }

    /// Returns whether the skills are the same, and not only equal.
    fn has_skills(&self, skills: &[SharedSkill]) -> bool {
        let own = &self.listing.skills;
        own.len() == skills.len() && own.iter().zip(skills).all(|(a, b)| Arc::ptr_eq(a, b))
    }

    /// Returns the terms. Makes them if there are none, with those of unchanged skills of an earlier
    /// listing.
    pub fn table(&self, earlier: Option<&Self>) -> &TermTable {
        self.table.get_or_init(|| {
            let mut table = TermTable::default();
            match earlier.and_then(|earlier| Some((earlier, earlier.table.get()?))) {
                Some((earlier, known)) => table.add_skills(self, earlier, known),
                None => table.add_skills(self, self, &TermTable::default()),
            }
            table
        })
    }
}

impl TermTable {
    /// Adds the skills of a listing. Copies the terms of unchanged skills of an earlier listing, whose
    /// first skills have known terms.
    fn add_skills(&mut self, added: &ListingTerms, earlier: &ListingTerms, known: &Self) {
        let earlier = &earlier.listing.skills[..known.skills.len()];
        let by_package = LazyCell::new(|| -> HashMap<&str, usize> {
            let packages = earlier.iter().map(|skill| skill.package.as_str());
            packages.zip(0..).collect()
        });
        let mut moved = vec![None; known.vocabulary.len()];
        let mut words = WordTerms::default();
        self.terms.reserve(known.terms.len());
        self.skills.reserve_exact(added.listing.skills.len());

        // Most skills follow the same skill as before.
        let mut next = 0;
        for skill in &added.listing.skills {
            let is_unchanged = |at: usize| {
                earlier
                    .get(at)
                    .is_some_and(|old| has_same_texts(old, skill))
            };
            if !earlier.is_empty() && !is_unchanged(next) {
                next = *by_package.get(skill.package.as_str()).unwrap_or(&next);
            }
            if is_unchanged(next) {
                self.copy_skill(known, next, &mut moved);
                next += 1;
            } else {
                self.add_skill(skill, &mut words);
            }
        }
        self.terms.shrink_to_fit();
        self.vocabulary.shrink_to_fit();
    }

    fn add_skill(&mut self, skill: &Skill, words: &mut WordTerms) {
        self.add_text(&skill.name, words);
        let name_end = to_u32(self.terms.len());
        self.add_text(&skill.description, words);
        if skill.short_description != skill.description {
            self.add_text(&skill.short_description, words);
        }

        self.skills.push(TermFields {
            name_end,
            description_end: to_u32(self.terms.len()),
        });
    }

    fn add_text(&mut self, text: &str, words: &mut WordTerms) {
        for_each_word(text, |word| {
            self.terms
                .extend(words.find_term(word, &mut self.vocabulary));
        });
    }

    /// Adds the terms of a skill of another table. A moved term has its number here.
    fn copy_skill(&mut self, from: &Self, index: usize, moved: &mut [Option<u32>]) {
        let SkillTerms { name, description } = from.terms_of(index);
        let name_end = to_u32(self.terms.len() + name.len());
        for term in name.iter().chain(description) {
            let own = moved[*term as usize].get_or_insert_with(|| {
                let text = from.text_of(*term);
                to_u32(self.vocabulary.get_or_intern(text).to_usize())
            });
            self.terms.push(*own);
        }
        self.skills.push(TermFields {
            name_end,
            description_end: to_u32(self.terms.len()),
        });
    }

    /// Returns the terms of the skill at an index of the listing.
    pub fn terms_of(&self, index: usize) -> SkillTerms<'_> {
        let start = index.checked_sub(1);
        let start = start.map_or(0, |before| self.skills[before].description_end as usize);
        let fields = &self.skills[index];
        let name_end = fields.name_end as usize;
        SkillTerms {
            name: &self.terms[start..name_end],
            description: &self.terms[name_end..fields.description_end as usize],
        }
    }

    /// Returns the index of each term of the table among the searched terms.
    pub fn searched_indexes(&self, searched: &[&str]) -> Vec<Option<u32>> {
        let mut indexes = vec![None; self.vocabulary.len()];
        for (index, text) in (0..).zip(searched) {
            if let Some(term) = self.vocabulary.get(text) {
                indexes[term.to_usize()] = Some(index);
            }
        }
        indexes
    }

    /// Returns the texts of all terms.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.vocabulary.iter().map(|(_, text)| text)
    }

    fn text_of(&self, term: u32) -> &str {
        let symbol = DefaultSymbol::try_from_usize(term as usize);
        let text = symbol.and_then(|symbol| self.vocabulary.resolve(symbol));
        text.unwrap_or_default()
    }
}

fn has_same_texts(a: &SharedSkill, b: &SharedSkill) -> bool {
    Arc::ptr_eq(a, b)
        || (a.name == b.name
            && a.description == b.description
            && a.short_description == b.short_description)
}

/// Returns a name without the plugin and the colon.
pub fn own_name(name: &str) -> &str {
    name.split_once(':').map_or(name, |(_, own)| own)
}

/// Returns a number as 32 bits. A catalog with more than 2^32 words does not fit into memory.
fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::{ListingTerms, SHARED_TERMS, TermFields, TermTable};
    use crate::skills::skill_source::SkillListing;
    use caproot_core::proto::caproot::v1::Skill;
    use std::sync::Arc;

    impl TermTable {
        /// Returns about how many bytes the terms take.
        pub(in crate::search) fn heap_bytes(&self) -> usize {
            let texts: usize = self.texts().map(str::len).sum();
            // The end of each text, and its place in a hash table with seven of eight places in use.
            let vocabulary = texts + self.vocabulary.len() * (size_of::<usize>() + 6);
            vocabulary
                + size_of::<u32>() * self.terms.capacity()
                + size_of::<TermFields>() * self.skills.capacity()
        }
    }

    fn listing(skills: &[Arc<Skill>]) -> Arc<SkillListing> {
        Arc::new(SkillListing {
            skills: skills.to_vec(),
            ..SkillListing::default()
        })
    }

    #[test]
    fn the_same_skills_have_the_same_terms() {
        let skills: Vec<_> = (0..3).map(|_| Arc::new(Skill::default())).collect();
        let terms = ListingTerms::share(&listing(&skills));
        assert!(Arc::ptr_eq(&terms, &ListingTerms::share(&listing(&skills))));

        let equal: Vec<_> = (0..3).map(|_| Arc::new(Skill::default())).collect();
        assert!(!Arc::ptr_eq(&terms, &ListingTerms::share(&listing(&equal))));
        assert!(!Arc::ptr_eq(
            &terms,
            &ListingTerms::share(&listing(&skills[1..]))
        ));
    }

    #[test]
    fn ended_terms_are_removed() {
        for _ in 0..1_000 {
            ListingTerms::share(&listing(&[Arc::new(Skill::default())]));
        }
        assert!(SHARED_TERMS.lock().len() < 500);
    }
}
