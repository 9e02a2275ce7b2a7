//! Links, anchors and pictures of the pages lead to existing targets, the index has every page, and
//! pages keep their size.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use fancy_regex::Regex;

use super::page::{Page, Part, pages, top};

/// Sizes of hand-written pages in bytes. A longer page is two pages.
const PAGE_BYTES: std::ops::RangeInclusive<usize> = 2 * 1_024..=12 * 1_024;

/// Number of lines that README has at most.
const README_MAX_LINES: usize = 200;

/// Pages that do not exist yet, or are too long still. The list may only shrink.
