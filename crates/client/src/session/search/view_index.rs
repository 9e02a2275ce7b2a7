//! Index of a view: the indexes of its catalogs, of which only the listed skills of the view count.
//! The statistics are those of one index of the listed skills.

use super::catalog_index::{CatalogIndex, FieldLengths, IndexContents, TermPosting};
use super::shared_indexes::share_index;
use super::text_table::{MisspelledText, to_u32};
use crate::session::skill::{AuthorityRef, SharedSkill, is_hidden};
use crate::session::view::SessionView;
use caproot_core::proto::caproot::v1::Skill;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Mark of a skill that the view does not list.
const NOT_LISTED: u32 = u32::MAX;

/// Index of the listed skills of a view.
#[derive(Debug)]
pub struct ViewIndex {
    pub view_id: u64,
    catalogs: Vec<ViewCatalog>,
    /// Number of listed skills.
    pub skill_count: usize,
    name_terms: usize,
    description_terms: usize,
}

/// Catalog of a view.
#[derive(Debug)]
struct ViewCatalog {
    index: Arc<CatalogIndex>,
    /// Position of each skill of the catalog in the view.
    positions: Vec<u32>,
}

/// Catalog with its index.
#[derive(Clone, Copy)]
struct IndexedCatalog<'a> {
    contents: &'a IndexContents,
    positions: &'a [u32],
}

/// Listed skill that has a term.
#[derive(Debug, Clone, Copy)]
pub struct TermMatch {
    /// Position of the skill in the view.
    pub position: u32,
    pub posting: TermPosting,
    pub lengths: FieldLengths,
}

/// Listed skill whose name is like a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NameMatch {
    /// Number of edits between the text and the name.
    pub edits: usize,
    /// Position of the skill in the view.
    pub position: u32,
}

/// Mean number of terms of a field.
#[derive(Debug, Clone, Copy)]
pub struct MeanLengths {
    pub name: f64,
    pub description: f64,
}

impl ViewIndex {
    /// Returns the index of a view. Unchanged skills of an earlier index are not indexed again.
    pub fn build(view: &SessionView, earlier: Option<&Self>) -> Self {
        let mut positions = listed_positions(view);
        let mut index = Self {
            view_id: view.id,
            catalogs: Vec::new(),
            skill_count: 0,
            name_terms: 0,
            description_terms: 0,
        };

        for listing in &view.listings {
            for skills in listing.skills.chunk_by(|a, b| a.authority == b.authority) {
                let positions: Vec<u32> = skills
                    .iter()
                    .map(|skill| positions.remove(&Arc::as_ptr(skill)).unwrap_or(NOT_LISTED))
                    .collect();
                if positions.iter().any(|position| *position != NOT_LISTED) {
                    index.add_catalog(skills, positions, earlier);
                }
            }
        }
        index
    }

    fn add_catalog(&mut self, skills: &[SharedSkill], positions: Vec<u32>, earlier: Option<&Self>) {
        let index = share_index(skills);
        let earlier = earlier.and_then(|earlier| earlier.catalog_of(&skills[0]));
        let contents = index.contents(earlier);

        for (skill, position) in positions.iter().enumerate() {
            if *position != NOT_LISTED {
                let lengths = contents.lengths(skill);
                self.skill_count += 1;
                self.name_terms += usize::from(lengths.name);
                self.description_terms += usize::from(lengths.description);
            }
        }
        self.catalogs.push(ViewCatalog { index, positions });
    }

    /// Returns the catalog of the authority of a skill.
    fn catalog_of(&self, skill: &SharedSkill) -> Option<&CatalogIndex> {
        let authority = AuthorityRef::of_skill(skill);
        let mut catalogs = self.catalogs.iter().map(|catalog| &*catalog.index);
        catalogs.find(|catalog| {
            let first = AuthorityRef::of_skill(&catalog.skills[0]);
            first.kind == authority.kind && first.id == authority.id
        })
    }

    fn indexed(&self) -> impl Iterator<Item = IndexedCatalog<'_>> {
        self.catalogs.iter().map(|catalog| IndexedCatalog {
            contents: catalog.index.contents(None),
            positions: &catalog.positions,
        })
    }

    pub fn mean_lengths(&self) -> MeanLengths {
        MeanLengths {
            name: mean(self.name_terms, self.skill_count),
            description: mean(self.description_terms, self.skill_count),
        }
    }

    /// Returns the listed skills that have a term.
    pub fn find_term<'a>(&'a self, term: &'a str) -> impl Iterator<Item = TermMatch> {
        self.indexed().flat_map(move |catalog| {
            let postings = catalog.contents.find_postings(term).iter();
            postings.filter_map(move |posting| {
                Some(TermMatch {
                    position: catalog.position(posting.skill as usize)?,
                    posting: *posting,
                    lengths: catalog.contents.lengths(posting.skill as usize),
                })
            })
        })
    }

    /// Returns the terms with few edits to a misspelled term, with the number of edits.
    pub fn similar_terms(&self, misspelled: &MisspelledText<'_>) -> BTreeMap<&str, usize> {
        let mut similar = BTreeMap::new();
        for catalog in self
            .catalogs
            .iter()
            .map(|catalog| catalog.index.contents(None))
        {
            similar.extend(catalog.similar_terms(misspelled));
        }
        similar
    }

    /// Returns the positions of the listed skills with this name, in the order of the view.
    pub fn find_name(&self, folded: &str) -> Vec<u32> {
        let mut positions = Vec::new();
        for catalog in self.indexed() {
            positions.extend(catalog.listed().filter_map(|(skill, position)| {
                let is_named = catalog.contents.is_named(skill, folded);
                is_named.then_some(position)
            }));
        }
        positions.sort_unstable();
        positions
    }

    /// Returns the listed skills whose name has few edits to a misspelled name, the fewest first.
    pub fn similar_names(&self, misspelled: &MisspelledText<'_>) -> Vec<NameMatch> {
        let mut matches = Vec::new();
        for catalog in self.indexed() {
            matches.extend(catalog.listed().filter_map(|(skill, position)| {
                let edits = catalog.contents.name_edits(misspelled, skill)?;
                Some(NameMatch { edits, position })
            }));
        }
        matches.sort_unstable();
        matches
    }

    /// Returns the bytes of the index for a skill of the catalogs. Sessions share the indexes of the
    /// catalogs.
    #[cfg(test)]
    pub fn bytes_per_skill(&self) -> usize {
        let skills: usize = self.catalogs.iter().map(|c| c.index.skills.len()).sum();
        let bytes = self.catalogs.iter().map(|catalog| {
            let shared = catalog.index.contents(None).heap_bytes();
            let own = size_of::<u32>() * catalog.positions.len();
            shared + own + size_of::<SharedSkill>() * catalog.index.skills.len()
        });
        bytes.sum::<usize>() / skills.max(1)
    }
}

impl<'a> IndexedCatalog<'a> {
    fn position(self, skill: usize) -> Option<u32> {
        Some(self.positions[skill]).filter(|position| *position != NOT_LISTED)
    }

    /// Returns the listed skills by their index in the catalog, with their position in the view.
    fn listed(self) -> impl Iterator<Item = (usize, u32)> + use<'a> {
        let skills = 0..self.positions.len();
        skills.filter_map(move |skill| Some((skill, self.position(skill)?)))
    }
}

/// Returns the position of each skill that the list of the view has.
fn listed_positions(view: &SessionView) -> HashMap<*const Skill, u32> {
    let mut positions = HashMap::with_capacity(view.skills.len());
    for (position, skill) in view.skills.iter().enumerate() {
        if !is_hidden(skill) && view.equal_roots.is_in_lists(skill) {
            positions
                .entry(Arc::as_ptr(skill))
                .or_insert(to_u32(position));
        }
    }
    positions
}

#[allow(clippy::cast_precision_loss)] // a number of words is far below 2^52
fn mean(sum: usize, count: usize) -> f64 {
    sum as f64 / count.max(1) as f64
}
