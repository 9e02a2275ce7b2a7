//! Listed skills of a view with their terms. Each search looks at all of them.

use super::listing_terms::{ListingTerms, SkillTerms, TermTable, own_name};
use super::misspelled_text::MisspelledText;
use super::words::{fold_name, folded_chars};
use crate::skills::skill_source::SkillListing;
use crate::view::list::is_listed;
use crate::view::session_view::SessionView;
use caproot_core::proto::caproot::v1::Skill;
use std::cell::LazyCell;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

/// Terms of the listed skills of a view.
#[derive(Debug)]
pub struct ViewIndex {
    pub view_id: u64,
    pub listings: Vec<Arc<ListingTerms>>,
    /// In the order of the view.
    pub skills: Vec<IndexedSkill>,
    pub mean_lengths: MeanLengths,
}

/// Skill that a list of the view shows.
#[derive(Debug)]
pub struct IndexedSkill {
    /// Position in the view.
    pub position: u32,
    place: ListingPlace,
}

/// Place of the terms of a skill.
#[derive(Debug, Clone, Copy)]
struct ListingPlace {
    listing: u32,
    index: u32,
}

/// Listed skill that has a searched term, and how often its fields have the term.
pub struct TermMatch {
    /// Index of the skill among the listed skills.
    pub skill: usize,
    /// Index of the term among the searched terms.
    pub term: u32,
    pub in_name: u32,
    pub in_description: u32,
}

/// Mean number of terms of a field.
#[derive(Debug, Default)]
pub struct MeanLengths {
    pub name: f64,
    pub description: f64,
}

impl ViewIndex {
    /// Returns the index of a view. The words of unchanged skills of an earlier index are not read again.
    pub fn build(view: &SessionView, earlier: Option<&Self>) -> Self {
        let terms_of = |listing| {
            let terms = ListingTerms::share(listing);
            terms.table(earlier.and_then(|earlier| earlier.listing_like(listing)));
            terms
        };
        let mut index = Self {
            view_id: view.id,
            listings: view.listings.iter().map(terms_of).collect(),
            skills: Vec::new(),
            mean_lengths: MeanLengths::default(),
        };

        let places = listing_places(&view.listings, Arc::as_ptr);
        // The view has a copy of a skill that a rule of the session hides or switches on.
        let by_package =
            LazyCell::new(|| listing_places(&view.listings, |s| (&s.authority, &s.package)));
        let listed = (0..).zip(&view.skills).filter_map(|(position, skill)| {
            if !is_listed(view, skill) {
                return None;
            }
            let place = places.get(&Arc::as_ptr(skill));
            let place = place.or_else(|| by_package.get(&(&skill.authority, &skill.package)));
            Some(IndexedSkill {
                position,
                place: *place?,
            })
        });
        index.skills = listed.collect();
        index.mean_lengths = index.count_lengths();
        index
    }

    /// Returns the listing of the authority of the first skill of a listing.
    fn listing_like(&self, listing: &SkillListing) -> Option<&ListingTerms> {
        let authority = &listing.skills.first()?.authority;
        let mut listings = self.listings.iter().map(Arc::as_ref);
        listings.find(|earlier| {
            let first = earlier.listing.skills.first();
            first.is_some_and(|first| first.authority == *authority)
        })
    }

    fn count_lengths(&self) -> MeanLengths {
        let (mut name, mut description) = (0, 0);
        for skill in 0..self.skills.len() {
            let terms = self.terms_of(skill);
            name += terms.name.len();
            description += terms.description.len();
        }
        MeanLengths {
            name: mean(name, self.skills.len()),
            description: mean(description, self.skills.len()),
        }
    }

    pub fn terms_of(&self, skill: usize) -> SkillTerms<'_> {
        let ListingPlace { listing, index } = self.skills[skill].place;
        let table = self.listings[listing as usize].table(None);
        table.terms_of(index as usize)
    }

    /// Returns the listed skills that have a term, in the order of the view. The matches of a skill are in
    /// the order of the terms, so that equal skills have equal sums.
    pub fn find_terms(&self, searched: &[&str]) -> Vec<TermMatch> {
        let listings: Vec<_> = self
            .listings
            .iter()
            .map(|listing| listing.table(None).searched_indexes(searched))
            .collect();

        let mut matches = Vec::new();
        for (skill, listed) in self.skills.iter().enumerate() {
            let indexes = &listings[listed.place.listing as usize];
            let terms = self.terms_of(skill);
            let start = matches.len();
            for term in terms.name.iter().filter_map(|term| indexes[*term as usize]) {
                match_of(&mut matches, start, skill, term).in_name += 1;
            }
            for term in terms
                .description
                .iter()
                .filter_map(|term| indexes[*term as usize])
            {
                match_of(&mut matches, start, skill, term).in_description += 1;
            }
            matches[start..].sort_unstable_by_key(|found| found.term);
        }
        matches
    }

    /// Returns the terms with few edits to a misspelled term, with the number of edits.
    pub fn similar_terms(&self, misspelled: &MisspelledText<'_>) -> BTreeMap<&str, usize> {
        let tables = self.listings.iter().map(|listing| listing.table(None));
        tables
            .flat_map(TermTable::texts)
            .filter_map(|text| Some((text, misspelled.edits_to(text)?)))
            .collect()
    }

    /// Returns the positions of the listed skills with a folded name, with or without the plugin, in the
    /// order of the view.
    pub fn find_name(&self, view: &SessionView, folded: &str) -> Vec<u32> {
        let is_named = |name| folded_chars(name).eq(folded.chars());
        let positions = self.skills.iter().map(|listed| listed.position);
        positions
            .filter(|position| {
                let name = &*view.skills[*position as usize].name;
                !folded.is_empty() && (is_named(name) || is_named(own_name(name)))
            })
            .collect()
    }

    /// Returns the positions of the listed skills whose name, with or without the plugin, has few edits to
    /// a misspelled name, the fewest first.
    pub fn similar_names(&self, view: &SessionView, misspelled: &MisspelledText<'_>) -> Vec<u32> {
        let mut matches: Vec<(usize, u32)> = Vec::new();
        for listed in &self.skills {
            let name = view.skills[listed.position as usize].name.as_str();
            let names = [name, own_name(name)].into_iter();
            let edits = names.filter_map(|name| misspelled.edits_to(&fold_name(name)));
            matches.extend(edits.min().map(|edits| (edits, listed.position)));
        }
        matches.sort_unstable();
        matches.into_iter().map(|(_, position)| position).collect()
    }
}

/// Returns the match of a skill, whose matches begin at `start`, and a searched term.
fn match_of(matches: &mut Vec<TermMatch>, start: usize, skill: usize, term: u32) -> &mut TermMatch {
    let known = matches[start..].iter().position(|found| found.term == term);
    let index = known.map_or(matches.len(), |known| start + known);
    if known.is_none() {
        matches.push(TermMatch {
            skill,
            term,
            in_name: 0,
            in_description: 0,
        });
    }
    &mut matches[index]
}

/// Returns the places of the skills of listings by a key of a skill.
fn listing_places<'a, K: Eq + Hash>(
    listings: &'a [Arc<SkillListing>],
    key_of: impl Fn(&'a Arc<Skill>) -> K,
) -> HashMap<K, ListingPlace> {
    let mut places = HashMap::new();
    for (listing, skills) in (0..).zip(listings) {
        for (index, skill) in (0..).zip(&skills.skills) {
            let place = ListingPlace { listing, index };
            places.entry(key_of(skill)).or_insert(place);
        }
    }
    places
}

#[allow(clippy::cast_precision_loss)] // a number of words is far below 2^52
fn mean(sum: usize, count: usize) -> f64 {
    sum as f64 / count.max(1) as f64
}
