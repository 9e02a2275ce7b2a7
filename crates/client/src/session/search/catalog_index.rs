//! Index of the skills of one authority: the terms of names and descriptions, with the skills that
//! have them. Sessions with the same skills share an index.

use super::text_table::{MisspelledText, TextTable, to_u32};
use super::words::{fold_name, split_words, stem_word};
use crate::session::skill::{SharedSkill, is_hidden};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use string_interner::StringInterner;
use string_interner::backend::StringBackend;
use string_interner::symbol::{Symbol as _, SymbolU32};

/// Mark of a skill that another index does not have.
const NO_SKILL: u32 = u32::MAX;
/// Mark of a term without postings.
const NO_POSTING: u32 = u32::MAX;

/// Skills of one authority in the order of its listing, with their index.
#[derive(Debug)]
pub struct CatalogIndex {
    pub skills: Vec<SharedSkill>,
    /// Made by the first search.
    contents: OnceLock<IndexContents>,
}

/// Terms, names and lengths of the skills of an index. Hidden skills have none.
#[derive(Debug, Default)]
pub struct IndexContents {
    /// Sorted terms.
    terms: TextTable,
    /// End of the postings of each term.
    posting_ends: Vec<u32>,
    postings: Vec<TermPosting>,
    /// Folded name of each skill.
    names: TextTable,
    /// Offset of the name without the plugin in each folded name.
    own_name_starts: Vec<u32>,
    lengths: Vec<FieldLengths>,
}

/// Skill that has a term, by its index in the catalog, and how often its fields have the term.
#[derive(Debug, Clone, Copy, Default)]
pub struct TermPosting {
    pub skill: u32,
    pub in_name: u16,
    pub in_description: u16,
}

/// Number of terms of the fields of a skill.
#[derive(Debug, Clone, Copy, Default)]
pub struct FieldLengths {
    pub name: u16,
    pub description: u16,
}

/// Term with its postings.
#[derive(Debug, Clone, Copy)]
struct PostedTerm<'a> {
    text: &'a str,
    postings: &'a [TermPosting],
}

/// Distinct texts in one allocation, numbered from 0.
type TextInterner = StringInterner<StringBackend<SymbolU32>>;

/// Terms of skills that no earlier index has. The tables are few and large, so that their memory is
/// returned to the system.
#[derive(Default)]
struct AddedTerms {
    /// Distinct words. A catalog has few of them, and a stem takes time.
    words: TextInterner,
    /// Term of each word.
    terms_of_words: Vec<u32>,
    terms: TextInterner,
    /// Index of the last posting of each term.
    last_postings: Vec<u32>,
    /// Postings of all terms in the order of the skills.
    postings: Vec<AddedPosting>,
}

/// Posting with its term.
struct AddedPosting {
    term: u32,
    posting: TermPosting,
}

/// Added terms in the order of their texts.
#[derive(Default)]
struct SortedTerms<'a> {
    texts: Vec<&'a str>,
    /// End of the postings of each term.
    ends: Vec<u32>,
    postings: Vec<TermPosting>,
}

/// Skills of an earlier index that are in a new index.
struct ReusedSkills<'a> {
    from: &'a IndexContents,
    /// Index of each new skill in the earlier index.
    old_indexes: Vec<u32>,
    /// Index of each earlier skill in the new index.
    new_indexes: Vec<u32>,
}

impl CatalogIndex {
    /// Returns the catalog of these skills without an index.
    pub fn new(skills: Vec<SharedSkill>) -> Self {
        Self {
            skills,
            contents: OnceLock::new(),
        }
    }

    /// Returns whether the skills are the same, and not only equal.
    pub fn has_skills(&self, skills: &[SharedSkill]) -> bool {
        self.skills.len() == skills.len()
            && self
                .skills
                .iter()
                .zip(skills)
                .all(|(a, b)| Arc::ptr_eq(a, b))
    }

    /// Returns the index. Makes it if there is none, from the unchanged skills of an earlier index.
    pub fn contents(&self, earlier: Option<&Self>) -> &IndexContents {
        self.contents.get_or_init(|| {
            let empty = IndexContents::default();
            let reused = match earlier.and_then(|earlier| Some((earlier, earlier.contents.get()?)))
            {
                Some((earlier, from)) => ReusedSkills::find(earlier, from, &self.skills),
                None => ReusedSkills::none(&empty, &self.skills),
            };
            IndexContents::build(&self.skills, &reused)
        })
    }
}

impl IndexContents {
    fn build(skills: &[SharedSkill], reused: &ReusedSkills<'_>) -> Self {
        let mut contents = Self::with_room_for(skills.len(), reused.from);
        let mut added = AddedTerms::default();

        for (index, skill) in skills.iter().enumerate() {
            match reused.old_index(index) {
                Some(old) => contents.copy_skill(reused.from, old),
                None if is_hidden(skill) => contents.push_skill("", 0, FieldLengths::default()),
                None => {
                    let lengths = added.add_skill(to_u32(index), skill);
                    let name = fold_name(&skill.name);
                    let own_name = fold_name(own_name(&skill.name));
                    contents.push_skill(&name, name.len() - own_name.len(), lengths);
                }
            }
        }

        contents.merge_terms(reused, &added.sort());
        contents.shrink_to_fit();
        contents
    }

    /// Returns an empty index with room for skills that are mostly those of an earlier index.
    fn with_room_for(skills: usize, from: &Self) -> Self {
        Self {
            terms: TextTable::with_room_of(&from.terms),
            posting_ends: Vec::with_capacity(from.posting_ends.len()),
            postings: Vec::with_capacity(from.postings.len()),
            names: TextTable::with_room_of(&from.names),
            own_name_starts: Vec::with_capacity(skills),
            lengths: Vec::with_capacity(skills),
        }
    }

    fn copy_skill(&mut self, from: &Self, old: usize) {
        let own_name_start = from.own_name_starts[old] as usize;
        self.push_skill(from.names.get(old), own_name_start, from.lengths[old]);
    }

    fn push_skill(&mut self, name: &str, own_name_start: usize, lengths: FieldLengths) {
        self.names.push(name);
        self.own_name_starts.push(to_u32(own_name_start));
        self.lengths.push(lengths);
    }

    /// Adds the terms of the reused skills and the added terms. Both are sorted.
    fn merge_terms(&mut self, reused: &ReusedSkills<'_>, added: &SortedTerms<'_>) {
        self.postings.reserve(added.postings.len());
        let mut added = added.iter().peekable();

        for term in 0..reused.from.terms.len() {
            let text = reused.from.terms.get(term);
            while let Some(first) = added.next_if(|first| first.text < text) {
                self.push_term(first.text, first.postings.iter().copied());
            }

            let own = added.next_if(|first| first.text == text);
            let own = own.map_or(&[][..], |own| own.postings).iter().copied();
            let kept = reused.from.postings_of(term).iter();
            let kept = kept.filter_map(|posting| reused.moved_posting(*posting));
            self.push_term(text, kept.chain(own));
        }

        for rest in added {
            self.push_term(rest.text, rest.postings.iter().copied());
        }
    }

    /// Adds a term, unless no skill has the term.
    fn push_term(&mut self, text: &str, postings: impl IntoIterator<Item = TermPosting>) {
        let before = self.postings.len();
        self.postings.extend(postings);
        if self.postings.len() > before {
            self.terms.push(text);
            self.posting_ends.push(to_u32(self.postings.len()));
        }
    }

    fn shrink_to_fit(&mut self) {
        self.terms.shrink_to_fit();
        self.posting_ends.shrink_to_fit();
        self.postings.shrink_to_fit();
        self.names.shrink_to_fit();
        self.own_name_starts.shrink_to_fit();
        self.lengths.shrink_to_fit();
    }

    fn postings_of(&self, term: usize) -> &[TermPosting] {
        let start = term
            .checked_sub(1)
            .map_or(0, |before| self.posting_ends[before]);
        &self.postings[start as usize..self.posting_ends[term] as usize]
    }

    /// Returns the skills that have a term.
    pub fn find_postings(&self, term: &str) -> &[TermPosting] {
        let term = self.terms.find_sorted(term);
        term.map_or(&[], |term| self.postings_of(term))
    }

    /// Returns the terms with few edits to a misspelled term, with the number of edits.
    pub fn similar_terms<'a>(
        &'a self,
        misspelled: &MisspelledText<'_>,
    ) -> impl Iterator<Item = (&'a str, usize)> {
        (0..self.terms.len()).filter_map(|term| {
            let edits = self.terms.edits(misspelled, term)?;
            Some((self.terms.get(term), edits))
        })
    }

    pub fn lengths(&self, skill: usize) -> FieldLengths {
        self.lengths[skill]
    }

    /// Returns whether the name of a skill is a folded text, with or without the plugin.
    pub fn is_named(&self, skill: usize, folded: &str) -> bool {
        let name = self.names.get(skill);
        !folded.is_empty() && (name == folded || self.own_name(skill) == folded)
    }

    /// Returns the number of edits between a misspelled name and the name of a skill, with or without
    /// the plugin.
    pub fn name_edits(&self, misspelled: &MisspelledText<'_>, skill: usize) -> Option<usize> {
        let whole = self.names.edits(misspelled, skill);
        if self.own_name_starts[skill] == 0 {
            return whole;
        }
        let own = misspelled.edits_to(self.own_name(skill));
        whole.into_iter().chain(own).min()
    }

    fn own_name(&self, skill: usize) -> &str {
        &self.names.get(skill)[self.own_name_starts[skill] as usize..]
    }

    /// Returns the bytes of the index.
    #[cfg(test)]
    pub fn heap_bytes(&self) -> usize {
        self.terms.heap_bytes()
            + self.names.heap_bytes()
            + size_of::<TermPosting>() * self.postings.capacity()
            + size_of::<FieldLengths>() * self.lengths.capacity()
            + size_of::<u32>() * (self.posting_ends.capacity() + self.own_name_starts.capacity())
    }
}

impl AddedTerms {
    /// Adds the terms of a skill, and returns their numbers.
    fn add_skill(&mut self, index: u32, skill: &SharedSkill) -> FieldLengths {
        let name = split_words(&skill.name);
        let mut description = split_words(&skill.description);
        if skill.short_description != skill.description {
            description.extend(split_words(&skill.short_description));
        }

        for word in &name {
            self.posting(index, word).in_name += 1;
        }
        for word in &description {
            self.posting(index, word).in_description += 1;
        }
        FieldLengths {
            name: to_u16(name.len()),
            description: to_u16(description.len()),
        }
    }

    /// Returns the posting of a skill for a word. Skills are added one after the other, so the posting
    /// is the last one of the term.
    fn posting(&mut self, skill: u32, word: &str) -> &mut TermPosting {
        let term = self.find_or_add_term(word);
        let last = self.last_postings[term] as usize;
        let has_posting = self
            .postings
            .get(last)
            .is_some_and(|last| last.posting.skill == skill);

        let index = if has_posting {
            last
        } else {
            self.add_posting(term, skill)
        };
        &mut self.postings[index].posting
    }

    /// Adds a posting without words, and returns its index.
    fn add_posting(&mut self, term: usize, skill: u32) -> usize {
        let index = self.postings.len();
        self.last_postings[term] = to_u32(index);
        self.postings.push(AddedPosting {
            term: to_u32(term),
            posting: TermPosting {
                skill,
                ..TermPosting::default()
            },
        });
        index
    }

    /// Returns the index of the term of a word.
    fn find_or_add_term(&mut self, word: &str) -> usize {
        let word_index = self.words.get_or_intern(word).to_usize();
        if let Some(term) = self.terms_of_words.get(word_index) {
            return *term as usize;
        }

        let term = self.terms.get_or_intern(stem_word(word)).to_usize();
        self.terms_of_words.push(to_u32(term));
        if term == self.last_postings.len() {
            self.last_postings.push(NO_POSTING);
        }
        term
    }

    /// Sorts the postings by term. The postings of a term keep their order.
    fn sort(&self) -> SortedTerms<'_> {
        let texts: Vec<&str> = self.terms.iter().map(|(_, text)| text).collect();
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_unstable_by_key(|term| texts[*term]);

        let mut counts = vec![0_u32; texts.len()];
        for added in &self.postings {
            counts[added.term as usize] += 1;
        }
        let mut sorted = SortedTerms::default();
        let mut next_places = vec![0_u32; texts.len()];
        for term in order {
            let start = sorted.ends.last().copied().unwrap_or_default();
            next_places[term] = start;
            sorted.texts.push(texts[term]);
            sorted.ends.push(start + counts[term]);
        }

        sorted.postings = vec![TermPosting::default(); self.postings.len()];
        for added in &self.postings {
            let place = &mut next_places[added.term as usize];
            sorted.postings[*place as usize] = added.posting;
            *place += 1;
        }
        sorted
    }
}

impl SortedTerms<'_> {
    fn iter(&self) -> impl Iterator<Item = PostedTerm<'_>> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        let ranges = starts.zip(&self.ends);
        self.texts
            .iter()
            .zip(ranges)
            .map(|(text, (start, end))| PostedTerm {
                text,
                postings: &self.postings[start as usize..*end as usize],
            })
    }
}

impl<'a> ReusedSkills<'a> {
    fn none(empty: &'a IndexContents, skills: &[SharedSkill]) -> Self {
        Self {
            from: empty,
            old_indexes: vec![NO_SKILL; skills.len()],
            new_indexes: Vec::new(),
        }
    }

    /// Finds the skills with the same texts in an earlier index.
    fn find(earlier: &CatalogIndex, from: &'a IndexContents, skills: &[SharedSkill]) -> Self {
        let by_package: HashMap<&str, usize> = earlier
            .skills
            .iter()
            .enumerate()
            .map(|(old, skill)| (skill.package.as_str(), old))
            .collect();

        let mut reused = Self::none(from, skills);
        reused.new_indexes = vec![NO_SKILL; earlier.skills.len()];
        for (new, skill) in skills.iter().enumerate() {
            let old = by_package.get(skill.package.as_str()).copied();
            let same = old.filter(|old| {
                reused.new_indexes[*old] == NO_SKILL && has_same_terms(&earlier.skills[*old], skill)
            });
            if let Some(old) = same {
                reused.old_indexes[new] = to_u32(old);
                reused.new_indexes[old] = to_u32(new);
            }
        }
        reused
    }

    fn old_index(&self, new: usize) -> Option<usize> {
        let old = self.old_indexes[new];
        (old != NO_SKILL).then_some(old as usize)
    }

    /// Returns a posting of the earlier index for the new index.
    fn moved_posting(&self, posting: TermPosting) -> Option<TermPosting> {
        let skill = self.new_indexes[posting.skill as usize];
        (skill != NO_SKILL).then_some(TermPosting { skill, ..posting })
    }
}

fn has_same_terms(a: &SharedSkill, b: &SharedSkill) -> bool {
    Arc::ptr_eq(a, b)
        || (is_hidden(a) == is_hidden(b)
            && a.name == b.name
            && a.description == b.description
            && a.short_description == b.short_description)
}

/// Returns a name without the plugin and the colon.
fn own_name(name: &str) -> &str {
    name.split_once(':').map_or(name, |(_, own)| own)
}

/// Returns a number of words as 16 bits. A field has at most 2,048 words.
fn to_u16(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}
